"""Streams at a running gateway: tritonclient over gRPC, events over REST, and a worker that is killed."""

import http.client
import json
import os
import signal
from collections.abc import Iterator
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess, await_true, serving

pytestmark = [pytest.mark.live, pytest.mark.slow]

WAIT_S = 60


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    config = tmp_path_factory.mktemp("streams") / "penstock.yaml"
    config.write_text(
        "slices: [{name: a, cores: 1}]\n"
        f"models:\n  - {{path: {ROOT}/models/repeat, slo_ms: {PATIENT_MS}}}\n"
        f"profiles: {{folder: {ROOT}/profiles}}\n"
    )
    with serving(config) as started:
        yield started


def asked(numbers: list[int], delay_ms: int = 0) -> list[Any]:
    """The inputs of `repeat`, of one row."""
    count = len(numbers)
    inputs = [
        grpc_client.InferInput("IN", [1, count], "INT32"),
        grpc_client.InferInput("DELAY", [1, count], "UINT32"),
        grpc_client.InferInput("WAIT", [1, 1], "UINT32"),
    ]
    inputs[0].set_data_from_numpy(np.array([numbers], np.int32))
    inputs[1].set_data_from_numpy(np.full((1, count), delay_ms, np.uint32))
    inputs[2].set_data_from_numpy(np.zeros((1, 1), np.uint32))
    return inputs


class Stream:
    """A stream of tritonclient's, and what comes on it."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.came: Queue[tuple[Any, Any]] = Queue()
        self.client = grpc_client.InferenceServerClient(gateway.grpc)
        self.client.start_stream(lambda result, error: self.came.put((result, error)))

    def ask(self, numbers: list[int], delay_ms: int = 0) -> None:
        self.client.async_stream_infer(
            "repeat", asked(numbers, delay_ms), request_id="mine", enable_empty_final_response=True
        )

    def next(self) -> tuple[Any, Any]:
        return self.came.get(timeout=WAIT_S)

    def close(self, **options: bool) -> None:
        self.client.stop_stream(**options)
        self.client.close()


def is_last(result: Any) -> bool:
    return bool(result.get_response().parameters["triton_final_response"].bool_param)


def test_tritonclient_gets_each_answer_and_the_end(gateway: GatewayProcess) -> None:
    stream = Stream(gateway)
    stream.ask([5, 6, 7])
    found = [stream.next() for _ in range(4)]
    stream.close()
    assert [error for _, error in found] == [None] * 4
    assert [int(result.as_numpy("OUT")[0, 0]) for result, _ in found[:3]] == [5, 6, 7]
    assert [int(result.as_numpy("IDX")[0, 0]) for result, _ in found[:3]] == [0, 1, 2]
    assert [is_last(result) for result, _ in found] == [False, False, False, True]
    assert {result.get_response().id for result, _ in found} == {"mine"}


def test_the_gateway_says_that_it_is_decoupled_and_counts_its_answers(gateway: GatewayProcess) -> None:
    stream = Stream(gateway)
    stream.ask([5, 6])
    for _ in range(3):
        stream.next()
    stream.close()
    config = json.loads(gateway.get("/v2/models/repeat/config")[1])
    assert config["model_transaction_policy"] == {"decoupled": True}
    (told,) = json.loads(gateway.get("/v2/models/repeat/stats")[1])["model_stats"]
    places = told["response_stats"]
    assert places["0"]["success"]["count"] > 0
    assert places["2"]["empty_response"]["count"] > 0
    assert set(places["0"]) == {
        "compute_infer", "compute_output", "success", "fail", "empty_response", "cancel",
    }  # fmt: skip
    with grpc_client.InferenceServerClient(gateway.grpc) as client:
        (same,) = client.get_inference_statistics("repeat").model_stats
    assert same.response_stats["0"].success.count >= places["0"]["success"]["count"]


def generate(gateway: GatewayProcess, kind: str, numbers: list[int], delay_ms: int = 0) -> Any:
    """The connection and its response, whose body is not read."""
    connection = http.client.HTTPConnection(gateway.rest, timeout=WAIT_S)
    body = {"IN": numbers, "DELAY": [delay_ms] * len(numbers), "WAIT": 0}
    connection.request("POST", f"/v2/models/repeat/{kind}", json.dumps(body))
    return connection, connection.getresponse()


def test_events_come_as_the_model_answers(gateway: GatewayProcess) -> None:
    connection, response = generate(gateway, "generate_stream", [5, 6], 20)
    text = response.read().decode()
    connection.close()
    assert (response.status, response.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
    events = [json.loads(part.removeprefix("data: ")) for part in text.split("\n\n")[:-1]]
    assert [(event["OUT"], event["IDX"]) for event in events] == [(5, 0), (6, 1)]


def test_a_client_that_leaves_its_events_frees_the_slice(gateway: GatewayProcess) -> None:
    connection, response = generate(gateway, "generate_stream", [1] * 200, 500)  # 100 s, if nobody left
    assert response.readline().startswith(b"data: ")
    connection.close()
    response.close()
    await_true(lambda: gateway.open_requests() == 0, gateway)
    connection, response = generate(gateway, "generate", [7])
    assert json.loads(response.read())["OUT"] == 7
    connection.close()


def test_a_killed_worker_ends_each_request_once_and_the_stream_goes_on(gateway: GatewayProcess) -> None:
    stream = Stream(gateway)
    stream.ask([1] * 100, 100)
    assert stream.next()[1] is None
    status = json.loads(gateway.get("/v2/status")[1])
    os.kill(pid_of(status), signal.SIGKILL)
    errors = 0
    while not errors:
        result, error = stream.next()
        assert error is not None or not is_last(result)
        errors += error is not None
    assert "worker" in str(error)
    await_true(lambda: gateway.get("/v2/models/repeat/ready")[0] == 200, gateway)
    stream.ask([8])
    result, error = stream.next()
    assert (error, int(result.as_numpy("OUT")[0, 0])) == (None, 8)
    stream.close()
    assert stream.came.qsize() == 1  # its end


def pid_of(status: Any) -> int:
    (only,) = status["slices"]
    return int(only["pid"])


def test_cancelled_requests_free_the_slice(gateway: GatewayProcess) -> None:
    stream = Stream(gateway)
    stream.ask([1] * 200, 500)
    assert stream.next()[1] is None
    stream.close(cancel_requests=True)
    await_true(lambda: gateway.open_requests() == 0, gateway)
