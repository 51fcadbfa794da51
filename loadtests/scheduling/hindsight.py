"""What other latency estimates would have said of batches that have been run.

All follow serving/policy/estimates/latency.py (a prior, times a quantile of what batches took against
theirs); they differ in what the prior knows of a batch and in which batches share a window. What a batch's
padded tokens account for is fitted: what is left over then is the machine's own unsteadiness, and no
estimate's fault.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadtests.harness.report import percentiles
from serving.policy.estimates.latency import Residuals
from serving.profile.curve import Profile
from serving.profile.derived.latency import Latency

WANTED = {"p50": 50.0, "p95": 95.0, "p99": 99.0}
UNLEARNT = 20  # batches before an estimate's own residuals count; not judged


@dataclass(frozen=True, slots=True)
class Padded:
    """A batch and the texts in it: `bucket` theirs and `largest` the size hint of the largest, as decisions
    see it; `padded` its tokens and `tokens` those that are no padding. Microseconds: as in `Batch`."""

    bucket: int
    rows: int
    largest: int
    padded: int
    tokens: int
    predicted_us: float
    typical_us: float
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
    """Return the estimate in use and three others. The last, `fit_tokens`, knows what the gateway cannot know
    beforehand."""
    latency = Latency(profile)

    def of_bucket(batch: Padded) -> float:
        return latency.predict_us(batch.rows, batch.bucket)

    def of_largest(batch: Padded) -> float:
        return latency.predict_us(batch.rows, batch.largest)

    return [
        Estimate("largest size hint", of_largest, lambda _: 0),
        Estimate("bucket", of_bucket, lambda _: 0),
        Estimate("bucket, a window each", of_bucket, lambda batch: batch.bucket),
        Estimate("padded tokens, fitted", by_tokens, lambda _: 0),
    ]


def fit_tokens(batches: Sequence[Padded]) -> Callable[[Padded], float]:
    """Fit the compute time by relative least squares, over the rows, the padded tokens and the square of the
    tokens in a row."""

    def terms(batch: Padded) -> list[float]:
        each = batch.padded / batch.rows
        return [1.0, batch.rows, batch.padded, batch.padded * each]

    taken = np.asarray([batch.compute_us for batch in batches], float)
    known = np.asarray([terms(batch) for batch in batches])
    factors = np.linalg.lstsq(known / taken[:, None], np.ones(len(taken)), rcond=None)[0]
    return lambda batch: float(np.dot(terms(batch), factors))


def replay(estimate: Estimate, batches: Sequence[Padded]) -> npt.NDArray[np.float64]:
    """Return (what would have been planned with, what it would have called typical, the prior) of each
    batch."""
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
    """Return the error over these batches; `said` as `replay` gives it, for the same ones."""
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
