"""Profiles from a handful of points and what was measured of other models: which point next, and the rest.

The aim is Morphling's (SoCC 2021: near the best of 720 configurations after 30), the means a regression of
log latency. Of two the one with the lesser leave-one-out error is taken:
- `ensemble`: the mean of the other surfaces, corrected along the ways in which they differ from it (their
  empirical covariance is the prior, as in an ensemble Kalman filter; G. Evensen, JGR 99, 1994);
- `law`: without others, latency = a + b rows, of either a part serial, a part divided by the share (Amdahl).
What is left is a Gaussian process over log share and log rows, so that the prediction goes through what was
measured, and its error grows with the distance from it (Rasmussen, Williams, 2006: 2.7, 5.4.2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import erfc, exp, inf, log, sqrt
from statistics import median

import numpy as np

from serving.profile.curve import Origin, Point, Profile
from serving.profile.derived.nonnegative import Floats, nonnegative_least_squares
from serving.profile.derived.surface import Place, Surface
from serving.values.slice_specs import Share

Known = tuple[float, int, float]
"""A measured point: amount of share, rows, latency in microseconds."""

LEVEL = 2.0  # all in log latency: one model may well be e² = 7 times as slow as another
SLOPE, SLOPE_BY_LAW = 0.1, 0.3
LOCAL, LOCAL_BY_LAW = 0.12, 0.3
REACH = (0.7, 1.4)
"""Over a factor 2 in share, or 4 in rows, deviations are alike. These four were chosen, of a few, by the
leave-one-model-out error on ParvaGPU's A100 profiles."""
NOISE = 0.02  # how well a median of some tens of runs repeats
FLOOR = 0.05
"""No prediction is called better than that, however well it agrees with its points."""
FEW = 4
"""With fewer points than the law has terms, or all on one share or of one batch, it is asked only where there
is nothing else: how well it agrees with them says nothing of the rest."""
CERTAIN = 1000.0
"""Where the two contradict each other, what was predicted yields to what was measured, not the other way."""
DOUBT = 4.0  # points' worth of belief in the errors above, before the leave-one-out errors scale them

