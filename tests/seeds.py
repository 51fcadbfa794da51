"""Which random worlds a run of the tests plays.

`make test` plays a part of them from a base that differs with each commit. `make night` plays all of them.
pytest prints the base; PENSTOCK_SEED_BASE plays the same worlds again, at any commit.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar
from zlib import crc32

from hypothesis import settings

WITHOUT_GIT = 23
PART = 50
DAILY = 6
"""`make test` draws one of so many examples of a property that `make night` draws."""

TURN = 100
"""A test that takes turns has the same one for so many bases: the cases that it plays (`some`) do not hang on
its turn."""

T = TypeVar("T")


def _base() -> int:
    """Return the first of the seeds: a number made from the commit that is checked out."""
    asked = ["git", "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return WITHOUT_GIT
    return int(answer.stdout[:7], 16)


BASE = int(os.environ.get("PENSTOCK_SEED_BASE") or _base())
TENTHS = int(os.environ.get("PENSTOCK_SEEDS", "1"))
"""How many tenths of the seeds this run plays."""
IS_NIGHT = TENTHS >= 10

os.environ["PENSTOCK_SEED_BASE"] = str(BASE)  # the processes that share a run play the same worlds


def examples(night: int) -> int:
    """Return how many examples a test plays that plays `night` of them in `make night`."""
    return max(night * TENTHS // 10, 1)


def rotating(night: int) -> settings:
    """Return the settings of a Hypothesis test that draws other examples at each commit."""
    return settings(max_examples=examples(night), deadline=None, derandomize=False)


def drawn(night: int) -> int:
    """Return how many examples Hypothesis draws for a test that draws `night` of them in `make night`."""
    return max(night // DAILY, examples(night))


def some(every: Sequence[T], daily: int = 1) -> Sequence[T]:
    """Return every case in `make night`, and `daily` of them in `make test`: other ones at each commit."""
    if IS_NIGHT:
        return every
    first = BASE % len(every)
    return [*every[first:], *every[:first]][:daily]


def is_turn(name: str, turns: int) -> bool:
    """Return whether this run plays a test that `make test` plays at one commit in `turns`."""
    return IS_NIGHT or (crc32(name.encode()) + BASE // TURN) % turns == 0


def seeds(night: int) -> range:
    """Return the seeds of a test that plays `night` of them in `make night`."""
    return range(BASE, BASE + examples(night))


def parts(night: int, size: int = PART) -> Sequence[range]:
    """Return `seeds(night)` in parts, so that several processes can share them."""
    every = seeds(night)
    return [every[first : first + size] for first in range(0, len(every), size)]


def told() -> str:
    """Return the line that says how to repeat this run."""
    return f"seeds: {TENTHS}/10 of them; again: PENSTOCK_SEED_BASE={BASE} PENSTOCK_SEEDS={TENTHS} pytest ..."
