"""Traces leave a gateway: the spans of another server and of another cell are in the trace of the client, and
requests keep their names."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the packages of OpenTelemetry are not here")

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from loadtests.stand.redis_server import redis_server
from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess, await_true
from tests.acceptance.test_cells import SIMPLE, models_of, two_cells
from tests.router.observing.tracing.test_spans import collector, spans_in

pytestmark = [pytest.mark.live, pytest.mark.slow]

SAMPLED, NOT_SAMPLED = (f"00-{each * 32}-{'b' * 16}-0{on}" for each, on in (("1", 1), ("2", 0)))
SERVED = "slices: [{name: s, threads: 1}]\nmodels: [{path: PATH, slo_ms: SLO, cache: false}]\n".replace(
    "SLO", str(PATIENT_MS)
)
FAR = """
name: simple
batch_max: 8
inputs:
  - {name: INPUT0, datatype: INT32, shape: [-1, 16]}
  - {name: INPUT1, datatype: INT32, shape: [-1, 16]}
outputs:
  - {name: OUTPUT0, datatype: INT32, shape: [-1, 16]}
  - {name: OUTPUT1, datatype: INT32, shape: [-1, 16]}
variants:
  - {name: far, backend: remote, options: {url: "URL", model: simple}}
"""


def ask(gateway: GatewayProcess, headers: dict[str, str]) -> None:
    status, body = gateway.post("/v2/models/simple/infer", json.dumps(SIMPLE).encode(), headers)
    assert status == 200, body


def started(folder: Path, model: Path, tracing: dict[str, object]) -> GatewayProcess:
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "penstock.yaml"
    config.write_text(f"{SERVED.replace('PATH', str(model))}tracing: {json.dumps(tracing)}\n")
    return GatewayProcess.start(config, folder / "log")


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, Span]]]:
    """What a gateway sent that traces all, and the server that it asks, which traces nothing by itself."""
    folder = tmp_path_factory.mktemp("out")
    with collector() as (url, bodies):
        otlp = url.removesuffix("/v1/traces")
        far = started(folder / "far", ROOT / "models/simple", {"otlp": otlp, "sample": 0, "service": "far"})
        (folder / "simple").mkdir()
        (folder / "simple/model.yaml").write_text(FAR.replace("URL", far.grpc))
        near = started(folder / "near", folder / "simple", {"otlp": otlp, "sample": 1, "service": "near"})
        ask(near, {"traceparent": SAMPLED, "tracestate": "rojo=1"})
        ask(near, {"traceparent": NOT_SAMPLED})
        ask(near, {})
        assert far.get(f"/v2/requests/{'1' * 32}")[0] == 200, "it is named by its trace"
        for gateway in (near, far):
            assert gateway.stop() == 0, gateway.output
        yield spans_in(bodies)


def whole(spans: list[tuple[str, Span]], service: str) -> list[Span]:
    return [span for name, span in spans if name == service and span.name == "infer simple"]


def test_the_spans_of_a_server_that_is_asked_are_below_the_requests(spans: list[tuple[str, Span]]) -> None:
    near, far = whole(spans, "near"), whole(spans, "far")
    assert len(near) == len(far) == 2
    for above, below in zip(near, far, strict=True):
        assert below.trace_id == above.trace_id
        assert below.parent_span_id == above.span_id
    assert near[0].trace_id.hex() == "1" * 32
    assert near[0].parent_span_id.hex() == "b" * 16
    assert near[1].parent_span_id == b"", "by chance, as its client says nothing"


def test_a_request_that_its_client_does_not_sample_has_no_spans_anywhere(
    spans: list[tuple[str, Span]],
) -> None:
    assert "2" * 32 not in {span.trace_id.hex() for _, span in spans}


def home_of(gateway: GatewayProcess) -> str:
    """The one of two cells that has the model, "" while there is another number of either."""
    found = models_of(gateway)
    homes = [name for name, models in found.items() if "simple" in models]
    return homes[0] if (len(found), len(homes)) == (2, 1) else ""


def test_a_request_keeps_its_name_and_its_trace_in_the_cell_that_computes_it(tmp_path: Path) -> None:
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        url, bodies = stack.enter_context(collector())
        otlp = url.removesuffix("/v1/traces")
        more = {name: {"tracing": {"otlp": otlp, "sample": 0, "service": name}} for name in ("a", "b")}
        a, b = stack.enter_context(two_cells(tmp_path, redis, more=more))
        cells = {"a": a, "b": b}
        await_true(lambda: all(home_of(each) for each in cells.values()), *cells.values())
        home = home_of(cells["a"])
        (asked,) = cells.keys() - {home}
        ask(cells[asked], {"traceparent": SAMPLED, "x-request-id": "mine"})
        ask(cells[asked], {"traceparent": NOT_SAMPLED, "x-request-id": "other"})
        for name in ("mine", "other"):
            status, body = cells[home].get(f"/v2/requests/{name}")
            assert (status, json.loads(body)["name"]) == (200, name)
        await_true(lambda: len({service for service, _ in spans_in(bodies)}) == 2, *cells.values())
    found = spans_in(bodies)
    assert {span.trace_id.hex() for _, span in found} == {"1" * 32}
    ((passing, above),) = [each for each in found if each[1].name == "pass on simple"]
    ((computing, below),) = [each for each in found if each[1].name == "infer simple"]
    assert (passing, computing) == (asked, home)
    assert above.parent_span_id.hex() == "b" * 16
    assert below.parent_span_id == above.span_id
    assert {each.key: each.value.string_value for each in above.attributes}["penstock.cell"] == home
