"""Which model's batch an idle slice runs next, where several are ready."""

from collections.abc import Sequence

from serving.policy.batching.seam import Choice


def most_urgent(choices: Sequence[Choice]) -> int:
    """Index of the choice that must start soonest (least latest start), the first of equals.

    Latest start is the head's deadline less the batch's own latency: with it a long batch of a loose
    SLO is not put behind a short one that could still wait (Symphony, arXiv 2308.07470).
    """
    return min(range(len(choices)), key=lambda index: choices[index].latest_start_us)
