"""A request that has ended as spans of OpenTelemetry, which its SDK sends (OTLP over HTTP).

The SDK batches and sends in a thread of its own. It reads `OTEL_EXPORTER_OTLP_HEADERS` and the like itself.
"""

from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from router.observing.reasons import LATE, ending
from router.observing.telemetry.counting.journal import Entry
from router.observing.tracing.writer import Traced
from serving.values.vocabulary import COMPLETED, Reason

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

PHASES: Final = ("queue", "fill", "input", "compute", "output")
Attributes = dict[str, str | int | float | bool]


class Spans:
    """Makes spans, and has them sent. `exporter`: None for the SDK's own, to the collector at `url`."""

    def __init__(self, url: str, service: str, exporter: "SpanExporter | None" = None) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        release = version("penstock")
        resource = Resource.create({"service.name": service, "service.version": release})
        self._next = self._span = 0  # the ids of the next trace and of the next span, 0 for any
        self._provider = TracerProvider(
            ALWAYS_ON, resource, shutdown_on_exit=False, id_generator=self._ids(RandomIdGenerator)
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter(url)))
        self._tracer = self._provider.get_tracer("penstock", release)

    def send(self, traced: Traced) -> None:
        """Make the spans of a request: one of it all, and one of each phase that it had here."""
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        entry, cell = traced.entry, traced.cell
        begun_us = traced.epoch_us + entry.arrived_us
        self._next, self._span = int(traced.trace, 16), int(traced.span or "0", 16)
        whole = self._tracer.start_span(
            f"{'pass on' if cell else 'infer'} {entry.model}",
            _context(traced.parent),
            SpanKind.SERVER,
            attributes(entry) | ({"penstock.cell": cell} if cell else {}),
            start_time=begun_us * 1000,
        )
        if entry.outcome is not COMPLETED:
            whole.set_status(Status(StatusCode.ERROR, entry.detail or ending(str(entry.outcome.reason))))
        inner = set_span_in_context(whole)
        for name, from_us, to_us in phases(entry) if not cell else ():
            phase = self._tracer.start_span(name, inner, start_time=(begun_us + from_us) * 1000)
            phase.end((begun_us + to_us) * 1000)
        whole.end((begun_us + entry.latency_us) * 1000)

    def _ids(self, base: type["RandomIdGenerator"]) -> "RandomIdGenerator":
        """Return a generator whose next trace and span have the ids that were chosen for their request."""
        spans = self

        class Chosen(base):  # type: ignore[misc, valid-type]  # it is imported where it is needed
            def generate_trace_id(self) -> int:
                return spans._next

            def generate_span_id(self) -> int:
                chosen, spans._span = spans._span, 0
                return chosen or int(super().generate_span_id())

        made: RandomIdGenerator = Chosen()
        return made

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


def phases(entry: Entry) -> Iterator[tuple[str, int, int]]:
    """Yield the phases that the request had: name, begin and end after its arrival."""
    took = (entry.queue_us, entry.batch_us, entry.input_us, entry.compute_us, entry.output_us)
    at_us = 0
    for name, took_us in zip(PHASES, took, strict=True):
        if took_us > 0:
            yield name, at_us, at_us + took_us
        at_us += max(took_us, 0)


def attributes(entry: Entry) -> Attributes:
    """Return what is said of a request beside its times."""
    late = entry.outcome is COMPLETED and not entry.within
    found: Attributes = {
        "penstock.model": entry.model,
        "penstock.tenant": entry.tenant,
        "penstock.rows": entry.rows,
        "penstock.due_ms": entry.due_us / 1000,
        "penstock.in_time": entry.within and entry.outcome is COMPLETED,
        "penstock.ending": LATE if late else str(Reason(entry.outcome.reason)),
    }
    if entry.number:
        found["penstock.request"] = entry.number
    said = {
        "penstock.request_name": entry.name, "penstock.tier": entry.tier, "penstock.variant": entry.variant,
        "penstock.downgrade": str(entry.downgrade), "penstock.cache": entry.cache,
    }  # fmt: skip
    found |= {name: value for name, value in said.items() if value}
    if (batch := entry.batch) is not None:
        found |= {
            "penstock.slice": batch.slice,
            "penstock.batch": batch.id,
            "penstock.batch_rows": batch.rows,
            "penstock.batch_requests": batch.requests,
            "penstock.batch_predicted_ms": batch.predicted_us / 1000,
            "penstock.batch_elapsed_ms": batch.elapsed_us / 1000,
        }
    return found


def _context(parent: str) -> "Context":
    """Return what the request's span is below: its client's span, or nothing."""
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    if not parent:
        return Context()
    _, trace, span, _ = parent.split("-")
    flags = TraceFlags(TraceFlags.SAMPLED)
    above = SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(above), Context())
