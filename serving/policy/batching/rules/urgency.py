"""Of the batches that a model's lanes could run, the one that goes first."""

from collections.abc import Iterable

from serving.policy.batching.interface import WAIT, Choice
from serving.values.vocabulary import NEVER_US


def most_urgent(choices: Iterable[Choice]) -> Choice:
    """Return the choice with a lane that has the least latest start, the first of equals; else a wait until
    the earliest `wake_us`."""
    best, wake_us = WAIT, NEVER_US
    for choice in choices:
        if choice.lane is None:
            wake_us = min(wake_us, choice.wake_us)
        elif best.lane is None or choice.latest_start_us < best.latest_start_us:
            best = choice
    return best if best.lane is not None or wake_us == NEVER_US else Choice(wake_us=wake_us)
