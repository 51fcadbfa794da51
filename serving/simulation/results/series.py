"""What a report needs of a run: how each request ended and what each batch was, as columns; and the figures
and the course over the seconds that follow from them.

While a run goes on, an event costs a few appends; everything else is numpy's, afterwards.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from serving.scheduler.commands import Answer, RunBatch
from serving.simulation.devices.device import BatchDevice, BatchTimes
from serving.simulation.devices.faults import Fault
from serving.simulation.devices.site import Site
from serving.simulation.engine import Simulation
from serving.simulation.results.answered import Answered, Noted
from serving.values.vocabulary import ALL_OUTCOMES, COMPLETED, Kind

IN_TIME, LATE = "in time", "late"
ENDINGS = (IN_TIME, LATE, *(each.reason.value for each in ALL_OUTCOMES if each is not COMPLETED))
"""How requests end, from the view of who asked."""
REFUSED = frozenset(each.reason.value for each in ALL_OUTCOMES if each.kind is Kind.REJECTED)
SHED = frozenset(each.reason.value for each in ALL_OUTCOMES if each.kind is Kind.SHED)

BINS_MIN, BINS_MAX = 10, 60
_BIN_S_MIN = 0.1
_BIN_REQUESTS = 10  # on average: percentiles of fewer say nothing

Whole = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_CODES = {each: ENDINGS.index(each.reason.value) for each in ALL_OUTCOMES if each is not COMPLETED}


@dataclass(frozen=True, slots=True)
class Columns:
    """A run. Of each request: when it came, how long until it ended, its model's number, its ending (index
    into ENDINGS). Of each batch: its model's number, rows, slice's number, start, time of compute."""

    at_us: Whole
    wait_us: Whole
    model: Whole
    ending: Whole
    batch_model: Whole
    batch_rows: Whole
    batch_slice: Whole
    batch_start_us: Whole
    batch_us: Whole


class Chronicle(Simulation):
    """A simulation that keeps what happens; `columns` and `by_variant` are for after `play`. `epoch_us`: the
    instant that they call 0."""

    def __init__(self, site: Site, device: BatchDevice, faults: Sequence[Fault] = ()) -> None:
        self._model_numbers = {model.name: number for number, model in enumerate(site.served)}
        self._slice_numbers = {name: number for number, name in enumerate(site.slices)}
        self._noted = Noted(site.served)
        self._requests = tuple(array("q") for _ in range(4))
        self._batches = tuple(array("q") for _ in range(5))
        self.epoch_us = 0
        self.broken: list[Fault] = [*faults]
        super().__init__(site, device, faults)

    def answered(self, answer: Answer, now_us: int) -> None:
        """Note that a request ended."""
        request, outcome = answer.request, answer.outcome
        at_us, wait_us, model, ending = self._requests
        at_us.append(request.arrived_us - self.epoch_us)
        wait_us.append(now_us - request.arrived_us)
        model.append(self._model_numbers[request.model])
        ending.append(int(now_us > request.deadline_us) if outcome is COMPLETED else _CODES[outcome])
        self._noted.answer(answer, self.parts_of(answer), self.epoch_us)

    def take(self, batch: RunBatch, start_us: int, running: int) -> BatchTimes:
        """Note that a batch starts."""
        start_us -= self.epoch_us
        taken = super().take(batch, start_us, running)
        model, rows, slice_number, start, compute_us = self._batches
        model.append(self._model_numbers[batch.model])
        rows.append(batch.rows)
        slice_number.append(self._slice_numbers[batch.slice])
        start.append(start_us)
        compute_us.append(taken.compute_us)
        self._noted.batch(batch, start_us)
        return taken

    def columns(self) -> Columns:
        """Return what happened so far."""
        return Columns(*(np.asarray(kept, np.int64) for kept in (*self._requests, *self._batches)))

    def by_variant(self) -> Answered:
        """Return which variants answered so far."""
        return self._noted.columns()


@dataclass(frozen=True, slots=True)
class Span:
    """What counts: requests that come, and slices' time, from `start_us` until before `end_us`."""

    start_us: int
    end_us: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_us - self.start_us) / 1e6


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One model, or all together, over `seconds` of all runs. `endings`: requests by how they ended; p50 and
    p99 in milliseconds, of answers, nan where there is none; `batch_rows`: mean rows of a batch; `busy`: the
    share of the slices' time in which they compute for it; `device_s`: that time, of all slices together, in
    seconds; `by_run`: each run's attainment."""

    offered: int
    endings: dict[str, int]
    seconds: float
    p50_ms: float
    p99_ms: float
    batches: int
    batch_rows: float
    busy: float
    device_s: float
    by_run: tuple[float, ...]

    @property
    def attainment(self) -> float:
        """The share of requests answered in time; nan where none came."""
        return self.share(IN_TIME)

    @property
    def goodput(self) -> float:
        """Requests answered in time, a second."""
        return self.endings.get(IN_TIME, 0) / self.seconds

    @property
    def device_s_per_million(self) -> float:
        """Seconds that slices compute for a million requests answered in time; nan where none was."""
        good = self.endings.get(IN_TIME, 0)
        return self.device_s / good * 1e6 if good else np.nan

    @property
    def offered_rate(self) -> float:
        """Requests a second."""
        return self.offered / self.seconds

    def share(self, *endings: str) -> float:
        """Return the share of requests that ended so; nan where none came."""
        return sum(self.endings.get(each, 0) for each in endings) / self.offered if self.offered else np.nan


