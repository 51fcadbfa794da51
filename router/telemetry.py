"""Every metric of the gateway and its labels, in one place.

On the request path there are only int additions and one bisect (0.4 us a request); text is made when a
scraper asks. Lines are written here and not by prometheus_client's generate_latest, which needs
9 us a line: 12 models of 3 variants (2,000 lines) would hold the event loop for 18 ms; this takes 1.
"""

import asyncio
import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypedDict

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from serving.vocabulary import COMPLETED, Kind, Outcome

UNKNOWN: Final = "unknown"
"""The label of every model that is not served, so that clients cannot invent label values."""

DURATION_BOUNDS_US: Final = (
    100, 200, 300, 500, 750,
    1_000, 1_500, 2_000, 3_000, 5_000, 7_500,
    10_000, 15_000, 20_000, 30_000, 50_000, 75_000,
    100_000, 150_000, 200_000, 300_000, 500_000, 750_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000,
)  # fmt: skip
"""Upper bounds, about 1.5 apart up to a second, so that a percentile read from them is off by some 20 %."""

BATCH_ROWS_MAX: Final = 1024
"""Largest batch bucket of a model whose maximum batch nobody gave."""

REQUEST_S_MAX: Final = 5.0
CONNECTIONS_MAX: Final = 32
HEAD_BYTES_MAX: Final = 8192


class Counters(TypedDict):
    """What happened to one model since the start; what `penstock status` takes its rates from.

    `rejected`, `shed`, `failed`: by reason. `violations`: answered late, shed or failed. `rows` are those of
    completed requests, `goodput_rows` of those within their SLO. `batches` of `batch_rows` rows together
    took `compute_us`. `latency_counts`: completed requests by DURATION_BOUNDS_US, the last one above all.
    """

    requests: int
    completed: int
    rejected: dict[str, int]
    shed: dict[str, int]
    failed: dict[str, int]
    cancelled: int
    violations: int
    rows: int
    goodput_rows: int
    batches: int
    batch_rows: int
    compute_us: int
    latency_bounds_us: list[int]
    latency_counts: list[int]


class Histogram:
    """Counts by upper bound (inclusive, as Prometheus has it), one more for what is above all."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def observe(self, value: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str, unit: int) -> Iterator[str]:
        """Exposition lines; `unit` divides values (1_000_000: microseconds become seconds)."""
        count = 0
        for bound, here in zip(self.bounds, self.counts, strict=False):
            count += here
            yield f'{name}_bucket{{{labels},le="{bound / unit}"}} {count}\n'
        count += self.counts[-1]
        yield f'{name}_bucket{{{labels},le="+Inf"}} {count}\n'
        yield f"{name}_sum{{{labels}}} {self.total / unit}\n"
        yield f"{name}_count{{{labels}}} {count}\n"


class _Model:
    """The counters of one model label."""

    __slots__ = ("batches", "completed", "duration", "goodput_rows", "others", "rows", "violations")

    def __init__(self) -> None:
        self.completed = 0
        self.others: dict[Outcome, int] = {}
        self.rows = 0
        self.goodput_rows = 0
        self.violations = 0
        self.duration = Histogram(DURATION_BOUNDS_US)
        self.batches: dict[str, tuple[Histogram, Histogram]] = {}  # by variant: rows, compute


class Telemetry:
    """Counts what the gateway does; `render` is the exposition text, `snapshot` the same as values."""

    def __init__(self, models: Sequence[str], batch_max: Mapping[str, int]) -> None:
        self._models = {name: _Model() for name in (*models, UNKNOWN)}
        self._unknown = self._models[UNKNOWN]
        self._batch_bounds = {name: _doubling(batch_max.get(name, BATCH_ROWS_MAX)) for name in self._models}
        self._restarts: dict[str, int] = {}
        self._queue_rows: Callable[[], Mapping[str, int]] = dict
        self._replicas: Callable[[], Mapping[tuple[str, str], int]] = dict
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    def read_gauges(
        self,
        queue_rows: Callable[[], Mapping[str, int]],
        replicas: Callable[[], Mapping[tuple[str, str], int]],
    ) -> None:
        """Where a scrape finds the present: rows queued by model, replicas by (model, state)."""
        self._queue_rows = queue_rows
        self._replicas = replicas

    def request_done(
        self, model: str, outcome: Outcome, rows: int, latency_us: int, within_slo: bool
    ) -> None:
        """One request ended. `latency_us` is arrival to answer; `within_slo` matters only if it completed."""
        counts = self._models.get(model, self._unknown)
        if outcome.kind is Kind.COMPLETED:
            counts.completed += 1
            counts.rows += rows
            counts.duration.observe(latency_us)
            if within_slo:
                counts.goodput_rows += rows
            else:
                counts.violations += 1
        else:
            counts.others[outcome] = counts.others.get(outcome, 0) + 1
            if outcome.kind is Kind.SHED or outcome.kind is Kind.FAILED:
                counts.violations += 1

    def batch_done(self, model: str, variant: str, rows: int, compute_us: int) -> None:
        """A worker ran a batch of one variant; `variant` is one of the configuration's."""
        label = model if model in self._models else UNKNOWN
        batches = self._models[label].batches
        if variant not in batches:
            batches[variant] = (Histogram(self._batch_bounds[label]), Histogram(DURATION_BOUNDS_US))
        rows_histogram, compute_histogram = batches[variant]
        rows_histogram.observe(rows)
        compute_histogram.observe(compute_us)

    def worker_restarted(self, slice: str) -> None:  # noqa: A002 - the domain's word
        """The worker process of that slice was replaced."""
        self._restarts[slice] = self._restarts.get(slice, 0) + 1

    def snapshot(self) -> dict[str, Counters]:
        """The counters by model, UNKNOWN included; plain values, ready for JSON."""
        return {name: _values(counts) for name, counts in self._models.items()}

    def render(self) -> bytes:
        """The Prometheus exposition text (format 0.0.4) of this moment."""
        lines: list[str] = []
        add = lines.extend
        labelled = [(f'model="{_escape(name)}"', counts) for name, counts in self._models.items()]
        add(_head("penstock_requests", "counter", "Requests by how they ended."))
        for label, counts in labelled:
            add(_outcome_lines(label, counts))
        for name, help_text, field in _SUMS:
            add(_head(name, "counter", help_text))
            add(f"{name}_total{{{label}}} {getattr(counts, field)}\n" for label, counts in labelled)
        name = "penstock_request_duration_seconds"
        add(_head(name, "histogram", "Arrival to answer, completed requests."))
        for label, counts in labelled:
            add(counts.duration.lines(name, label, 1_000_000))
        for name, help_text, which, unit in _BATCH_HISTOGRAMS:
            add(_head(name, "histogram", help_text))
            for label, counts in labelled:
                for variant, histograms in counts.batches.items():
                    labels = f'{label},variant="{_escape(variant)}"'
                    add(histograms[which].lines(name, labels, unit))
        add(self._state_lines())
        return "".join(lines).encode() + generate_latest(self._process)

    def _state_lines(self) -> Iterator[str]:
        yield from _head("penstock_worker_restarts", "counter", "Worker processes replaced, by slice.")
        for name, restarts in self._restarts.items():
            yield f'penstock_worker_restarts_total{{slice="{_escape(name)}"}} {restarts}\n'
        yield from _head("penstock_queue_rows", "gauge", "Rows that wait for a batch.")
        for name, rows in self._queue_rows().items():
            yield f'penstock_queue_rows{{model="{_escape(name)}"}} {rows}\n'
        yield from _head("penstock_replicas", "gauge", "Replicas by state.")
        for (name, state), count in self._replicas().items():
            yield f'penstock_replicas{{model="{_escape(name)}",state="{_escape(state)}"}} {count}\n'


