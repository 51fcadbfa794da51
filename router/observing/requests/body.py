"""The bodies of `GET /v2/requests` and `GET /v2/requests/{name}`: what was decided, as figures."""

from typing import TypedDict

from router.observing.reasons import LATE
from router.observing.telemetry.counting.journal import Entry, RanBatch
from serving.values.vocabulary import Reason


class MateBody(TypedDict):
    """A request of a batch."""

    number: int
    name: str
    rows: int


class BatchBody(TypedDict):
    """A batch. `predicted_ms` is what was planned with, from its dispatch to its result; `compute_ms` the
    model's own time. `requests` may be more than `mates`."""

    slice: str
    variant: str
    rows: int
    requests: int
    started_ms: float
    predicted_ms: float
    typical_ms: float
    elapsed_ms: float
    compute_ms: float
    mates: list[MateBody]


class RequestBody(TypedDict):
    """A request that has ended, with the phases of its time. `ending`: a `Reason`, or "late". `batch`: the
    last that it was in, else null; then `latest_batch` is the model's latest at that time. `started_ms` of a
    batch counts from the request's arrival."""

    number: int
    name: str
    model: str
    tenant: str
    tier: str
    rows: int
    size: int
    arrived_unix_s: float
    due_ms: float
    latency_ms: float
    in_time: bool
    ending: str
    detail: str
    variant: str
    may_answer: list[str]
    downgrade: str
    cache: str
    queue_ms: float
    fill_ms: float
    input_ms: float
    compute_ms: float
    output_ms: float
    batch: BatchBody | None
    latest_batch: BatchBody | None


class RequestsBody(TypedDict):
    """The latest requests that were late, refused or failed, newest first."""

    requests: list[RequestBody]


def request_body(entry: Entry, epoch_us: int) -> RequestBody:
    """Return the body of a request. `epoch_us`: the Unix time at which the clock was 0."""
    reason = entry.outcome.reason
    late = reason == Reason.OK and not entry.within
    return RequestBody(
        number=entry.number,
        name=entry.name,
        model=entry.model,
        tenant=entry.tenant,
        tier=entry.tier,
        rows=entry.rows,
        size=entry.size,
        arrived_unix_s=(epoch_us + entry.arrived_us) / 1e6,
        due_ms=entry.due_us / 1e3,
        latency_ms=entry.latency_us / 1e3,
        in_time=entry.within and reason == Reason.OK,
        ending=LATE if late else str(reason),
        detail=entry.detail,
        variant=entry.variant,
        may_answer=list(entry.variants),
        downgrade=str(entry.downgrade),
        cache=entry.cache,
        queue_ms=entry.queue_us / 1e3,
        fill_ms=entry.batch_us / 1e3,
        input_ms=entry.input_us / 1e3,
        compute_ms=entry.compute_us / 1e3,
        output_ms=entry.output_us / 1e3,
        batch=_batch(entry.batch, entry.arrived_us),
        latest_batch=_batch(entry.then, entry.arrived_us),
    )


def _batch(ran: RanBatch | None, arrived_us: int) -> BatchBody | None:
    if ran is None:
        return None
    return BatchBody(
        slice=ran.slice,
        variant=ran.variant,
        rows=ran.rows,
        requests=ran.requests,
        started_ms=(ran.started_us - arrived_us) / 1e3,
        predicted_ms=ran.predicted_us / 1e3,
        typical_ms=ran.typical_us / 1e3,
        elapsed_ms=ran.elapsed_us / 1e3,
        compute_ms=ran.compute_us / 1e3,
        mates=[MateBody(number=number, name=name, rows=rows) for number, name, rows in ran.mates],
    )
