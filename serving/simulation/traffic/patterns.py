"""When requests are due: seeded random arrivals under a rate that changes in steps, or recorded instants.

Every pattern of rates is brought to steps: those that are written down, a Markov-modulated process (`mmpp`),
a day (`diurnal`), a crowd that comes at once (`flash`).

A renewal process of rate 1 is drawn once, then stretched so that its rate becomes the one asked for (time
rescaling, Cinlar 1975). So every pattern of rates can be had with every burstiness: a coefficient of
variation (CV) of the gaps of 1 is Poisson, 0 a metronome, 4 a burst that a Poisson model would hardly show.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import cos, exp, pi
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]
Generator = np.random.Generator

POISSON_CV = 1.0
_RECORDED = re.compile(r"(minutes|times)@(.+?)(?:@([0-9.]+))?$")
_SHAPE = re.compile(r"\s*([a-z]+)\((.*)\)\s*$")
_STEPS_A_PERIOD = 96  # of a day: quarters of an hour
_STEPS_A_SLOPE = 20
_DECAYED = 5  # time constants after which a crowd has left: 0.7 % of it are still there
_STEPS_MAX = 1_000_000
REQUESTS_MAX = 50_000_000  # some gigabytes of instants


_FLASH = MappingProxyType(
    {"peak": "peak", "at": "at_s", "ramp": "ramp_s", "hold": "hold_s", "decay": "decay_s"}
)
_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"mmpp": ("dwell",), "diurnal": ("peak", "period"), "flash": tuple(_FLASH)}
)
_NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType({"diurnal": ("peak", "period"), "flash": ("peak",)})
_FORMS: Mapping[str, str] = MappingProxyType(
    {
        "mmpp": "mmpp(50,400,dwell=2)",
        "diurnal": "diurnal(100,peak=300,period=60)",
        "flash": "flash(100,peak=10,at=5,hold=1)",
    }
)
_ANY_FORM = f"{_FORMS['mmpp']}, {_FORMS['diurnal']} or {_FORMS['flash']}"


@dataclass(frozen=True, slots=True)
class RateStep:
    """A rate, in requests a second, that holds for some seconds."""

    rate: float
    seconds: float

    def __post_init__(self) -> None:
        if not (0 <= self.rate < np.inf and 0 < self.seconds < np.inf):
            raise ValueError(f"a step needs a rate >= 0 and seconds > 0, got {self.rate:g}:{self.seconds:g}")


def draw(steps: Sequence[RateStep], cv: float, rng: Generator) -> Seconds:
    """Return due times in ascending order, from 0 to below the sum of the steps' seconds.

    `cv` is the gaps' coefficient of variation, while the rate holds: gamma gaps of shape 1/cv^2. Only the
    metronome (cv 0) starts half a gap in, so that a run of n gaps holds n arrivals.
    """
    counts = np.concatenate(([0.0], np.cumsum([step.rate * step.seconds for step in steps])))
    instants = np.concatenate(([0.0], np.cumsum([step.seconds for step in steps])))
    if counts[-1] > REQUESTS_MAX:
        raise ValueError(f"{counts[-1]:.2g} requests are too many for a run; at most {REQUESTS_MAX:,}")
    unit = _unit_arrivals(counts[-1], cv, rng)
    return np.interp(unit, counts, instants)


def _unit_arrivals(end: float, cv: float, rng: Generator) -> Seconds:
    """Return the arrivals of a renewal process of rate 1, below `end`."""
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


def due_times(pattern: str, seconds: float, cv: float, rng: Generator, scale: float = 1.0) -> Seconds:
    """Due times for a pattern as it is written on a command line; ValueError where it cannot be read.

    `scale` times as many a second: recorded instants come as much sooner, all others more often.

    `300`                 requests a second, for `seconds`
    `100:5+300:2.5`       a list of rate:seconds, one after the other
    `minutes@FILE`        one count of requests a minute per line: the rates are kept, the file is played in
                          `seconds`; with `@300` at the end, scaled so that their mean is 300 a second
    `times@FILE`          one instant in seconds per line, of any origin: every request is replayed, the
                          file's span becomes `seconds`
    `mmpp(50,400,dwell=2)`  rates that take turns at random, see `mmpp`; `dwell=10:2` gives each its own
    `diurnal(100,peak=300,period=60)`           see `diurnal`
    `flash(100,peak=10,at=5,ramp=0.5,hold=1,decay=1)`  see `flash`; only `peak` must be given
    """
    recorded = _RECORDED.match(pattern)
    if recorded is None:
        return draw(_scaled(_steps(pattern, seconds, rng), scale), cv, rng)
    kind, path, mean = recorded.groups()
    values = _read_numbers(Path(path))
    if kind == "minutes":
        return draw(_scaled(scale_minutes(values, seconds, float(mean) if mean else None), scale), cv, rng)
    if mean:
        raise ValueError(f"{pattern!r}: recorded times are replayed as they are; leave out '@{mean}'")
    return scale_times(values, seconds / scale)


def _scaled(steps: Sequence[RateStep], scale: float) -> list[RateStep]:
    return [RateStep(step.rate * scale, step.seconds) for step in steps]


def length_s(pattern: str, seconds: float) -> float:
    """Return how long a pattern lasts: steps say it themselves, all others take `seconds`."""
    if _RECORDED.match(pattern) or _SHAPE.match(pattern):
        return seconds
    return sum(step.seconds for step in read_steps(pattern, seconds))


def read_steps(pattern: str, seconds: float) -> list[RateStep]:
    """Return the steps of `300` or `100:5+300:2.5`."""
    try:
        parts = [[float(number) for number in part.split(":")] for part in pattern.split("+")]
        if len(parts) == 1 and len(parts[0]) == 1:
            return [RateStep(parts[0][0], seconds)]
        return [RateStep(rate, length) for rate, length in parts]
    except ValueError as error:
        raise ValueError(
            f"{pattern!r} is no rate; expected requests a second (300), steps of rate:seconds "
            f"(100:5+300:2.5), minutes@FILE, times@FILE, {_ANY_FORM} ({error})"
        ) from error


def mmpp(rates: Sequence[float], dwell_s: Sequence[float], seconds: float, rng: Generator) -> list[RateStep]:
    """Return the rates of a Markov-modulated Poisson process (Fischer and Meier-Hellstern 1993). Each rate
    holds for an exponential time of mean `dwell_s` (one for all, or one each), then any other takes its turn.

    It starts as it is in the long run: in a state with the share of time that this state has.
    """
    if len(rates) < 2:
        raise ValueError("mmpp takes two rates or more")
    dwells = [*dwell_s] * len(rates) if len(dwell_s) == 1 else [*dwell_s]
    if len(dwells) != len(rates) or not min(dwells) > 0:
        raise ValueError("mmpp takes one dwell above 0 s, or one for each rate (dwell=10:2)")
    _bound_steps(seconds / min(dwells))
    steps: list[RateStep] = []
    left_s = seconds
    state = int(rng.choice(len(rates), p=np.asarray(dwells) / sum(dwells)))
    while left_s > 0:
        held_s = min(float(rng.exponential(dwells[state])) + 1e-9, left_s)
        steps.append(RateStep(rates[state], held_s))
        left_s -= held_s
        state = (state + int(rng.integers(1, len(rates)))) % len(rates)
    return steps


def diurnal(low: float, peak: float, period_s: float, seconds: float) -> list[RateStep]:
    """Return a day: the rate swings between `low`, where it starts, and `peak` as a cosine of `period_s`."""
    if not (period_s > 0 and 0 <= low <= peak):
        raise ValueError("diurnal takes 0 <= low <= peak and a period above 0 s")
    length_s = period_s / _STEPS_A_PERIOD
    _bound_steps(seconds / length_s)

    def rate(at_s: float) -> float:
        return low + (peak - low) * (1 - cos(2 * pi * at_s / period_s)) / 2

    return _sampled(rate, 0.0, seconds, length_s)


@dataclass(frozen=True, slots=True)
class Flash:
    """A crowd that comes at once: from `at_s` on the rate climbs in `ramp_s` to `peak` times itself, stays
    for `hold_s`, and goes back with the time constant `decay_s`."""

    peak: float
    at_s: float = 5.0
    ramp_s: float = 0.5
    hold_s: float = 1.0
    decay_s: float = 1.0

    def __post_init__(self) -> None:
        times = (self.at_s, self.ramp_s, self.hold_s, self.decay_s)
        if not (self.peak >= 0 and min(times) >= 0):
            raise ValueError("flash takes a peak (times the rate), at, ramp, hold and decay of 0 or more")


def flash(rate: float, crowd: Flash, seconds: float) -> list[RateStep]:
    """Return a steady rate with a crowd in it."""
    extra = rate * (crowd.peak - 1)
    top_s = crowd.at_s + crowd.ramp_s
    ebb_s = top_s + crowd.hold_s
    end_s = ebb_s + _DECAYED * crowd.decay_s

    def climb(at_s: float) -> float:
        return rate + extra * (at_s - crowd.at_s) / crowd.ramp_s

    def ebb(at_s: float) -> float:
        return rate + extra * exp(-(at_s - ebb_s) / crowd.decay_s)

    steps = _sampled(lambda _: rate, 0.0, crowd.at_s, crowd.at_s)
    steps += _sampled(climb, crowd.at_s, top_s, crowd.ramp_s / _STEPS_A_SLOPE)
    steps += _sampled(lambda _: rate + extra, top_s, ebb_s, crowd.hold_s)
    steps += _sampled(ebb, ebb_s, end_s, _DECAYED * crowd.decay_s / _STEPS_A_SLOPE)
    steps += _sampled(lambda _: rate, end_s, max(seconds, end_s), max(seconds - end_s, 0.0))
    return _cut(steps, seconds)


def _sampled(rate: Callable[[float], float], start_s: float, end_s: float, length_s: float) -> list[RateStep]:
    """Return a rate over time in steps, each of the rate at its middle."""
    if not end_s > start_s:
        return []
    edges = np.linspace(start_s, end_s, max(round((end_s - start_s) / length_s), 1) + 1).tolist()
    return [RateStep(rate((low + high) / 2), high - low) for low, high in pairwise(edges)]


def _cut(steps: Sequence[RateStep], seconds: float) -> list[RateStep]:
    """Return the steps up to `seconds`."""
    kept: list[RateStep] = []
    for step in steps:
        if seconds <= 0:
            break
        kept.append(RateStep(step.rate, min(step.seconds, seconds)))
        seconds -= step.seconds
    return kept


def _bound_steps(count: float) -> None:
    if count > _STEPS_MAX:
        raise ValueError(f"the rate would change {count:.2g} times; at most {_STEPS_MAX} are played")


def _steps(pattern: str, seconds: float, rng: Generator) -> list[RateStep]:
    """Return the steps of a pattern that is not recorded."""
    shape = _SHAPE.match(pattern)
    if shape is None:
        return read_steps(pattern, seconds)
    name, inside = shape.groups()
    if name not in _FORMS:
        raise ValueError(f"{pattern!r} is no pattern; expected {_ANY_FORM}")
    try:
        rates, named = _arguments(inside, _KEYS[name])
        if name == "mmpp":
            return mmpp(rates, named.get("dwell", []), seconds, rng)
        if len(rates) != 1 or any(len(value) != 1 for value in named.values()):
            raise ValueError("it takes one rate, and one value for each name")
        single = {key: value for key, (value,) in named.items()}
        if missing := [key for key in _NEEDED[name] if key not in single]:
            raise ValueError(f"{' and '.join(missing)} must be given")
        if name == "diurnal":
            return diurnal(rates[0], single["peak"], single["period"], seconds)
        return flash(rates[0], Flash(**{_FLASH[key]: value for key, value in single.items()}), seconds)
    except ValueError as error:
        raise ValueError(f"{pattern!r}: {error}; expected something like {_FORMS[name]}") from None


def _arguments(inside: str, keys: Sequence[str]) -> tuple[list[float], dict[str, list[float]]]:
    """Return the rates, and what is given by name, in `50,400,dwell=10:2`."""
    rates: list[float] = []
    named: dict[str, list[float]] = {}
    for part in inside.split(","):
        key, sign, value = part.rpartition("=")
        numbers = [_finite(number) for number in value.split(":")]
        if not sign:
            rates += numbers
        elif key.strip() not in keys:
            raise ValueError(f"unknown {key.strip()!r}, it takes {', '.join(keys)}")
        else:
            named[key.strip()] = numbers
    return rates, named


def _finite(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not np.isfinite(number):
        raise ValueError(f"{text.strip()!r} is no number")
    return number


def scale_minutes(counts: Sequence[float], seconds: float, mean: float | None = None) -> list[RateStep]:
    """Return rates from requests a minute, a step each, played in `seconds`; scaled to a mean if one is
    given."""
    if not sum(counts) > 0:
        raise ValueError("a file of requests a minute needs at least one count above 0")
    factor = 1 / 60 if mean is None else mean * len(counts) / sum(counts)
    return [RateStep(count * factor, seconds / len(counts)) for count in counts]


def scale_times(instants: Sequence[float], seconds: float) -> Seconds:
    """Return recorded instants, sorted, moved to start at 0 and stretched to a span of `seconds`."""
    recorded = np.sort(np.asarray(instants, float))
    span = recorded[-1] - recorded[0]
    if span <= 0:
        raise ValueError("a file of recorded times needs at least two different instants")
    moved: Seconds = (recorded - recorded[0]) / span * seconds
    return moved


def _read_numbers(path: Path) -> list[float]:
    """Return the numbers of a file, one per line; empty lines and lines that start with # are passed over."""
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
