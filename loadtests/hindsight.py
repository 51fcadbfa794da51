"""What other latency estimates would have said of batches that have been run.

All follow serving/policy/latency.py (a prior, times a quantile of what batches took against theirs); they
differ in what the prior knows of a batch and in which batches share a window. What a batch's padded tokens
account for is fitted: what is left over then is the machine's own unsteadiness, and no estimate's fault.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadtests.report import percentiles
from serving.policy.latency import Residuals
from serving.profile.curve import Curve, Profile

WANTED = {"p50": 50.0, "p95": 95.0, "p99": 99.0}
UNLEARNT = 20  # batches before an estimate's own residuals count; not judged


@dataclass(frozen=True, slots=True)
class Padded:
    """A batch and the texts in it: `size` their bucket and `largest` the size hint of the largest;
    `padded` its tokens and `tokens` those that are no padding. Microseconds: what was planned with, what
    the worker computed for, dispatch to result."""

    size: int
    rows: int
    largest: int
    padded: int
    tokens: int
    predicted_us: float
    compute_us: int
    elapsed_us: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """`prior_us`: what a batch should take before anything was learnt; `window`: which share residuals."""

    name: str
    prior_us: Callable[[Padded], float]
    window: Callable[[Padded], Hashable]


@dataclass(frozen=True, slots=True)
class Error:
    """Of an estimate over some batches. `late`: the share that took longer than planned with; `reserved`:
    time planned with over time taken, in all. `spread`: p95 over p50 of what the padded tokens account for
    over the prior, which no factor can mend. `noise`: the same of compute over what they account for."""

    batches: int
    planned: dict[str, float]  # elapsed over planned with
    typical: dict[str, float]  # compute over what it takes as a rule
    late: float
    reserved: float
    spread: float
    noise: float


def estimates(profile: Profile, by_tokens: Callable[[Padded], float]) -> list[Estimate]:
    """The one that is used, and three others; the last, `fit_tokens`, knows what nobody knows beforehand."""
    curves = profile.curves()

    def of_bucket(batch: Padded) -> float:
        return curves[batch.size].at(batch.rows)

    def of_largest(batch: Padded) -> float:
        return between(curves, batch.largest, batch.rows)

    return [
        Estimate("bucket", of_bucket, lambda _: 0),
        Estimate("bucket, a window each", of_bucket, lambda batch: batch.size),
        Estimate("largest size hint", of_largest, lambda _: 0),
        Estimate("padded tokens, fitted", by_tokens, lambda _: 0),
    ]


def between(curves: dict[int, Curve], size: float, rows: int) -> float:
    """Latency at a size between those that were measured, on the line through its neighbours; below the
    smallest on the first two, never less than half of the smallest's."""
    sizes = sorted(curves)
    if len(sizes) == 1:
        return curves[sizes[0]].at(rows)
    place = min(max(int(np.searchsorted(sizes, size)), 1), len(sizes) - 1)
    low, high = sizes[place - 1], sizes[place]
    at_low, at_high = curves[low].at(rows), curves[high].at(rows)
    found = at_low + (at_high - at_low) * (min(size, sizes[-1]) - low) / (high - low)
    return max(found, curves[sizes[0]].at(rows) / 2)


def fit_tokens(batches: Sequence[Padded]) -> Callable[[Padded], float]:
    """Relative least squares of compute over rows, padded tokens and the square of those in a row."""

    def terms(batch: Padded) -> list[float]:
        each = batch.padded / batch.rows
        return [1.0, batch.rows, batch.padded, batch.padded * each]

    taken = np.asarray([batch.compute_us for batch in batches], float)
    known = np.asarray([terms(batch) for batch in batches])
    factors = np.linalg.lstsq(known / taken[:, None], np.ones(len(taken)), rcond=None)[0]
    return lambda batch: float(np.dot(terms(batch), factors))


def replay(estimate: Estimate, batches: Sequence[Padded]) -> npt.NDArray[np.float64]:
    """(what would have been planned with, what it would have called typical, the prior) of each batch."""
    residuals: dict[Hashable, Residuals] = {}
    found = []
    for batch in batches:
        known = residuals.setdefault(estimate.window(batch), Residuals())
        prior_us = estimate.prior_us(batch)
        found.append((prior_us * known.kappa + known.overhead_us, prior_us * known.typical, prior_us))
        known.add(prior_us, batch.compute_us, batch.elapsed_us)
    return np.asarray(found)


def judge(
    batches: Sequence[Padded], said: npt.NDArray[np.float64], by_tokens: Callable[[Padded], float]
) -> Error:
    """The error over these batches; `said` as `replay` gives it, for the same ones."""
    elapsed = np.asarray([batch.elapsed_us for batch in batches], float)
    compute = np.asarray([batch.compute_us for batch in batches], float)
    due = np.asarray([by_tokens(batch) for batch in batches])
    planned, typical, prior = said.T
    return Error(
        len(batches), percentiles(elapsed / planned, WANTED), percentiles(compute / typical, WANTED),
        late=float((elapsed > planned).mean()), reserved=float(planned.sum() / elapsed.sum()),
        spread=_spread(due / prior), noise=_spread(compute / due),
    )  # fmt: skip


def _spread(ratios: npt.NDArray[np.float64]) -> float:
    found = percentiles(ratios, WANTED)
    return found["p95"] / found["p50"]
