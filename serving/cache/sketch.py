"""A count of how often each key was asked for recently, in a fixed number of one-byte counters.

It is a count-min sketch with minimal increments; each sample halves its counters. TinyLFU: Einziger, Friedman
and Manes, ACM Transactions on Storage 13(4), 2017, sections 3.2 and 3.3.
"""

from collections.abc import Callable
from struct import Struct

COUNT_MAX = 15  # four samples without an ask forget a key (Caffeine counts in 4 bits)

_HALVES = bytes(count >> 1 for count in range(256))
_PLACES: Callable[[bytes], tuple[int, int, int, int]] = Struct(
    "<4I"
).unpack_from  # a digest is uniform: its own words are the hashes


class Sketch:
    """Counts of keys of 16 or more uniform bytes, in one-byte `counters` (rounded up to a power of two).

    `added`: asks since the last sample, with the half that the sample left over.
    """

    __slots__ = ("_counts", "_mask", "added")

    def __init__(self, counters: int) -> None:
        size = 1 << max(counters - 1, 0).bit_length()
        self._counts = bytearray(size)
        self._mask = size - 1
        self.added = 0

    def add(self, key: bytes) -> None:
        """Count an ask for the key."""
        counts, mask = self._counts, self._mask
        a, b, c, d = _PLACES(key)
        a, b, c, d = a & mask, b & mask, c & mask, d & mask
        least = min(counts[a], counts[b], counts[c], counts[d])
        self.added += 1
        if least == COUNT_MAX:
            return
        for place in (a, b, c, d):
            if counts[place] == least:
                counts[place] = least + 1

    def estimate(self, key: bytes) -> int:
        """Return how often the key was asked for.

        The estimate is never too low (up to COUNT_MAX and the halvings), and rarely too high.
        """
        counts, mask = self._counts, self._mask
        a, b, c, d = _PLACES(key)
        return min(counts[a & mask], counts[b & mask], counts[c & mask], counts[d & mask])

    def halve(self) -> None:
        """End a sample: all earlier asks count half from now on."""
        self._counts = self._counts.translate(_HALVES)
        self.added >>= 1