_SUMS: Final = (
    ("penstock_rows", "Rows of completed requests.", "rows"),
    ("penstock_goodput_rows", "Rows of requests completed within their SLO.", "goodput_rows"),
    ("penstock_slo_violations", "Requests answered late, shed or failed.", "violations"),
)
_BATCH_HISTOGRAMS: Final = (
    ("penstock_batch_rows", "Rows in a batch.", 0, 1),
    ("penstock_batch_compute_seconds", "Run of a batch, measured by its worker.", 1, 1_000_000),
)


def _doubling(batch_max: int) -> tuple[int, ...]:
    """1, 2, 4, ... below the maximum, and the maximum itself."""
    return (*(1 << n for n in range((batch_max - 1).bit_length())), batch_max)


def _head(name: str, kind: str, help_text: str) -> tuple[str, str]:
    full = f"{name}_total" if kind == "counter" else name
    return f"# HELP {full} {help_text}\n", f"# TYPE {full} {kind}\n"


def _outcome_lines(label: str, counts: _Model) -> Iterator[str]:
    for outcome, count in ((COMPLETED, counts.completed), *counts.others.items()):
        labels = f'{label},outcome="{outcome.kind}",reason="{outcome.reason}"'
        yield f"penstock_requests_total{{{labels}}} {count}\n"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _values(counts: _Model) -> Counters:
    def by_reason(kind: Kind) -> dict[str, int]:
        return {o.reason.value: count for o, count in counts.others.items() if o.kind is kind}

    batches = counts.batches.values()
    return {
        "requests": counts.completed + sum(counts.others.values()),
        "completed": counts.completed,
        "rejected": by_reason(Kind.REJECTED),
        "shed": by_reason(Kind.SHED),
        "failed": by_reason(Kind.FAILED),
        "cancelled": sum(by_reason(Kind.CANCELLED).values()),
        "violations": counts.violations,
        "rows": counts.rows,
        "goodput_rows": counts.goodput_rows,
        "batches": sum(sum(rows.counts) for rows, _ in batches),
        "batch_rows": sum(rows.total for rows, _ in batches),
        "compute_us": sum(compute.total for _, compute in batches),
        "latency_bounds_us": list(counts.duration.bounds),
        "latency_counts": list(counts.duration.counts),
    }


class MetricsServer:
    """Serves `GET /metrics` on a port of its own; one short exchange a connection, a few at a time."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._server: asyncio.Server | None = None
        self._exchanges: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the bound port (`port` 0: any). OSError says which address and why not."""
        try:
            self._server = await asyncio.start_server(self._exchange, host, port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            reason = (error.strerror or str(error)).rpartition(": ")[2]  # asyncio puts the address before it
            raise OSError(f"cannot serve metrics on {host}:{port}: {reason}") from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Close the port and what is still connected to it."""
        if self._server is not None:
            self._server.close()
            # Not by cancelling: for that, asyncio's streams of Python 3.11 log a traceback.
            for writer in self._exchanges.values():
                writer.transport.abort()
            await asyncio.gather(*filter(None, self._exchanges))
            await self._server.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._exchanges[task] = writer
        try:
            if len(self._exchanges) <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_S_MAX):
                    writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a scraper that left, dawdles or sends no HTTP gets no answer
        finally:
            del self._exchanges[task]
            with contextlib.suppress(OSError):
                writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path != b"/metrics":
            return _response("404 Not Found", "text/plain", b"Metrics are at /metrics.\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "text/plain", b"Use GET /metrics.\n")
        return _response("200 OK", CONTENT_TYPE_PLAIN_0_0_4, self._telemetry.render(), method == b"HEAD")


def _response(status: str, content_type: str, body: bytes, head_only: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if head_only else body)
