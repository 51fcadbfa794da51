"""The latency surface of a variant over batch and share: what was measured, made monotone, with residuals.

More rows never take less time and more share never more; a measurement that says so is noise (on ParvaGPU's
A100 profiles 22 of 315 steps up in size lose over 2 % of throughput). The fit is the isotonic regression over
both axes in log latency: the nearest surface in weighted least squares that is monotone. It is found by
alternating pool-adjacent-violators with Dykstra's corrections (R. L. Dykstra, T. Robertson, "An algorithm for
isotonic regression for two or more independent variables", Annals of Statistics 10(3), 1982).

Between the measured points the surface is bilinear in log rows, log share and log latency; it is never
extended beyond them. Not every share has every batch (memory runs out, or the SLO), so what was measured is
no rectangle: between two shares there are only the rows that both have.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf, log

from serving.profile.curve import Profile, isotonic

SOUND = 0.15
"""Where a point is further off the fit, the measurement should be repeated, not trusted."""
ROUNDS = 300
SETTLED = 1e-9  # in log latency: a millionth of a per cent
FILLED = 1e-3
"""Weight, in runs, of a batch that one share has and its neighbour has only on both sides of it."""

Place = tuple[float, int]
"""Amount of share, rows."""
Grid = dict[Place, float]


@dataclass(frozen=True, slots=True)
class Residual:
    """A measured point beside what the surface says of it."""

    amount: float
    rows: int
    measured_us: float
    fitted_us: float

    @property
    def ratio(self) -> float:
        """Measured over fitted."""
        return self.measured_us / self.fitted_us

    @property
    def deviation(self) -> float:
        """How far off in either direction, relative: 0.1 for both 1.1 and 1/1.1."""
        return max(self.ratio, 1 / self.ratio) - 1


@dataclass(frozen=True, slots=True)
class Surface:
    """`amounts` ascending; for each of them a curve: rows ascending, with the fitted log latency (us)."""

    kind: str
    amounts: tuple[float, ...]
    curves: tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]
    residuals: tuple[Residual, ...]

    @staticmethod
    def of(profiles: Sequence[Profile], size: int) -> "Surface":
        """Return the surface of one variant's profiles: one kind of share, amounts ascending, at one size
        bucket.

        Shares that have no point of that size are left out. ValueError where none has one, and where the
        profiles are not of one kind, of one number of processes, and of another amount each.
        """
        shares = [profile.share for profile in profiles]
        if len({(each.share.kind, each.share.processes) for each in profiles}) > 1:
            raise ValueError(
                f"one kind of share and one number of processes make a surface, not {_names(shares)}"
            )
        if any(left.amount >= right.amount for left, right in pairwise(shares)):
            raise ValueError(f"the shares of a surface must ascend in their amounts: {_names(shares)}")
        points = [
            (each.share.amount, point) for each in profiles for point in each.points if point.size == size
        ]
        if not points:
            raise ValueError(f"no point of size {size} on {_names(shares) or 'no share'}")
        measured = {(amount, point.rows): (point.p50_us, float(point.count)) for amount, point in points}
        return Surface.through(shares[0].kind, measured)

    @staticmethod
    def through(kind: str, measured: Mapping[Place, tuple[float, float]]) -> "Surface":
        """Return the surface nearest to `measured`, latency (us) and weight by place. ValueError where
        empty."""
        if not measured:
            raise ValueError("a surface needs at least one measured point")
        amounts = tuple(sorted({amount for amount, _ in measured}))
        fitted = _monotone(*_grid(amounts, measured))
        curves = []
        for amount in amounts:
            rows = tuple(sorted(each for owner, each in fitted if owner == amount))
            curves.append((rows, tuple(fitted[amount, each] for each in rows)))
        residuals = tuple(
            Residual(amount, rows, latency_us, exp(fitted[amount, rows]))
            for (amount, rows), (latency_us, _) in sorted(measured.items())
        )
        return Surface(kind, amounts, tuple(curves), residuals)

    @property
    def rows(self) -> tuple[int, ...]:
        """Every batch that was measured on some share, ascending."""
        return tuple(sorted({residual.rows for residual in self.residuals}))

    @property
    def worst(self) -> Residual:
        """The measured point that is furthest off."""
        return max(self.residuals, key=lambda residual: residual.deviation)

    @property
    def sound(self) -> bool:
        """Whether every measured point is within 15 % of the fit."""
        return self.worst.deviation <= SOUND

    def rows_at(self, amount: float) -> tuple[int, int] | None:
        """Return the smallest and the largest batch known at that amount, None beyond the measured
        amounts."""
        around = self._around(amount)
        if around is None:
            return None
        low = max(self.curves[place][0][0] for place in around)
        high = min(self.curves[place][0][-1] for place in around)
        return (low, high) if low <= high else None

    def latency_us(self, amount: float, rows: int) -> float:
        """Return the latency of a batch, microseconds. Raises ValueError beyond what was measured, which
        names the range."""
        known, around = self.rows_at(amount), self._around(amount)
        if known is None or around is None or not known[0] <= rows <= known[1]:
            asked = f"{self.kind}:{amount:g} with {rows} rows"
            raise ValueError(f"{asked} is beyond what was measured: {self._region(known)}")
        left, right = around
        low, high = self._log_us(left, rows), self._log_us(right, rows)
        if left == right:
            return exp(low)
        across = log(amount / self.amounts[left]) / log(self.amounts[right] / self.amounts[left])
        return exp(low + (high - low) * across)

    def throughput(self, amount: float, rows: int) -> float:
        """Return the rows per second of a share that is never idle. Raises ValueError as `latency_us`
        does."""
        return rows * 1e6 / self.latency_us(amount, rows)

    def rows_within(self, amount: float, budget_us: float) -> int:
        """Return the largest batch known at that amount that takes at most `budget_us`; 0 where there is
        none."""
        known = self.rows_at(amount)
        if known is None:
            return 0
        low, high = known
        fitting = bisect_right(
            range(low, high + 1), budget_us, key=lambda rows: self.latency_us(amount, rows)
        )
        return low + fitting - 1 if fitting else 0

    def _around(self, amount: float) -> tuple[int, int] | None:
        """Return the places of the measured amounts on both sides, the same twice where it is one of them."""
        right = bisect_left(self.amounts, amount)
        if right == len(self.amounts) or amount < self.amounts[0]:
            return None
        return (right, right) if self.amounts[right] == amount else (right - 1, right)

    def _log_us(self, place: int, rows: int) -> float:
        known, levels = self.curves[place]
        right = bisect_left(known, rows)
        if known[right] == rows:
            return levels[right]
        along = log(rows / known[right - 1]) / log(known[right] / known[right - 1])
        return levels[right - 1] + (levels[right] - levels[right - 1]) * along

    def _region(self, known: tuple[int, int] | None) -> str:
        if known:
            return f"there {known[0]} to {known[1]} rows"
        ranges = zip(self.amounts, self.curves, strict=True)
        each = (f"{amount:g} with {rows[0]} to {rows[-1]} rows" for amount, (rows, _) in ranges)
        return f"{self.kind}:" + ", ".join(each)


def _names(shares: Sequence[object]) -> str:
    return ", ".join(str(share) for share in shares)


def _grid(amounts: Sequence[float], measured: Mapping[Place, tuple[float, float]]) -> tuple[Grid, Grid]:
    """Log latency and weight at every measured batch of every share that has it or batches on both sides of
    it: only where neighbours have the same batches is the surface between them as monotone as they are."""
    everywhere = sorted({rows for _, rows in measured})
    values: Grid = {}
    weights: Grid = {}
    for amount in amounts:
        own = sorted(rows for owner, rows in measured if owner == amount)
        for rows in everywhere[everywhere.index(own[0]) : everywhere.index(own[-1]) + 1]:
            right = bisect_left(own, rows)
            high_us, weight = measured[amount, own[right]]
            values[amount, rows], weights[amount, rows] = log(high_us), weight
            if own[right] != rows:
                low_us = measured[amount, own[right - 1]][0]
                along = log(rows / own[right - 1]) / log(own[right] / own[right - 1])
                values[amount, rows] = log(low_us) + log(high_us / low_us) * along
                weights[amount, rows] = FILLED
    return values, weights


def _monotone(values: Grid, weights: Grid) -> Grid:
    """Return the nearest grid that does not fall along rows nor rise along amounts."""
    ways = [_chains(values, over_rows=True), _chains(values, over_rows=False)]
    owed: list[Grid] = [dict.fromkeys(values, 0.0) for _ in ways]
    fitted = dict(values)
    for _ in range(ROUNDS):
        before = dict(fitted)
        for chains, debt in zip(ways, owed, strict=True):
            asked = {place: fitted[place] + debt[place] for place in fitted}
            for chain in chains:
                levels = isotonic([asked[place] for place in chain], [weights[place] for place in chain])
                fitted.update(zip(chain, levels, strict=True))
            debt.update((place, asked[place] - fitted[place]) for place in fitted)
        if max(abs(fitted[place] - before[place]) for place in fitted) < SETTLED:
            break
    return _raised(fitted)


def _chains(places: Grid, over_rows: bool) -> list[list[Place]]:
    """Return the places in the order in which latency may only rise: along rows, or from the largest amount
    down."""
    chains: dict[float, list[Place]] = {}
    for amount, rows in sorted(places, key=lambda place: (-place[0], place[1])):
        chains.setdefault(amount if over_rows else rows, []).append((amount, rows))
    return list(chains.values())


def _raised(fitted: Grid) -> Grid:
    """Return the grid made exactly monotone, as the rounds only converge: no latency is less than for smaller
    batches or larger shares."""
    return {
        (amount, rows): max(
            (level for (owner, fewer), level in fitted.items() if owner >= amount and fewer <= rows),
            default=-inf,
        )
        for amount, rows in fitted
    }
