"""What requests look like, as counts by bucket: their rows, their sizes, and the variants that answered.

Of classifiers also what they answer (`answers.py`).
The last hours are compared with the last days. No tensor, name or parameter is ever kept.
"""

from collections.abc import Iterable, Mapping
from math import log2, sqrt
from typing import Final

from router.observing.telemetry.counting.answers import ANSWER_KINDS, Counts
from router.observing.telemetry.counting.journal import Entry

ROWS, SIZES, VARIANTS = "rows", "sizes", "variants"
KINDS: Final = (ROWS, SIZES, VARIANTS, *ANSWER_KINDS)
HOUR_S: Final = 3600
HALF_LIFE_H: Final = 84.0
"""After half a week an hour counts half: the last week is most of what is usual."""
RECENT_MIN, USUAL_MIN = 500, 2000
"""Requests without which there is no comparison: fewer differ by chance."""

LEAST: Final = 0.01
"""A bucket with less than this is forgotten."""


class ModelShapes:
    """Of one model. `usual`: the last days; `recent`: the hour that goes on, and the one before."""

    def __init__(self) -> None:
        self.usual: dict[str, Counts] = {kind: {} for kind in KINDS}
        self._now: dict[str, Counts] = {kind: {} for kind in KINDS}
        self._before: dict[str, Counts] = {kind: {} for kind in KINDS}

    def add(self, entry: Entry) -> None:
        """Count a request that has ended."""
        found = {ROWS: bucket(entry.rows), SIZES: bucket(entry.size), VARIANTS: entry.variant}
        for kind, key in found.items():
            if key:
                counts = self._now[kind]
                counts[key] = counts.get(key, 0.0) + 1.0

    def add_counts(self, more: Mapping[str, Counts]) -> None:
        """Add counts by kind and bucket."""
        for kind, counts in more.items():
            self._now[kind] = _sum(self._now[kind], counts)

    def turn(self) -> None:
        """Begin another hour."""
        fade = 0.5 ** (1 / HALF_LIFE_H)
        for kind in KINDS:
            faded = {key: count * fade for key, count in self.usual[kind].items()}
            usual = _sum(faded, self._before[kind])
            self.usual[kind] = {key: count for key, count in usual.items() if count > LEAST}
        self._before, self._now = self._now, {kind: {} for kind in KINDS}

    def shifts(self) -> dict[str, float]:
        """Return by kind how far the last hours are from the last days, where both have enough requests."""
        found = {}
        for kind in KINDS:
            recent = _sum(self._now[kind], self._before[kind])
            if sum(recent.values()) >= RECENT_MIN and sum(self.usual[kind].values()) >= USUAL_MIN:
                found[kind] = distance(self.usual[kind], recent)
        return found


def bucket(count: int) -> str:
    """Return the power of two that a count is within; "" for none."""
    return str(1 << (count - 1).bit_length()) if count > 0 else ""


def distance(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return the Jensen-Shannon distance of two counts (0: the same shares, 1: nothing in common; Endres and
    Schindelin, "A new metric for probability distributions", 2003)."""
    totals = sum(first.values()), sum(second.values())
    found = 0.0
    for key in first.keys() | second.keys():
        p, q = first.get(key, 0.0) / totals[0], second.get(key, 0.0) / totals[1]
        middle = (p + q) / 2
        found += sum(each * log2(each / middle) / 2 for each in (p, q) if each > 0)
    return sqrt(min(max(found, 0.0), 1.0))


def _sum(first: Mapping[str, float], second: Mapping[str, float]) -> Counts:
    return {key: first.get(key, 0.0) + second.get(key, 0.0) for key in _keys((first, second))}


def _keys(counts: Iterable[Mapping[str, float]]) -> Iterable[str]:
    return dict.fromkeys(key for each in counts for key in each)
