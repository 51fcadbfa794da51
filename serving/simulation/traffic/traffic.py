"""What the requests are: how many rows, of which size, for which model; and the streams of all models as one.

`patterns` says when requests come. All of it is drawn from a generator that is passed in: the same seed gives
the same requests.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt

from serving.simulation.traffic.arrivals import Arrival
from serving.simulation.traffic.patterns import Generator, Seconds
from serving.values.specs import DEFAULT_TENANT, SizeHint

Whole = npt.NDArray[np.int64]
_CALL = re.compile(r"(uniform|tail)\(([^()]*)\)$")
_VALUE_MAX = 1_000_000
_FORMS = "a number (4), uniform(1,8), tail(64) or shares such as 1:0.9+16:0.1"


@dataclass(frozen=True, slots=True)
class Mix:
    """Whole numbers and how often each is drawn; `shares` need not add up to 1. ValueError where there is
    nothing to draw."""

    values: tuple[int, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values or len(self.values) != len(self.shares):
            raise ValueError(f"a mix needs a share for each value, got {self.values} and {self.shares}")
        if not (min(self.shares) >= 0 and 0 < sum(self.shares) < np.inf):
            raise ValueError("shares must be at least 0, and one of them above")

    @property
    def mean(self) -> float:
        """The mean of what is drawn."""
        return float(np.average(self.values, weights=self.shares))

    def draw(self, count: int, rng: Generator) -> Whole:
        """Return `count` values, independent of each other."""
        values = np.asarray(self.values, np.int64)
        if len(values) == 1:
            return np.full(count, values[0])
        sums = np.cumsum(self.shares)
        return values[np.searchsorted(sums / sums[-1], rng.random(count), side="right")]


def constant(value: int) -> Mix:
    """Return a mix that always has the same value."""
    return Mix((value,), (1.0,))


def uniform(low: int, high: int) -> Mix:
    """Return a mix of `low` to `high`, each as often."""
    if low > high:
        raise ValueError(f"expected the smaller number first, got {low} and {high}")
    return Mix(tuple(range(low, high + 1)), (1.0,) * (high - low + 1))


def long_tailed(high: int, exponent: float = 2.0) -> Mix:
    """Return a mix of 1 to `high` by a power law: most values are small, few are large (the share of k is
    proportional to k^-exponent)."""
    values = tuple(range(1, high + 1))
    return Mix(values, popularity(high, exponent))


def popularity(count: int, exponent: float) -> tuple[float, ...]:
    """Return shares by Zipf's law: the k-th most popular of `count` is asked for k^-exponent as often as the
    first.

    For web objects and models an exponent of 0.6 to 1.1 is reported; 0 makes all alike.
    """
    shares = np.arange(1, count + 1, dtype=float) ** -exponent
    return tuple((shares / shares.sum()).tolist())


def read_mix(text: str) -> Mix:
    """Return the mix that a text describes: `4`; `uniform(1,8)`; `tail(64)` or `tail(64,1.5)`
    (`long_tailed`); `1:0.9+16:0.1`, values with shares.

    Raises ValueError, in a sentence, for anything else.
    """
    try:
        call = _CALL.match(text.strip())
        if call is None:
            pairs = [part.partition(":") for part in text.split("+")]
            shares = tuple(float(share) if sign else 1.0 for _, sign, share in pairs)
            return Mix(tuple(_whole(value) for value, _, _ in pairs), shares)
        name, numbers = call.group(1), call.group(2).split(",")
        if name == "uniform":
            low, high = numbers
            return uniform(_whole(low), _whole(high))
        return long_tailed(_whole(numbers[0]), *map(float, numbers[1:2]))
    except ValueError as error:
        raise ValueError(f"{text!r} is no mix; expected {_FORMS} ({error})") from None


def _whole(text: str) -> int:
    value = int(text)
    if not 1 <= value <= _VALUE_MAX:
        raise ValueError(f"{value} is not within 1 to {_VALUE_MAX}")
    return value


Sizes = tuple[Mix, SizeHint]
"""What is drawn, and how decisions see it."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests of one tenant for the model of this number, which ask for one tier. `at_us` ascends; `rows`,
    `sizes` (of the largest row, 0 for a model without) and `buckets` (of these; 0 where a size is its own)
    are as long."""

    model: int
    at_us: Whole
    rows: Whole
    sizes: Whole
    buckets: Whole
    tenant: str = DEFAULT_TENANT
    tier: str = ""

    def part(self, chosen: npt.NDArray[np.bool_], tier: str) -> "Stream":
        """Return the chosen requests, which ask for this tier."""
        at_us, rows, sizes, buckets = (
            each[chosen] for each in (self.at_us, self.rows, self.sizes, self.buckets)
        )
        return Stream(self.model, at_us, rows, sizes, buckets, self.tenant, tier)


def stream(
    model: int, due_s: Seconds, rows: Mix, sizes: Sizes | None, rng: Generator, tenant: str = DEFAULT_TENANT
) -> Stream:
    """Return requests at these seconds, with rows and sizes drawn from their mixes. No instant is before 1
    us: at 0 the models come up."""
    at_us = np.maximum((due_s * 1e6).astype(np.int64), 1)
    count = len(at_us)
    seen = buckets = np.zeros(count, np.int64)
    if sizes is not None:
        mix, hint = sizes
        seen, buckets = places_of(hint, mix.draw(count, rng))
    return Stream(model, at_us, rows.draw(count, rng), seen, buckets, tenant)


def places_of(hint: SizeHint, sizes: Whole) -> tuple[Whole, Whole]:
    """Return (sizes as decisions see them, their buckets)."""
    values, which = np.unique(sizes, return_inverse=True)
    places = np.array([hint.place(value) for value in values.tolist()], np.int64).reshape(-1, 2)
    return places[which, 0], places[which, 1]


def merge(streams: Sequence[Stream]) -> Iterator[Arrival]:
    """Yield all streams as one, in the order of time, ties in the order of the streams."""
    if not streams:
        return iter(())
    at_us = np.concatenate([each.at_us for each in streams])
    order = np.argsort(at_us, kind="stable")
    counts = [len(each.at_us) for each in streams]
    owners = np.repeat(np.arange(len(streams)), counts)[order].tolist()
    models = [each.model for each in streams]
    tenants = [each.tenant for each in streams]
    tiers = [each.tier for each in streams]
    return map(
        Arrival,
        at_us[order].tolist(),
        [models[owner] for owner in owners],
        np.concatenate([each.rows for each in streams])[order].tolist(),
        repeat(None),
        [tenants[owner] for owner in owners],
        np.concatenate([each.sizes for each in streams])[order].tolist(),
        repeat(""),
        repeat(False),
        np.concatenate([each.buckets for each in streams])[order].tolist(),
        [tiers[owner] for owner in owners],
    )
