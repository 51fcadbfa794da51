"""Which batch an idle slice runs next, where several models want one; and until when none need run.

Batches that may wait are planned backwards from their deadlines over the slices: the last to be due ends
last, and each must start early enough for those after it. That common latest start replaces Symphony's
frontrun slack, which collides when few slices serve many models (arXiv 2308.07470).
"""

from collections.abc import Sequence
from heapq import heapreplace
from math import inf

from serving.policy.batching.interface import Choice
from serving.values.vocabulary import NEVER_US


def decide(
    choices: Sequence[Choice],
    slices: int,
    now_us: int,
    used: Sequence[float] | None = None,
    elsewhere_us: Sequence[int] | None = None,
) -> tuple[int, int]:
    """Return the index of the choice to run now (or -1) and the instant at which to ask again. `used`: in
    overload, the slice time that each choice's model has had, divided by its entitlement. `elsewhere_us`:
    when the next other slice that may run each choice is free, if there is any. A choice that can start there
    in time is not made late here.

    `choices` have lanes. Among choices that may not or need not wait any longer, the least latest start wins.
    So a long batch of a loose SLO is not put behind a short one that could still wait. A choice that may wait
    goes first if the batch that would run now would make it late: batches are not interrupted. Among choices
    that could wait no longer, a protected one goes before the others. In overload, among all that could wait
    no longer, the model that has had the least time goes first. Some head is always at its last moment then,
    and a model of few rows or of long batches would never have its turn. DyBatch (CCGRID 2020) shares a
    device in this way.
    """
    ready = [index for index, choice in enumerate(choices) if not choice.patient]
    waiting = [index for index, choice in enumerate(choices) if choice.patient]
    starts = latest_starts(choices, slices) if waiting else []
    untils = {index: min(starts[index], choices[index].wake_us) for index in waiting}
    ready += [index for index in waiting if untils[index] <= now_us]
    wake_us = min((until_us for until_us in untils.values() if until_us > now_us), default=NEVER_US)
    if not ready:
        return -1, wake_us
    first = _most_urgent(choices, ready)
    end_us = now_us + choices[first].latency_us
    ends = _ends(end_us, len(choices), elsewhere_us)
    late = [index for index, choice in enumerate(choices) if choice.latest_start_us < ends[index]]
    protected = [index for index in late if choices[index].protected]
    if protected and not choices[first].protected:
        return _most_urgent(choices, protected), wake_us
    if used is not None and len(late) > 1 and not protected:
        return min(late, key=lambda index: (used[index], index)), wake_us
    return _most_urgent(choices, ready + [index for index in waiting if starts[index] < ends[index]]), wake_us


def _ends(end_us: float, count: int, elsewhere_us: Sequence[int] | None) -> list[float]:
    """Return when each could start instead, if this slice is taken until `end_us`."""
    if elsewhere_us is None:
        return [end_us] * count
    return [min(end_us, float(free_us)) for free_us in elsewhere_us]


def _most_urgent(choices: Sequence[Choice], among: Sequence[int]) -> int:
    rule = choices[among[0]].rule
    if rule and all(choices[index].rule == rule for index in among):
        return min(among, key=lambda index: (choices[index].rank, index))
    return min(among, key=lambda index: (choices[index].latest_start_us, index))


def latest_starts(choices: Sequence[Choice], slices: int) -> list[int]:
    """Return the latest start of each choice with room for one more row, so that all end in time on
    `slices`."""
    # Negated: the heap's first is the slice that is free the longest. More slices than choices stay unused.
    ends = [-inf] * min(slices, len(choices))
    starts = [0] * len(choices)
    deadlines = [choice.latest_start_us + choice.latency_us for choice in choices]
    for index in sorted(range(len(choices)), key=lambda i: (-deadlines[i], i)):
        end = min(-ends[0], deadlines[index])
        starts[index] = int(end - choices[index].grown_us)
        heapreplace(ends, -(end - choices[index].latency_us))
    return starts
