"""The figures of a run, from its record: who was answered in time, who was not, and whether to believe it.

Every latency counts from the instant at which the request was due, so a server that stalls pays for all the
requests that it kept waiting, and so does a client that sends late.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loadtests.harness.record import CLIENT_FAULTS, NO_STATUS, ClientState, Record

LATENESS_MS_MAX = 1.0  # p99 of sent minus due; above it the client, not the server, shaped the result
PERCENTILES = {"p50_ms": 50, "p90_ms": 90, "p99_ms": 99, "p99.9_ms": 99.9, "max_ms": 100}
BINS_MAX = 100  # of the series over time
OK = 200
IN_TIME, LATE = "200 in time", "200 late"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Promise:
    """What one load was: its name, the latency promised to it, and the rows of each request."""

    name: str
    slo_ms: float
    rows: int = 1


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """How many ended so, and how soon they were told (milliseconds from due)."""

    outcome: str
    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Series:
    """Bins of equal length over the due times; rates are requests a second, nan where a bin has no answer."""

    start_s: list[float]
    offered: list[float]
    goodput: list[float]
    p50_ms: list[float]
    p99_ms: list[float]
    outcomes: Mapping[str, list[float]]


@dataclass(frozen=True, slots=True)
class Summary:
    """One load, or all together. `answered` had an HTTP status; `good` a 200 within the SLO.

    Rates are requests a second over the run's span; attainment is good over offered.
    """

    name: str
    slo_ms: float | None
    rows: int | None
    offered: int
    answered: int
    ok: int
    good: int
    offered_rate: float
    goodput: float
    goodput_rows: float
    attainment: float
    latency: Mapping[str, float]
    outcomes: Sequence[OutcomeCount]
    series: Series


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run; `voids` says why it must not be believed, and is empty where it may."""

    span_s: float
    loads: Sequence[Summary]
    total: Summary
    lateness: Mapping[str, float]
    client: ClientState
    voids: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a file; Any is what `asdict` returns. A percentile of nothing is null."""
        plain: dict[str, Any] = without_nan({"void": bool(self.voids), **asdict(self)})
        return plain


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """The record as columns: seconds and milliseconds, `good` by each arrival's own SLO."""

    due_s: Floats
    latency_ms: Floats
    statuses: npt.NDArray[np.int64]
    outcomes: npt.NDArray[np.str_]
    good: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.int64]

    def where(self, chosen: npt.NDArray[np.bool_]) -> "_Arrivals":
        return _Arrivals(*(getattr(self, name)[chosen] for name in self.__slots__))


def summarise(record: Record, promises: Sequence[Promise], span_s: float, client: ClientState) -> Report:
    """Return the report of a finished run. `span_s` is the length of the arrivals' pattern; rates are per
    second of it."""
    due_ns = np.asarray(record.due_ns, np.int64)
    sent_ns = np.asarray(record.sent_ns, np.int64)
    owners = np.asarray(record.loads, np.int64)
    everything = _columns(record, promises, owners, due_ns)
    loads = []
    for number, promise in enumerate(promises):
        loads.append(_summary(promise.name, everything.where(owners == number), span_s, promise))
    only = promises[0] if len(promises) == 1 else None
    total = _summary("total", everything, span_s, only)
    late_ms = (sent_ns - due_ns)[sent_ns > 0] / 1e6
    lateness = percentiles(late_ms, {"p50_ms": 50, "p99_ms": 99, "max_ms": 100})
    voids = _voids(lateness["p99_ms"], record.reasons, client)
    return Report(span_s, loads, total, lateness, client, voids)


def percentiles(values: Floats, wanted: Mapping[str, float] = PERCENTILES) -> dict[str, float]:
    """Return nearest-rank percentiles, so each is a value that was seen; nan if there is none."""
    if not len(values):
        return dict.fromkeys(wanted, float("nan"))
    found = np.percentile(values, list(wanted.values()), method="inverted_cdf")
    return dict(zip(wanted, map(float, found), strict=True))


def outcome_name(status: int, reason: str, good: bool) -> str:
    """Return `200 in time`, `200 late`, `503 queue_full`, or the reason alone if there was no HTTP answer."""
    if status == OK:
        return IN_TIME if good else LATE
    return reason if status == NO_STATUS else f"{status} {reason}".strip()