@dataclass(frozen=True, slots=True)
class RunSeries:
    """A run over time, in bins of equal length; requests belong where they came, batches where they start.

    `offered`, `in_time`: requests a second; latencies in milliseconds, and the mean rows of batches, are nan
    where a bin has none."""

    start_s: tuple[float, ...]
    bin_s: float
    offered: tuple[float, ...]
    in_time: tuple[float, ...]
    p50_ms: tuple[float, ...]
    p99_ms: tuple[float, ...]
    batch_rows: tuple[float, ...]


def figures(runs: Sequence[Columns], model: int | None, slices: int, span: Span) -> RunFigures:
    """Return the figures of a model (None: of all) that is on `slices` slices, over runs with unlike
    seeds."""
    counted = [(run, _ours(run.model, model) & _within(run.at_us, span)) for run in runs]
    codes = np.concatenate([run.ending[chosen] for run, chosen in counted])
    counts = np.bincount(codes, minlength=len(ENDINGS)).tolist()
    waits_ms = np.concatenate([run.wait_us[chosen & (run.ending <= 1)] for run, chosen in counted]) / 1000
    p50_ms, p99_ms = _percentiles(waits_ms)
    rows = np.concatenate(
        [run.batch_rows[_ours(run.batch_model, model) & _within(run.batch_start_us, span)] for run in runs]
    )
    busy_us = sum(float(_overlap_us(run, span)[_ours(run.batch_model, model)].sum()) for run in runs)
    seconds = span.seconds * len(runs)
    return RunFigures(
        offered=len(codes),
        endings={name: count for name, count in zip(ENDINGS, counts, strict=True) if count},
        seconds=seconds,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        batches=len(rows),
        batch_rows=float(rows.mean()) if len(rows) else np.nan,
        busy=busy_us / (seconds * 1e6 * max(slices, 1)),
        device_s=busy_us / 1e6,
        by_run=tuple(_share(run.ending[chosen] == 0) for run, chosen in counted),
    )


def busy_slices(
    runs: Sequence[Columns], slices: int, span: Span, model: int | None = None
) -> tuple[float, ...]:
    """Return the share of its time that each slice computes (None: for all models), mean over the runs."""
    busy_us = np.zeros(slices)
    for run in runs:
        ours = _ours(run.batch_model, model)
        busy_us += np.bincount(run.batch_slice[ours], _overlap_us(run, span)[ours], slices)
    return tuple((busy_us / (span.seconds * 1e6 * len(runs))).tolist())


def series(run: Columns, model: int, seconds: float) -> RunSeries:
    """Return a model's run from 0 to `seconds`, in at most BINS_MAX bins: fewer where little came."""
    ours = run.model == model
    bins = min(BINS_MAX, round(seconds / _BIN_S_MIN), int(ours.sum()) // _BIN_REQUESTS)
    bins = max(bins, BINS_MIN)
    bin_s = seconds / bins
    which = _bins(run.at_us[ours], bin_s, bins)
    ending, wait_ms = run.ending[ours], run.wait_us[ours] / 1000
    answered = ending <= 1
    times = [_percentiles(wait_ms[answered & (which == number)]) for number in range(bins)]
    batches = (run.batch_model == model) & (run.batch_start_us < seconds * 1e6)
    batch_bins = _bins(run.batch_start_us[batches], bin_s, bins)
    counts = np.bincount(batch_bins, minlength=bins)
    rows = np.bincount(batch_bins, run.batch_rows[batches], bins)
    means = np.divide(rows, counts, out=np.full(bins, np.nan), where=counts > 0)
    return RunSeries(
        start_s=tuple(round(number * bin_s, 6) for number in range(bins)),
        bin_s=bin_s,
        offered=tuple((np.bincount(which, minlength=bins) / bin_s).tolist()),
        in_time=tuple((np.bincount(which[ending == 0], minlength=bins) / bin_s).tolist()),
        p50_ms=tuple(p50 for p50, _ in times),
        p99_ms=tuple(p99 for _, p99 in times),
        batch_rows=tuple(means.tolist()),
    )


def _bins(at_us: Whole, bin_s: float, bins: int) -> Whole:
    return np.minimum((at_us / (bin_s * 1e6)).astype(np.int64), bins - 1)


def _ours(models: Whole, model: int | None) -> Flags:
    return np.ones(len(models), bool) if model is None else models == model


def _within(at_us: Whole, span: Span) -> Flags:
    return (at_us >= span.start_us) & (at_us < span.end_us)


def _overlap_us(run: Columns, span: Span) -> npt.NDArray[np.float64]:
    """Return the part of each batch's compute that lies in the span."""
    end_us = np.minimum(run.batch_start_us + run.batch_us, span.end_us)
    inside_us: Whole = np.maximum(end_us - np.maximum(run.batch_start_us, span.start_us), 0)
    return inside_us.astype(float)


def _percentiles(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the nearest-rank p50 and p99, so that each is a value that was seen."""
    if not len(values):
        return np.nan, np.nan
    p50, p99 = np.percentile(values, [50, 99], method="inverted_cdf").tolist()
    return p50, p99


def _share(flags: Flags) -> float:
    return float(flags.mean()) if len(flags) else np.nan
