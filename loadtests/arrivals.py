"""When requests are due: seeded random arrivals under a rate that changes in steps, or recorded instants.

A renewal process of rate 1 is drawn once, then stretched so that its rate becomes the one asked for (time
rescaling). So every pattern of rates can be had with every burstiness: a coefficient of variation (CV) of the
gaps of 1 is Poisson, 0 a metronome, 4 a burst that a Poisson model would hardly ever show.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]

POISSON_CV = 1.0
_RECORDED = re.compile(r"(minutes|times)@(.+?)(?:@([0-9.]+))?$")


@dataclass(frozen=True, slots=True)
class Step:
    """A rate, in requests a second, that holds for some seconds."""

    rate: float
    seconds: float

    def __post_init__(self) -> None:
        if not (self.rate >= 0 and self.seconds > 0):
            raise ValueError(f"a step needs a rate >= 0 and seconds > 0, got {self.rate:g}:{self.seconds:g}")


def draw(steps: Sequence[Step], cv: float, rng: np.random.Generator) -> Seconds:
    """Due times in ascending order, from 0 to below the sum of the steps' seconds.

    `cv` is that of the gaps, while the rate holds: gamma gaps of shape 1/cv^2. Only the metronome (cv 0)
    starts half a gap in, so that a run of n gaps holds n arrivals.
    """
    counts = np.concatenate(([0.0], np.cumsum([step.rate * step.seconds for step in steps])))
    instants = np.concatenate(([0.0], np.cumsum([step.seconds for step in steps])))
    unit = _unit_arrivals(counts[-1], cv, rng)
    return np.interp(unit, counts, instants)


def _unit_arrivals(end: float, cv: float, rng: np.random.Generator) -> Seconds:
    """Arrivals of a renewal process of rate 1, below `end`."""
    if cv < 0:
        raise ValueError(f"the CV of the gaps cannot be below 0, got {cv:g}")
    if cv == 0:
        return np.arange(0.5, end, 1.0)
    found, last = [np.empty(0)], 0.0
    while last < end:
        size = int(end - last) + 64
        gaps = rng.exponential(size=size) if cv == POISSON_CV else rng.gamma(1 / cv**2, cv**2, size)
        found.append(last + np.cumsum(gaps))
        last = float(found[-1][-1])
    together = np.concatenate(found)
    return together[together < end]


def due_times(pattern: str, seconds: float, cv: float, rng: np.random.Generator) -> Seconds:
    """Due times for a pattern as it is written on a command line; ValueError where it cannot be read.

    `300`                 requests a second, for `seconds`
    `100:5+300:2.5`       a list of rate:seconds, one after the other
    `minutes@FILE`        one count of requests a minute per line: the rates are kept, the file is played in
                          `seconds`; with `@300` at the end, scaled so that their mean is 300 a second
    `times@FILE`          one instant in seconds per line, of any origin: every request is replayed, the
                          file's span becomes `seconds`
    """
    recorded = _RECORDED.match(pattern)
    if recorded is None:
        return draw(read_steps(pattern, seconds), cv, rng)
    kind, path, mean = recorded.groups()
    values = _read_numbers(Path(path))
    if kind == "minutes":
        return draw(scale_minutes(values, seconds, float(mean) if mean else None), cv, rng)
    if mean:
        raise ValueError(f"{pattern!r}: recorded times are replayed as they are; leave out '@{mean}'")
    return scale_times(values, seconds)


def length_s(pattern: str, seconds: float) -> float:
    """How long a pattern lasts: steps say it themselves, all others take `seconds`."""
    if _RECORDED.match(pattern):
        return seconds
    return sum(step.seconds for step in read_steps(pattern, seconds))


def read_steps(pattern: str, seconds: float) -> list[Step]:
    """The steps of `300` or `100:5+300:2.5`."""
    try:
        parts = [[float(number) for number in part.split(":")] for part in pattern.split("+")]
        if len(parts) == 1 and len(parts[0]) == 1:
            return [Step(parts[0][0], seconds)]
        return [Step(rate, length) for rate, length in parts]
    except ValueError as error:
        raise ValueError(
            f"{pattern!r} is no rate; expected requests a second (300), steps of rate:seconds "
            f"(100:5+300:2.5), minutes@FILE or times@FILE ({error})"
        ) from error


def scale_minutes(counts: Sequence[float], seconds: float, mean: float | None = None) -> list[Step]:
    """Requests a minute, one step each, played in `seconds`; rates scaled to a mean where one is given."""
    if not sum(counts) > 0:
        raise ValueError("a file of requests a minute needs at least one count above 0")
    factor = 1 / 60 if mean is None else mean * len(counts) / sum(counts)
    return [Step(count * factor, seconds / len(counts)) for count in counts]


def scale_times(instants: Sequence[float], seconds: float) -> Seconds:
    """Recorded instants, sorted, moved to start at 0 and stretched to a span of `seconds`."""
    recorded = np.sort(np.asarray(instants, float))
    span = recorded[-1] - recorded[0]
    if span <= 0:
        raise ValueError("a file of recorded times needs at least two different instants")
    moved: Seconds = (recorded - recorded[0]) / span * seconds
    return moved


def _read_numbers(path: Path) -> list[float]:
    """One number per line; empty lines and those that start with # are passed over."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error
    numbers = []
    for count, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            numbers.append(float(text))
        except ValueError:
            raise ValueError(f"{path}:{count}: expected one number per line, got {text[:40]!r}") from None
    if not numbers:
        raise ValueError(f"{path} holds no numbers")
    return numbers
