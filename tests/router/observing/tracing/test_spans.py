"""Spans: a request and its phases, at their own times, below the client's span; sent by the SDK of
OpenTelemetry."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the packages of OpenTelemetry are not here")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from router.observing.tracing.spans import Spans
from router.observing.tracing.writer import Traced
from serving.values.vocabulary import OVERLOAD
from tests.router.observing.tracing.test_tracing import SAMPLED, ended

EPOCH_US = 1_700_000_000_000_000
TRACE = "c" * 32


def sent(*requests: tuple[object, str, str]) -> list[ReadableSpan]:
    kept = InMemorySpanExporter()
    spans = Spans("http://nowhere", "penstock", kept)
    for entry, parent, trace in requests:
        spans.send(Traced(entry, parent, trace, EPOCH_US, ""))  # type: ignore[arg-type]  # entries
    spans._provider.force_flush()
    return list(kept.get_finished_spans())


def root(found: list[ReadableSpan]) -> ReadableSpan:
    (span,) = [each for each in found if each.name.startswith("infer ")]
    return span


def test_a_request_is_below_its_clients_span_and_its_phases_below_it() -> None:
    found = sent((ended(), SAMPLED, "a" * 32))
    above = root(found)
    assert above.context is not None
    assert above.parent is not None
    assert f"{above.context.trace_id:032x}" == "a" * 32
    assert f"{above.parent.span_id:016x}" == "b" * 16
    phases = [each for each in found if each is not above]
    assert [each.name for each in phases] == ["queue", "input", "compute", "output"]
    assert {each.parent.span_id for each in phases if each.parent} == {above.context.span_id}
    begun_ns = (EPOCH_US + 5_000) * 1000
    assert (above.start_time, above.end_time) == (begun_ns, begun_ns + 6_000_000)
    assert phases[2].start_time == begun_ns + 3_500_000
    assert phases[2].end_time == begun_ns + 5_500_000


def test_a_request_without_a_trace_has_the_one_that_was_chosen_for_it() -> None:
    other = "d" * 32
    found = sent((ended(), "", TRACE), (ended(), "", other))
    assert {f"{each.context.trace_id:032x}" for each in found if each.context} == {TRACE, other}
    assert [each.parent for each in found if each.name.startswith("infer")] == [None, None]


def test_a_request_has_the_span_that_another_server_knows() -> None:
    kept = InMemorySpanExporter()
    spans = Spans("http://nowhere", "penstock", kept)
    for span in ("e" * 16, ""):
        spans.send(Traced(ended(), SAMPLED, "a" * 32, EPOCH_US, "", span))
    spans._provider.force_flush()
    ids = [f"{each.context.span_id:016x}" for each in kept.get_finished_spans() if each.context]
    assert ids.count("e" * 16) == 1
    assert len(set(ids)) == len(ids) == 10
    finished = kept.get_finished_spans()
    below = [each for each in finished if each.parent and f"{each.parent.span_id:016x}" == "e" * 16]
    assert [each.name for each in below] == ["queue", "input", "compute", "output"]


def test_a_request_that_another_cell_had_is_one_span_that_names_the_cell() -> None:
    kept = InMemorySpanExporter()
    spans = Spans("http://nowhere", "penstock", kept)
    spans.send(Traced(ended(), SAMPLED, "a" * 32, EPOCH_US, "", "e" * 16, "west"))
    spans._provider.force_flush()
    (span,) = kept.get_finished_spans()
    assert (span.name, dict(span.attributes or {})["penstock.cell"]) == ("pass on digits", "west")
    assert span.context is not None
    assert f"{span.context.span_id:016x}" == "e" * 16
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == "b" * 16


def test_attributes_and_status_say_how_it_ended() -> None:
    said = dict(root(sent((ended(), "", TRACE))).attributes or {})
    assert said["penstock.model"] == "digits"
    assert said["penstock.in_time"] is True
    assert said["penstock.request_name"] == "mine"
    late = root(sent((ended(within=False), "", TRACE)))
    assert dict(late.attributes or {})["penstock.ending"] == "late"
    assert late.status.status_code is StatusCode.UNSET
    refused = root(sent((ended(OVERLOAD, False), "", TRACE)))
    assert refused.status.status_code is StatusCode.ERROR
    assert dict(refused.attributes or {})["penstock.ending"] == "overload"


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """A server that takes OTLP over HTTP, and keeps the bodies."""
    bodies: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the library's name
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", bodies
    finally:
        server.shutdown()
        server.server_close()


def spans_in(bodies: list[bytes]) -> list[tuple[str, Span]]:
    """The spans that a collector got, each with the name of its service."""
    found = []
    for body in bodies:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {each.key: each.value.string_value for each in resource.resource.attributes}
            found += [(names["service.name"], span) for scope in resource.scope_spans for span in scope.spans]
    return found


def test_a_collector_gets_them_by_the_protocol() -> None:
    with collector() as (url, bodies):
        spans = Spans(url, "my gateway")
        spans.send(Traced(ended(), SAMPLED, "a" * 32, EPOCH_US, ""))
        spans.close()
    found = spans_in(bodies)
    assert {service for service, _ in found} == {"my gateway"}
    assert {each.name for _, each in found} == {"infer digits", "queue", "input", "compute", "output"}
    assert {each.trace_id.hex() for _, each in found} == {"a" * 32}