def _columns(
    record: Record, promises: Sequence[Promise], owners: npt.NDArray[np.int64], due_ns: npt.NDArray[np.int64]
) -> _Arrivals:
    latency_ms = (np.asarray(record.done_ns, np.int64) - due_ns) / 1e6
    statuses = np.asarray(record.statuses, np.int64)
    slo_ms = np.asarray([promise.slo_ms for promise in promises])[owners]
    rows = np.asarray([promise.rows for promise in promises])[owners]
    due_s = (due_ns - record.start_ns) / 1e9
    good = (statuses == OK) & (latency_ms <= slo_ms)
    names = np.asarray(list(map(outcome_name, record.statuses, record.reasons, good.tolist())))
    return _Arrivals(due_s, latency_ms, statuses, names, good, rows)


def _summary(name: str, arrivals: _Arrivals, span_s: float, promise: Promise | None) -> Summary:
    ok = arrivals.statuses == OK
    good = int(arrivals.good.sum())
    return Summary(
        name=name,
        slo_ms=promise.slo_ms if promise else None,
        rows=promise.rows if promise else None,
        offered=len(ok),
        answered=int((arrivals.statuses != NO_STATUS).sum()),
        ok=int(ok.sum()),
        good=good,
        offered_rate=len(ok) / span_s,
        goodput=good / span_s,
        goodput_rows=float(arrivals.rows[arrivals.good].sum()) / span_s,
        attainment=good / len(ok) if len(ok) else float("nan"),
        latency=percentiles(arrivals.latency_ms[ok]),
        outcomes=_outcomes(arrivals),
        series=_series(arrivals, span_s),
    )


def _outcomes(arrivals: _Arrivals) -> list[OutcomeCount]:
    """Return the most frequent first."""
    found = []
    for name in np.unique(arrivals.outcomes):
        told_ms = arrivals.latency_ms[arrivals.outcomes == name]
        times = percentiles(told_ms, {"p50_ms": 50, "p99_ms": 99, "max_ms": 100})
        found.append(OutcomeCount(str(name), len(told_ms), **times))
    return sorted(found, key=lambda one: (-one.count, one.outcome))


def _series(arrivals: _Arrivals, span_s: float) -> Series:
    """Return rates and times in at most BINS_MAX bins, of 0.1 s if the run is short."""
    bins = max(1, min(BINS_MAX, round(span_s / 0.1)))
    width_s = span_s / bins
    which = np.minimum((arrivals.due_s / width_s).astype(int), bins - 1)
    ok = arrivals.statuses == OK
    answered = [arrivals.latency_ms[ok & (which == number)] for number in range(bins)]

    def rates(chosen: npt.NDArray[np.bool_]) -> list[float]:
        counts: list[float] = (np.bincount(which[chosen], minlength=bins) / width_s).tolist()
        return counts

    times = [percentiles(values, {"p50": 50, "p99": 99}) for values in answered]
    return Series(
        start_s=[number * width_s for number in range(bins)],
        offered=rates(np.ones(len(which), bool)),
        goodput=rates(arrivals.good),
        p50_ms=[one["p50"] for one in times],
        p99_ms=[one["p99"] for one in times],
        outcomes={str(name): rates(arrivals.outcomes == name) for name in np.unique(arrivals.outcomes)},
    )


def _voids(late_p99_ms: float, reasons: Sequence[str], client: ClientState) -> list[str]:
    """Return why the run says nothing about the server; written for the person that ran it."""
    voids = []
    if not late_p99_ms <= LATENESS_MS_MAX:
        voids.append(
            f"the client sent late: p99 of sent minus due is {late_p99_ms:.2f} ms, at most "
            f"{LATENESS_MS_MAX:g} ms is fair; it used {client.cpu:.0%} of a core and opened "
            f"{client.connections_opened} connections: give it a core of its own (--core, --realtime), open "
            "connections beforehand (--connections), or send less"
        )
    voids.extend(
        f"{count} arrivals were never sent ({fault}, of {client.connections_max} connections)"
        for fault in CLIENT_FAULTS
        if (count := reasons.count(fault))
    )
    return voids


def without_nan(value: Any) -> Any:  # walks plain JSON values of any shape
    """Return the same with null for what is not a number, which JSON does not know."""
    if isinstance(value, dict):
        return {name: without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and np.isnan(value) else value
