"""Large requests and answers, over both ways: the same answers as small ones, made beside the event loop."""

import gzip
import json
import os
import signal
import zlib
from collections.abc import Iterator

import pytest

from serving.values.specs import Limits
from serving.values.vocabulary import CLIENT_GONE, COMPLETED, TOO_LARGE
from tests.router.http.fastpath.wire import Answer, Running, infer, request, total

IDENTITY = "/v2/models/identity/infer"
LIMITS = Limits(element_count=200_000)


@pytest.fixture(params=[True, False], ids=["fast path", "ASGI"])
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A server with a bulk process, which answers a good request as ever afterwards."""
    found = Running(LIMITS, direct=request.param, processes=1)
    try:
        yield found
        found.serving.outcome = COMPLETED
        assert total(found.ask(infer(41))) == 42
    finally:
        found.stop()


def numbers(count: int, **more: object) -> bytes:
    tensor = {"name": "IN", "shape": [1, count], "datatype": "INT32", "data": list(range(count))}
    return json.dumps({"inputs": [tensor], **more}).encode()


def answered(answer: Answer, body: bytes | None = None) -> list[int]:
    assert answer.status == 200, answer
    data = json.loads(answer.body if body is None else body)["outputs"][0]["data"]
    assert isinstance(data, list)
    return data


def bulk_pid(running: Running) -> int:
    process = running.bulk._processes[0]._process
    assert process is not None
    return process.pid


def test_much_json_is_answered_by_much_json(running: Running) -> None:
    assert answered(running.ask(request(IDENTITY, numbers(20_000)))) == list(range(20_000))
    assert [call.rows for call in running.serving.calls] == [1]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_it_may_be_compressed_both_ways(running: Running, coding: str) -> None:
    body = gzip.compress(numbers(20_000)) if coding == "gzip" else zlib.compress(numbers(20_000))
    answer = running.ask(request(IDENTITY, body, content_encoding=coding, accept_encoding=coding))
    assert answer.fields["content-encoding"] == coding
    assert answered(answer, zlib.decompress(answer.body, wbits=47)) == list(range(20_000))


def test_a_large_binary_answer_is_compressed(running: Running) -> None:
    body = numbers(100_000, parameters={"binary_data_output": True})
    answer = running.ask(request(IDENTITY, body, accept_encoding="gzip"))
    data = zlib.decompress(answer.body, wbits=47)
    length = int(answer.fields["inference-header-content-length"])
    assert json.loads(data[:length])["outputs"][0]["parameters"]["binary_data_size"] == 400_000
    assert data[length:][400:404] == (100).to_bytes(4, "little")


def test_what_a_large_request_says_besides_its_tensors_is_kept(running: Running) -> None:
    running.ask(request(IDENTITY, numbers(20_000, id="mine", parameters={"timeout": 7_000_000})))
    assert running.serving.calls[0].timeout_us == 7_000_000


def test_answers_keep_their_order(running: Running) -> None:
    with running.connect() as wire:
        wire.send(request(IDENTITY, numbers(20_000)) + infer(1) + request(IDENTITY, numbers(20_001)))
        assert len(answered(wire.read())) == 20_000
        assert total(wire.read()) == 2
        assert len(answered(wire.read())) == 20_001


def test_more_values_than_allowed_are_413_and_counted(running: Running) -> None:
    answer = running.ask(request(IDENTITY, numbers(200_001)))
    assert answer.status == 413
    assert "the request has more than 200000 values in its JSON (limits.element_count)" in answer.error
    assert [(name, outcome) for name, outcome, _ in running.serving.turned_away] == [("identity", TOO_LARGE)]


def test_a_large_answer_that_json_may_not_have_is_400(running: Running) -> None:
    head = {"name": "IN", "shape": [1, 200_001], "datatype": "INT8"}
    text = json.dumps({"inputs": [head | {"parameters": {"binary_data_size": 200_001}}]}).encode()
    fields = {"inference_header_content_length": str(len(text))}
    answer = running.ask(request(IDENTITY, text + bytes(200_001), **fields))
    assert answer.status == 400
    assert "ask for its outputs with binary_data true" in answer.error


def test_a_client_that_leaves_meanwhile_is_no_call(running: Running) -> None:
    answered(running.ask(request(IDENTITY, numbers(20_000))))  # the process is there
    os.kill(bulk_pid(running), signal.SIGSTOP)
    with running.connect() as wire:
        wire.send(request(IDENTITY, numbers(20_000)))
        running.settle()
    running.wait_left()
    os.kill(bulk_pid(running), signal.SIGCONT)
    answered(running.ask(request(IDENTITY, numbers(20_000))))
    gone = [outcome for _, outcome, _ in running.serving.turned_away]
    if running.direct:
        assert (gone, len(running.serving.calls)) == ([CLIENT_GONE], 2)
    else:  # it became a call, which the core gives up where it is still waiting
        assert (gone, len(running.serving.calls)) == ([], 3)


@pytest.mark.slow
def test_a_killed_process_costs_no_answer(running: Running) -> None:
    answered(running.ask(request(IDENTITY, numbers(20_000))))
    os.kill(bulk_pid(running), signal.SIGKILL)
    assert answered(running.ask(request(IDENTITY, numbers(20_000)))) == list(range(20_000))


def test_what_small_requests_are_answered_meanwhile(running: Running) -> None:
    answered(running.ask(request(IDENTITY, numbers(20_000))))
    os.kill(bulk_pid(running), signal.SIGSTOP)
    with running.connect() as wire:
        wire.send(request(IDENTITY, numbers(20_000)))
        assert total(running.ask(infer(1))) == 2
        os.kill(bulk_pid(running), signal.SIGCONT)
        assert len(answered(wire.read())) == 20_000
