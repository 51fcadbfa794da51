"""How a batch in which the model raised is tried again, so that rows it does not raise on are answered.

By halves: one poisonous row among n costs 2 log2 n smaller batches, where row by row would cost n. A model
that raises on everything is not tried for long.
"""

from collections.abc import Sequence
from typing import TypeVar

FAILURES_MAX = 16
"""Batches in a row that may fail and still be tried in halves: one poisonous row among 4,096 fails 13."""

T = TypeVar("T")


def halves(pieces: Sequence[T], failures: int) -> list[Sequence[T]]:
    """Return the parts of a failed batch to try, none to give up; `failures`: in a row, this one among
    them."""
    if not pieces or failures > FAILURES_MAX:
        return []
    middle = (len(pieces) + 1) // 2
    return [part for part in (pieces[:middle], pieces[middle:]) if part]