RUNS = 30
OVERHEAD_US = 4e6
"""What measuring a point takes: runs of the batch, and around them warming up, settling, the yardstick."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """`surface`: latencies at the places asked for and at the measured ones, monotone.

    `error`: relative standard error of a place that was not measured (root mean square), at least 0.05;
    `errors`: the same by place; `by`: "ensemble" or "law".
    """

    surface: Surface
    error: float
    errors: Mapping[Place, float]
    by: str


@dataclass(frozen=True, slots=True)
class _Guess:
    """Log latency and its variance at each place; how far off it is at each measured one without it, and the
    sum of their squares, each over its variance."""

    by: str
    level: Floats
    variance: Floats
    missed: Floats
    surprise: float

    @property
    def loss(self) -> float:
        return float((self.missed**2).mean())

    @property
    def deviation(self) -> Floats:
        """Standard deviations: larger than expected where the leave-one-out errors are."""
        scale = (DOUBT + self.surprise) / (DOUBT + len(self.missed))
        found: Floats = np.sqrt(self.variance * scale)
        return found


def predict(
    points: Sequence[Known], references: Sequence[Surface], places: Sequence[Place], kind: str
) -> Predicted:
    """Return the latencies at `places` (amount, rows) of a variant, predicted from its measured `points`.

    `references`: surfaces of other models, or of the same one elsewhere, over the same `kind` of share.
    Surfaces that do not reach over all the amounts asked for are left out. Raises ValueError without a point.
    """
    if not points:
        raise ValueError("a prediction needs at least one measured point")
    everywhere, seen, values = _laid_out(points, places)
    guess = _best(everywhere, seen, values, references)
    level = guess.level.copy()
    level[seen] = values
    deviation = guess.deviation
    weights = 1 / (deviation**2 + NOISE**2)
    weights[seen] = CERTAIN / NOISE**2
    cells = {
        place: (exp(each), float(weight))
        for place, each, weight in zip(everywhere, level, weights, strict=True)
    }
    errors = {place: max(float(each), FLOOR) for place, each in zip(everywhere, deviation, strict=True)}
    open_to = [errors[place] for index, place in enumerate(everywhere) if index not in set(seen)] or [FLOOR]
    error = sqrt(sum(each**2 for each in open_to) / len(open_to))
    return Predicted(Surface.through(kind, cells), error, errors, guess.by)


def next_point(
    points: Sequence[Known],
    references: Sequence[Surface],
    places: Sequence[Place],
    limit_us: float = inf,
) -> Place | None:
    """Return the place of `places` to measure next, None if all were measured.

    It has the largest expected improvement in throughput per share for the time of measuring it. (Expected
    improvement per second: J. Snoek et al., NIPS 2012, 3.2.) A batch above `limit_us` has no value. First
    comes the smallest batch on the largest share: it is within the limit if anything is.
    """
    left = sorted(set(places) - {(amount, rows) for amount, rows, _ in points})
    if not left or not points:
        return max(left, key=lambda place: (place[0], -place[1]), default=None)
    worth = [rows * 1e6 / (us * amount) for amount, rows, us in points if us <= limit_us]
    everywhere, seen, values = _laid_out(points, left)
    guess = _best(everywhere, seen, values, references)
    gains: dict[Place, float] = {}
    for (amount, rows), level, deviation in zip(everywhere, guess.level, guess.deviation, strict=True):
        spread = max(float(deviation), NOISE)
        expected = log(rows * 1e6 / amount) - float(level)
        fits = 1.0 if limit_us == inf else _below((log(limit_us) - float(level)) / spread)
        seconds = OVERHEAD_US + RUNS * exp(float(level))
        gains[amount, rows] = expected_improvement(max(worth, default=0.0), expected, spread) * fits / seconds
    return max(left, key=lambda place: gains[place])


def predicted_profile(
    predictions: Mapping[int, Predicted], share: Share, pattern: Profile, references: Sequence[Profile]
) -> Profile:
    """Return the profile of a share that was not measured, marked by its error; a measurement takes its
    place.

    `predictions` by size bucket; ValueError where none reaches over the share's amount. `pattern`: what was
    measured of that variant on another share of that device, for all that is no latency. The upper quantiles
    are the medians times the median ratio of theirs in `pattern` and `references`.
    """
    measured = [point for profile in (pattern, *references) for point in profile.points]
    p95 = median(point.p95_us / point.p50_us for point in measured)
    p99 = median([point.p99_us / point.p50_us for point in measured if point.p99_us] or [0.0])
    points = []
    for size, predicted in sorted(predictions.items()):
        surface = predicted.surface
        low, high = surface.rows_at(share.amount) or (1, 0)
        for rows in (rows for rows in surface.rows if low <= rows <= high):
            p50_us = surface.latency_us(share.amount, rows)
            p99_us = p50_us * max(p95, p99) if p99 else 0.0
            points.append(Point(size, rows, p50_us, p50_us * p95, 1, p99_us))
    if not points:
        raise ValueError(f"nothing is predicted for {share}")
    error = max(predicted.error for predicted in predictions.values())
    origin = Origin(
        pattern.origin.measured, machine=pattern.origin.machine, build=pattern.origin.build, error=error
    )
    return replace(pattern, points=tuple(points), share=share, source="", warm_us=0, origin=origin)


def _laid_out(points: Sequence[Known], places: Sequence[Place]) -> tuple[list[Place], list[int], Floats]:
    """Return all places, ascending; the indices of the measured ones, and the log latency there."""
    measured = {(amount, rows): latency_us for amount, rows, latency_us in points}
    everywhere = sorted(measured.keys() | set(places))
    seen = [index for index, place in enumerate(everywhere) if place in measured]
    return everywhere, seen, np.log([measured[everywhere[index]] for index in seen])


def _best(
    everywhere: Sequence[Place], seen: Sequence[int], values: Floats, references: Sequence[Surface]
) -> _Guess:
    """Return the guess with the least leave-one-out error."""
    around = np.log(np.array(everywhere, dtype=np.float64))
    logs = [found for each in references if (found := _extended(each, everywhere)) is not None]
    guesses = [_by_ensemble(around, np.array(logs), seen, values)] if logs else []
    spread = min(len({everywhere[index][axis] for index in seen}) for axis in (0, 1))
    if not guesses or (len(seen) >= FEW and spread > 1):
        guesses.append(_by_law(everywhere, around, seen, values))
    return min(guesses, key=lambda guess: guess.loss)


def _by_ensemble(around: Floats, logs: Floats, seen: Sequence[int], values: Floats) -> _Guess:
    mean = logs.mean(axis=0)
    ways = (logs - mean) / sqrt(max(len(logs) - 1, 1))
    return _kriged("ensemble", mean, _prior(around, SLOPE, LOCAL) + ways.T @ ways, seen, values)


def _by_law(everywhere: Sequence[Place], around: Floats, seen: Sequence[int], values: Floats) -> _Guess:
    """Return the guess by the law. Its leave-one-out errors are of the law fitted without the point, too."""
    prior = _prior(around, SLOPE_BY_LAW, LOCAL_BY_LAW)
    guess = _kriged("law", _law(everywhere, seen, values), prior, seen, values)
    if len(seen) == 1:
        return guess
    missed, variances = [], []
    for left_out, index in enumerate(seen):
        others, rest = [each for each in seen if each != index], np.delete(values, left_out)
        without = _kriged("law", _law(everywhere, others, rest), prior, others, rest)
        missed.append(values[left_out] - without.level[index])
        variances.append(without.variance[index] + NOISE**2)
    errors = np.array(missed)
    return replace(guess, missed=errors, surprise=float((errors**2 / variances).sum()))


def _law(everywhere: Sequence[Place], seen: Sequence[int], values: Floats) -> Floats:
    """Log of a + b rows + c / share + d rows / share, none negative: the least relative error at the seen."""
    terms = np.array([(1.0, rows, 1 / amount, rows / amount) for amount, rows in everywhere])
    relative = terms[seen] / np.exp(values)[:, None]
    scale = relative.mean(axis=0)
    ridge = NOISE * np.eye(len(scale))  # what the points leave open is divided evenly among the terms
    columns = np.vstack([relative / scale, ridge])
    wanted = np.concatenate([np.ones(len(values)), np.zeros(len(scale))])
    found: Floats = np.log(terms @ (nonnegative_least_squares(columns, wanted) / scale))
    return found


def _prior(around: Floats, slope: float, local: float) -> Floats:
    """Return the covariance of the log latencies' deviation from a mean: level, slopes, and locally."""
    centred = around - around.mean(axis=0)
    apart = (((around[:, None, :] - around[None, :, :]) / REACH) ** 2).sum(axis=-1)
    found: Floats = LEVEL**2 + slope**2 * (centred @ centred.T) + local**2 * np.exp(-apart / 2)
    return found


