"""Inputs out of seeds: flips, splices, lies about lengths, words of a format, repeats, limits, nesting.

Each is a change that found faults in parsers before (M. Zalewski, "american fuzzy lop", technical details:
deterministic steps, dictionaries and splices). A seed and a number make the same inputs in every process.
"""

import random
import re
from collections.abc import Callable, Sequence
from typing import Final

BYTES_MAX: Final = 1 << 16
"""Of an input: what costs more than its bytes has to show by then."""
CHANGES_MAX: Final = 6
AS_IT_IS: Final = 0.02  # of the inputs are seeds as they are: they keep the way to what is deep open

LIMITS: Final = tuple(
    sorted({sign * (1 << bits) + by for bits in (0, 7, 8, 15, 16, 31, 32, 53, 63, 64) for sign in (-1, 1)
            for by in (-1, 0, 1)})
)  # fmt: skip
"""Numbers beside which counters and types end."""
TEXTS: Final = (b"1e999", b"-0", b"1.5", b"NaN", b"Infinity", b"null", b"true", b"9" * 400, b"9" * 5000, b"")
NESTS: Final = ((b"[", b"]"), (b'{"a":', b"}"), (b"{", b"}"), (b'"', b'"'), (b"- ", b""))
_NUMBER = re.compile(rb"\d+")

Change = Callable[["Mutator", bytes], bytes]


class Mutator:
    """Makes inputs of `seeds` and `words`, all of them from `chance`."""

    def __init__(self, seeds: Sequence[bytes], words: Sequence[bytes], chance: random.Random) -> None:
        self.seeds = seeds
        self.words = words
        self.chance = chance

    def next(self) -> bytes:
        """Return a seed with some changes, of at most BYTES_MAX bytes."""
        data = self.chance.choice(self.seeds)
        if self.chance.random() < AS_IT_IS:
            return data
        for _ in range(self.chance.randint(1, CHANGES_MAX)):
            data = self.chance.choice(CHANGES)(self, data)[:BYTES_MAX]
        return data

    def place(self, data: bytes) -> int:
        """Return a random place in the data, its end included."""
        return self.chance.randint(0, len(data))

    def stretch(self, data: bytes) -> tuple[int, int]:
        """Return a part of it, most often a short one."""
        start = self.place(data)
        longest = self.chance.choice((1, 4, 16, 64, len(data)))
        return start, min(len(data), start + self.chance.randint(0, longest))


def _flip_bit(self: Mutator, data: bytes) -> bytes:
    if not data:
        return data
    at = self.chance.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << self.chance.randrange(8),)) + data[at + 1 :]


def _put_byte(self: Mutator, data: bytes) -> bytes:
    if not data:
        return data
    at = self.chance.randrange(len(data))
    value = self.chance.choice((0, 1, 0x7F, 0x80, 0xFF, 10, 13, 32, 34, self.chance.randrange(256)))
    return data[:at] + bytes((value,)) + data[at + 1 :]


def _cut(self: Mutator, data: bytes) -> bytes:
    start, end = self.stretch(data)
    return data[:start] + data[end:]


def _end_early(self: Mutator, data: bytes) -> bytes:
    return data[: self.place(data)]


def _repeat(self: Mutator, data: bytes) -> bytes:
    start, end = self.stretch(data)
    times = self.chance.choice((2, 3, 17, 65, 1000))
    return data[:start] + data[start:end] * times + data[end:]


def _splice(self: Mutator, data: bytes) -> bytes:
    other = self.chance.choice(self.seeds)
    return data[: self.place(data)] + other[self.place(other) :]


def _borrow(self: Mutator, data: bytes) -> bytes:
    other = self.chance.choice(self.seeds)
    start, end = self.stretch(other)
    at, until = self.stretch(data)
    return data[:at] + other[start:end] + data[until:]


def _put_word(self: Mutator, data: bytes) -> bytes:
    if not self.words:
        return data
    start, end = self.stretch(data)
    return (
        data[:start] + self.chance.choice(self.words) + data[end if self.chance.random() < 0.5 else start :]
    )


def _swap_words(self: Mutator, data: bytes) -> bytes:
    """Replace one word of the format by another: the meaning changes, the form does not."""
    there = [word for word in self.words if word and word in data]
    if not there:
        return data
    word = self.chance.choice(there)
    return data.replace(word, self.chance.choice(self.words), self.chance.choice((1, -1)))


def _lie(self: Mutator, data: bytes) -> bytes:
    """Return a number at a limit where a binary length may stand."""
    width = self.chance.choice((1, 2, 4, 8))
    if len(data) < width:
        return data
    at = self.chance.randint(0, len(data) - width)
    order = self.chance.choice(("little", "big"))
    was = int.from_bytes(data[at : at + width], order)  # type: ignore[arg-type]  # one of the two
    value = self.chance.choice((*LIMITS, was + 1, was - 1, was * 2, len(data)))
    packed = (value % (1 << 8 * width)).to_bytes(width, order)  # type: ignore[arg-type]
    return data[:at] + packed + data[at + width :]


def _lie_in_text(self: Mutator, data: bytes) -> bytes:
    """Return a number at a limit, or what is no number, where one is written out."""
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    at = self.chance.choice(found)
    value = int(at[0]) if len(at[0]) < 20 else 0
    number = b"%d" % self.chance.choice((*LIMITS, value + 1, value - 1, value * 2, 4096, 65536, 1_000_000))
    text = number if self.chance.random() < 0.7 else self.chance.choice(TEXTS)
    return data[: at.start()] + text + data[at.end() :]


def _nest(self: Mutator, data: bytes) -> bytes:
    start, end = self.stretch(data)
    opening, closing = self.chance.choice(NESTS)
    depth = self.chance.choice((1, 2, 31, 33, 1000, 20_000))
    return data[:start] + opening * depth + data[start:end] + closing * depth + data[end:]


CHANGES: Final[tuple[Change, ...]] = (
    _flip_bit, _put_byte, _cut, _end_early, _repeat, _splice, _borrow, _put_word, _swap_words, _lie,
    _lie_in_text, _lie_in_text, _nest,
)  # fmt: skip
