"""Traces of a running gateway: a collector gets spans, Triton's settings write a file, logs and metrics name
traces."""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

pytest.importorskip("opentelemetry.sdk", reason="the packages of OpenTelemetry are not here")

from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess
from tests.router.observing.tracing.test_spans import collector, spans_in

pytestmark = pytest.mark.slow

SETTINGS = f"""\
slices: [{{name: a}}]
models: [{{path: {ROOT / "models/simple"}, slo_ms: {PATIENT_MS}, cache: false}}]
admin: {{on_inference_ports: true}}
logging: {{format: json, access: true}}
tracing: {{otlp: "URL", sample: 0, file: traces.json}}
"""
REST_TRACE, RPC_TRACE, NOT_SAMPLED = ("1" * 32, "2" * 32, "3" * 32)


def traceparent(trace: str, flags: str = "01") -> str:
    return f"00-{trace}-{'b' * 16}-{flags}"


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, list[bytes], Path]]:
    """A gateway that was asked over REST and gRPC, and has ended; the bodies that its collector got."""
    folder: Path = tmp_path_factory.mktemp("traces")
    with collector() as (url, bodies):
        config = folder / "penstock.yaml"
        config.write_text(SETTINGS.replace("URL", url.removesuffix("/v1/traces")))
        gateway = GatewayProcess.start(config, folder / "log")
        gateway.grpc, gateway.metrics = (each.rstrip('"}') for each in (gateway.grpc, gateway.metrics))
        client = triton_http.InferenceServerClient(gateway.rest)
        stated = {"trace_level": ["TIMESTAMPS"], "trace_rate": "1", "trace_count": "2"}
        found = client.update_trace_settings("simple", stated)
        assert (found["trace_level"], found["trace_count"]) == (["TIMESTAMPS"], "2")
        over_rest(client, traceparent(REST_TRACE))
        over_rest(client, traceparent(NOT_SAMPLED, "00"))
        client.close()
        over_grpc(gateway, traceparent(RPC_TRACE))
        (folder / "metrics").write_text(scraped(gateway))
        assert gateway.stop() == 0, gateway.output
        yield gateway, bodies, folder


def over_rest(client: triton_http.InferenceServerClient, trace: str) -> None:
    inputs = [triton_http.InferInput(f"INPUT{number}", [1, 16], "INT32") for number in (0, 1)]
    for each in inputs:
        each.set_data_from_numpy(np.ones((1, 16), np.int32))
    headers = {"traceparent": trace, "x-request-id": f"rest-{trace[3]}"}
    client.infer("simple", inputs, headers=headers)


def over_grpc(gateway: GatewayProcess, trace: str) -> None:
    inputs = [triton_grpc.InferInput(f"INPUT{number}", [1, 16], "INT32") for number in (0, 1)]
    for each in inputs:
        each.set_data_from_numpy(np.ones((1, 16), np.int32))
    with triton_grpc.InferenceServerClient(gateway.grpc) as client:
        client.infer("simple", inputs, headers={"traceparent": trace})


def scraped(gateway: GatewayProcess) -> str:
    accept = {"accept": "application/openmetrics-text"}
    request = urllib.request.Request(gateway.metrics, headers=accept)  # noqa: S310  # http
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        return str(answer.read().decode())


Traced = tuple[GatewayProcess, list[bytes], Path]


def test_a_collector_gets_what_clients_sample_and_nothing_else(traced: Traced) -> None:
    _, bodies, _ = traced
    spans = [span for _, span in spans_in(bodies)]
    assert {each.trace_id.hex() for each in spans} == {REST_TRACE, RPC_TRACE}
    roots = [each for each in spans if each.name == "infer simple"]
    assert [each.parent_span_id.hex() for each in roots] == ["b" * 16] * 2
    names = {each.key: each.value for each in roots[0].attributes}
    assert names["penstock.request_name"].string_value == "rest-1"
    assert "compute" in {each.name for each in spans}


def test_tritons_trace_file_has_as_many_as_were_asked_for(traced: Traced) -> None:
    _, _, folder = traced
    events = json.loads((folder / "traces.json").read_text())
    assert [each["id"] for each in events] == [1, 1, 2, 2]
    assert [each["request_id"] for each in events[::2]] == ["rest-1", "rest-3"]
    names = [each["name"] for each in events[1]["timestamps"]]
    assert names[0] == "REQUEST_START"
    assert {"QUEUE_START", "COMPUTE_START", "COMPUTE_END", "REQUEST_END"} <= set(names)


def test_access_lines_and_metrics_name_the_trace(traced: Traced) -> None:
    gateway, _, folder = traced
    lines = [json.loads(each) for each in gateway.output.splitlines() if each.startswith("{")]
    accessed = [each for each in lines if each["logger"] == "penstock.access" and "trace_id" in each]
    assert {each["trace_id"] for each in accessed} == {REST_TRACE, NOT_SAMPLED, RPC_TRACE}
    assert accessed[0]["request_id"] == "rest-1"
    found = re.findall(
        r'request_duration_seconds_bucket.* # \{trace_id="(\w+)"\}', (folder / "metrics").read_text()
    )
    assert set(found) <= {REST_TRACE, RPC_TRACE}
    assert found
