"""Which known name a mistyped one was meant to be: the one place that guesses."""

from collections.abc import Iterable
from difflib import get_close_matches

_SHARED_MIN = 2
"""Letters that a name must share with a guess, at either end, where a single letter is another one, or is
missing: of names like A and B none resembles the other."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that was most likely meant, or "". Upper and lower case do not matter.

    A single slip of the hand comes first: two neighbouring letters exchanged, or one too many, missing or
    wrong. For the ratio of difflib `mpl` is as near to `simple` as to `mlp`.
    """
    folded = {each.casefold(): each for each in known}
    typed = name.casefold()
    if typed in folded:
        return folded[typed]
    slips = [each for each in folded if _is_slip(typed, each)]
    found = get_close_matches(typed, slips, n=1, cutoff=0) or get_close_matches(typed, folded, n=1)
    return folded[found[0]] if found else ""


def _is_slip(typed: str, meant: str) -> bool:
    """Return whether one slip turns `meant` into `typed`."""
    shorter = min(len(typed), len(meant))
    start = 0
    while start < shorter and typed[start] == meant[start]:
        start += 1
    end = 0
    while end < shorter - start and typed[-1 - end] == meant[-1 - end]:
        end += 1
    left, wanted = typed[start : len(typed) - end], meant[start : len(meant) - end]
    if len(left) == 2:
        return left == wanted[::-1]
    return len(left) <= 1 and len(wanted) <= 1 and start + end >= _SHARED_MIN
