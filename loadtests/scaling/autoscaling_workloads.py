"""What is asked of a model whose replicas follow its load: rates over half an hour, and how bursty."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from serving.simulation.traffic.patterns import (
    Flash,
    Generator,
    RateStep,
    Seconds,
    diurnal,
    draw,
    flash,
    mmpp,
)

SETTLE_S, LENGTH_S = 180.0, 1800.0
"""Before anything counts replicas find their number; then it lasts two compressed days."""
HOUR_S = 3600.0  # of sparse loads: in half an hour there are few bursts
MEAN = 60.0  # rows a second: what four or five replicas carry
CODE_MEAN = 15.0
SPARSE_MEAN = 2.6  # requests a second: Azure's code completion as it was recorded
DATA = "PENSTOCK_DATA"

Rates = Callable[[Generator], Sequence[RateStep]]


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of `rows` each: `rates` of them once settled, from what it settled at; `cv` of the gaps while
    a rate holds. `slow`: of a model that computes a sixth as much."""

    name: str
    what: str
    rates: Rates
    cv: float = 1.0
    rows: int = 1
    slow: bool = False
    length_s: float = LENGTH_S

    def instants(self, seed: int, share: float = 1.0) -> Seconds:
        """Return when requests come, from the first `share` of the workload's length."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        steps = [*self.rates(rng)]
        kept = draw([RateStep(steps[0].rate, SETTLE_S), *steps], self.cv, rng)
        return kept[kept < SETTLE_S + self.length_s * share]


def _constant(_rng: Generator) -> Sequence[RateStep]:
    return [RateStep(MEAN, LENGTH_S)]


def _days(_rng: Generator) -> Sequence[RateStep]:
    return diurnal(0.4 * MEAN, 1.6 * MEAN, LENGTH_S / 2, LENGTH_S)


def _step(_rng: Generator) -> Sequence[RateStep]:
    low = MEAN / 2
    return [RateStep(low, LENGTH_S / 3), RateStep(3 * low, LENGTH_S / 3), RateStep(low, LENGTH_S / 3)]


def _ramp(_rng: Generator) -> Sequence[RateStep]:
    low, up = MEAN * 2 / 3, [RateStep(MEAN * 2 / 3 * (1 + (second + 0.5) / 60), 1.0) for second in range(60)]
    third = LENGTH_S / 3
    return [
        RateStep(low, third),
        *up,
        RateStep(2 * low, third - 60),
        *reversed(up),
        RateStep(low, third - 60),
    ]


def _flash(_rng: Generator) -> Sequence[RateStep]:
    crowd = Flash(peak=10, at_s=LENGTH_S / 3, ramp_s=5, hold_s=1, decay_s=120)
    return flash(MEAN * 0.4, crowd, LENGTH_S)


def _on_off(rng: Generator) -> Sequence[RateStep]:
    return mmpp((MEAN / 6, MEAN * 11 / 6), (30.0,), LENGTH_S, rng)


def _code(rng: Generator) -> Sequence[RateStep]:
    return _completions(CODE_MEAN, LENGTH_S, rng)


def _sparse(rng: Generator) -> Sequence[RateStep]:
    return _completions(SPARSE_MEAN, HOUR_S, rng)


def _sessions(rng: Generator) -> Sequence[RateStep]:
    """Return bursts: a rate of 0 for 45 s in the mean, then of 4 * SPARSE_MEAN for 15 s."""
    return mmpp((0.0, 4 * SPARSE_MEAN), (45.0, 15.0), HOUR_S, rng)


def _completions(mean: float, length_s: float, rng: Generator) -> Sequence[RateStep]:
    """Return seconds on and off in turns: 73 % are empty, the fullest has 26 times the mean, gaps have a CV
    of 13. So is the code trace of Azure's LLM service of 2023 (Patel et al., ISCA 2024;
    AzurePublicDataset)."""
    on_s, off_s, sigma, second = 3.2, 8.7, 0.55, 0.0
    steps: list[RateStep] = []
    while second < length_s:
        for mean_s, level in ((off_s, 0.0), (on_s, mean * (on_s + off_s) / on_s)):
            for _ in range(int(rng.geometric(1 / mean_s))):
                spread = float(np.exp(sigma * rng.standard_normal() - sigma**2 / 2))
                steps.append(RateStep(level * spread, 1.0))
                second += 1
    return steps


def _conversation(rng: Generator) -> Sequence[RateStep]:
    """Return steps with gaps of CV 1.09, under a rate that wanders by a fifth: the conversation trace of the
    same service."""
    wander, steps = 0.0, []
    for _ in range(int(LENGTH_S / 10)):
        wander = 0.9 * wander + 0.2 * float(np.sqrt(1 - 0.9**2) * rng.standard_normal())
        steps.append(RateStep(MEAN * float(np.exp(wander)), 10.0))
    return steps


def _recorded(_rng: Generator) -> Sequence[RateStep]:
    """Return the conversation trace itself, its rates over ten seconds as much higher as the mean here is."""
    path = Path(os.environ[DATA], "traces", "azure_llm_conv_2023.csv")
    times = np.loadtxt(path, delimiter=",", skiprows=1, usecols=0, dtype="datetime64[us]")
    at_s = (times - times[0]).astype(float) / 1e6
    counts = np.bincount((at_s / 10).astype(int))[: int(LENGTH_S / 10)]
    return [RateStep(float(each), 10.0) for each in counts * MEAN / counts.mean()]


_ALL = (
    Workload("constant", "60 rows/s, Poisson", _constant),
    Workload("diurnal", "24 to 96 rows/s and back, twice", _days),
    Workload("step", "30 rows/s, three times that for ten minutes", _step),
    Workload("ramp", "40 rows/s, in a minute twice that for ten minutes", _ramp),
    Workload("flash", "24 rows/s, ten times that within 5 s, gone by a time constant of 120 s", _flash),
    Workload("cv4", "60 rows/s, gamma gaps of CV 4", _constant, 4.0),
    Workload("cv8", "60 rows/s, gamma gaps of CV 8", _constant, 8.0),
    Workload("on_off", "10 and 110 rows/s in turns, for 30 s in the mean (MMPP)", _on_off),
    Workload("code", "15 rows/s, as Azure's code completion: three of four seconds are empty", _code),
    Workload("sparse", "2.6 rows/s as code completion, of a slow model", _sparse, slow=True, length_s=HOUR_S),
    Workload("sparse_rows", "2.6 requests/s of 6 rows as code completion", _sparse, rows=6, length_s=HOUR_S),
    Workload(
        "sessions",
        "2.6 rows/s, all in a quarter of the time, of a slow model",
        _sessions,
        slow=True,
        length_s=HOUR_S,
    ),
    Workload("conversation", "60 rows/s, as Azure's conversations", _conversation, 1.09),
)
_RECORDED = Workload("recorded", "60 rows/s, the rates of Azure's conversations", _recorded, 1.09)
WORKLOADS: Mapping[str, Workload] = MappingProxyType(
    {each.name: each for each in (*_ALL, *((_RECORDED,) if DATA in os.environ else ()))}
)
"""By name; what was recorded only where the variable DATA names the folder of traces."""
