"""How well each member would have foretold what has come, at the horizon that is asked for now.

A member is asked at each of the latest bins for the largest level of the next 1, 2, 3, 4, 6, ... bins. How
far it was off is what it may be off by now, in the median and at the 95th percentile, and the pinball loss
of that is what it is judged by. Those times count that are recent, and those at which the load was as it is
now: a model that wakes up every hour is foretold with no error or a large one, and both have their time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from serving.policy.forecasting.ewma import averages
from serving.policy.forecasting.member import ForecastInput, Member
from serving.policy.forecasting.quantiles import LEVELS, Array, Index, pinball, weighted_quantiles

ORIGINS = 400  # of the latest bins: those before have a tenth of the weight
ORIGINS_MIN = 4  # a horizon that fewer times lie behind is judged as the longest that more do
ERRORS_BINS = 120  # half-life of an error: some 170 count, eight of them beyond the 95th percentile
LOSSES_BINS = 40  # half-life of a loss: the best member may change sooner
SPAN = 2.0  # horizons, at least, are half a life of an error
OVERLAP = 0.5  # of the bins of a horizon: windows so far from each other count as two
LEVEL_MAX = 0.98
"""Beyond it a few errors would decide. Of what came, the two leave up to 3 % more below the high quantile, at
no more pinball loss (`python -m loadtests.scaling.forecasts`, over 60 and 180 s)."""
EVENT_BINS = 12  # and a horizon: what is off within that is off once, which is no law
ALIKE = 0.5  # standard deviations of the history: as different as that, and a time counts 0.6
ANY = 0.02  # of the weight of a time that is alike is that of any other
STATE = 0.5  # weight of the newest bin in what the load "is now"
PRIOR = 0.12  # of a level, 25 % of a rate: how far off an untested forecast may be


@dataclass(frozen=True, slots=True)
class Backtest:
    """`now`: the largest levels that the members foretell for the next 1, 2, 3, ... bins (member, bin).

    At each of `horizons`, in bins: their errors at each of LEVELS (level, member, horizon), to be added to
    what they foretell, and their mean loss (member, horizon), 0 where nothing is known of any.
    """

    now: Array
    horizons: Index
    errors: Array
    losses: Array


def backtest(series: ForecastInput, members: Sequence[Member], bins: int) -> Backtest:
    """Return the backtest of all members, for the next 1 to `bins` bins."""
    levels = series.levels
    number = len(levels)
    origins = np.arange(max(number - ORIGINS, 0), number)
    horizons = _steps(min(bins, max(number - ORIGINS_MIN - series.period, 1)))
    largest = [np.maximum.accumulate(member(series, origins, bins), axis=1) for member in members]
    now = np.stack([each[-1] for each in largest])
    errors = _largest(levels, origins, horizons) - np.stack([each[:, horizons - 1].T for each in largest])
    known = np.isfinite(errors)
    errors[~known] = 0.0
    ages = number - 1 - origins
    alike = known * _alike(levels)[origins]
    lives = np.maximum(1.0, SPAN * horizons / ERRORS_BINS)[:, None]
    found = _quantiles(errors, alike * 0.5 ** (ages / lives / ERRORS_BINS), now[:, horizons - 1], horizons)
    losses = _losses(errors, alike * 0.5 ** (ages / lives / LOSSES_BINS), found)
    return Backtest(now, horizons, found, losses)


def _steps(bins: int) -> Index:
    """Return 1, 2, 3, 4, 6, 8, 12, ... up to `bins`: horizons between two of them are taken for the
    shorter."""
    found = {step for power in range(bins.bit_length()) for step in (2**power, 3 * 2**power)}
    return np.array(sorted(step for step in found if step <= bins), np.intp)


def _largest(levels: Array, origins: Index, horizons: Index) -> Array:
    """Return the largest level within each horizon after each origin; NaN if that horizon is not over."""
    padded = np.concatenate((levels, np.full(int(horizons[-1]), np.nan)))
    windows = np.lib.stride_tricks.sliding_window_view(padded[1:], int(horizons[-1]))[origins]
    found: Array = np.maximum.accumulate(windows, axis=1)[:, horizons - 1].T
    return found


def _alike(levels: Array) -> Array:
    """Return how much each time is like now: by a normal kernel over levels (Nadaraya, 1964; Watson,
    1964)."""
    spread = ALIKE * float(levels.std())
    if spread <= 1e-9 * float(levels.max()):
        return np.ones(len(levels))
    state = averages(levels, STATE)
    found: Array = ANY + np.exp(-0.5 * ((state - state[-1]) / spread) ** 2)
    return found


def _losses(errors: Array, weights: Array, quantiles: Array) -> Array:
    """Return the mean pinball loss of the members, corrected by these quantiles of their errors."""
    loss = sum(pinball(errors - quantiles[place][..., None], level) for place, level in enumerate(LEVELS))
    total = weights.sum(axis=-1)
    found: Array = np.divide(
        (weights * loss).sum(axis=-1), total, out=np.zeros(total.shape), where=total > 0.0
    )
    return found


def _quantiles(errors: Array, weights: Array, foretold: Array, horizons: Index) -> Array:
    """Return the median and the high quantile of the errors of members (member, horizon, origin). The high
    quantile leaves out the event that made it, if there was only one. A crowd that came once is no law, and
    its cost should not be kept for as long as it is remembered.

    Among n errors is one that has not been seen, of weight 1 / (1 + n). It is PRIOR of what is foretold more,
    less and none, a third each.
    """
    unseen = PRIOR * np.abs(foretold)[..., None] * np.array([-1.0, 0.0, 1.0])
    samples = np.concatenate((errors, unseen), axis=-1)
    order = np.argsort(samples, axis=-1)
    found = _read(samples, order, weights, horizons)
    others = weights * ~_once((weights > 0.0) & (errors >= found[-1][..., None]), horizons)
    enough = others.sum(axis=-1) >= 0.5 * weights.sum(axis=-1)
    without = _read(samples, order, others, horizons)[-1]
    found[-1] = np.where(enough, np.maximum(np.minimum(found[-1], without), found[0]), found[-1])
    return found


def _once(high: npt.NDArray[np.bool_], horizons: Index) -> npt.NDArray[np.bool_]:
    """Return what lies around the errors that are `high` (member, horizon, origin), if one event made them
    all. It did if they are near enough to each other."""
    number = high.shape[-1]
    first, last = high.argmax(axis=-1)[..., None], number - 1 - high[..., ::-1].argmax(axis=-1)[..., None]
    near, at = (horizons + EVENT_BINS)[:, None], np.arange(number)
    lone: npt.NDArray[np.bool_] = (last - first <= near) & (at >= last - near) & (at <= first + near)
    return lone


def _read(samples: Array, order: Index, weights: Array, horizons: Index) -> Array:
    """Return the quantiles, with the weights of all but the last three samples.

    Of n errors the high quantile is read at (n + 1) / n of its level, by which a new one is below it as often
    as the level says (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005).
    """
    apart = np.maximum(1.0, OVERLAP * horizons)
    high = np.minimum(LEVELS[-1] * (1.0 + 1.0 / (1.0 + weights.sum(axis=-1) / apart)), LEVEL_MAX)
    number = np.count_nonzero(weights, axis=-1)
    unseen = np.repeat(1.0 / 3.0 / (1.0 + number)[..., None], 3, axis=-1)
    every = np.concatenate((weights, unseen), axis=-1)
    return weighted_quantiles(samples, order, every, (np.full_like(high, LEVELS[0]), high))
