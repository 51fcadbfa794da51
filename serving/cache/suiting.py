"""Whether a kept answer is one for a call."""

from collections.abc import Callable
from math import inf

from serving.cache.entries import KeptAnswer
from serving.cache.keys import variants_of
from serving.ports import Call


def accuracy_of(call: Call, variant: str) -> float:
    """Return the accuracy of a variant that may answer; -inf if it is not measured."""
    accuracy = call.model.accuracy(variant)
    return -inf if accuracy is None else accuracy


def suits(call: Call, entry: KeptAnswer, now_us: int, preferred: Callable[[Call], float]) -> bool:
    """Return whether a kept answer is young enough for the call, and of a variant that is good enough.

    Good enough is the most accurate variant that may answer, and any that is as accurate as what the gateway
    would compute now. `preferred` returns that accuracy, and is called only where it matters.
    """
    if call.max_age_us is not None and now_us - entry.stored_us > call.max_age_us:
        return False
    allowed = variants_of(call)
    if entry.variant == allowed[0]:
        return True
    return entry.variant in allowed and accuracy_of(call, entry.variant) >= preferred(call)