def _kriged(by: str, mean: Floats, prior: Floats, seen: Sequence[int], values: Floats) -> _Guess:
    """Return the posterior given `values` at the `seen`; leave-one-out errors in closed form."""
    covariance: Floats = prior[np.ix_(seen, seen)] + NOISE**2 * np.eye(len(seen))
    inverse = np.linalg.inv(covariance)
    across = prior[:, seen]
    pull = inverse @ (values - mean[seen])
    variance = np.diag(prior) - np.einsum("ij,jk,ik->i", across, inverse, across)
    missed = pull / np.diag(inverse)
    return _Guess(by, mean + across @ pull, np.maximum(variance, 0.0), missed, float((pull * missed).sum()))


def _extended(surface: Surface, places: Sequence[Place]) -> Floats | None:
    """Log latency of a reference; beyond its batches a row costs what it costs there, as in `Curve`. None
    where it does not reach over the amounts."""
    found = []
    for amount, rows in places:
        known = surface.rows_at(amount)
        if known is None:
            return None
        inside = min(max(rows, known[0]), known[1])
        found.append(log(surface.latency_us(amount, inside)) + log(max(rows / known[1], 1.0)))
    return np.array(found)


def expected_improvement(best: float, expected: float, spread: float) -> float:
    """Return the mean of what a lognormal value is above `best` (else 0); `expected`, `spread`: of its
    logarithm."""
    mean = exp(expected + spread**2 / 2)
    if best <= 0:
        return mean
    ahead = (expected - log(best)) / spread
    return mean * _below(ahead + spread) - best * _below(ahead)


def _below(deviations: float) -> float:
    """Return the part of a normal distribution below `deviations` standard deviations above its mean."""
    return erfc(-deviations / sqrt(2)) / 2
