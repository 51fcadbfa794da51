"""Outputs that an answer carries among its parameters, over REST on both ways and over gRPC."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as triton_aio

from router.tensors.parts.elements import one_element
from serving.ports import Call, Reply
from serving.values.specs import ServedModel, TensorSpec
from serving.values.tensor import Tensor
from tests.router.fakes import SIMPLE, FakeServing, compute
from tests.router.http.fastpath.wire import LIMITS, Running, get, request
from tests.router.rpc_edge import Core, completed, serve, simple_inputs

ANSWERED = (
    TensorSpec("LANGUAGE", "BYTES", (-1, 1), parameter=True),
    TensorSpec("CUT", "BOOL", (-1,), parameter=True),
    TensorSpec("STEPS", "UINT64", (-1, 1), parameter=True),
    TensorSpec("SURE", "FP32", (-1,), parameter=True),
    TensorSpec("SUM", "INT32", (-1,), parameter=True),
)
SAME = {"LANGUAGE": "né", "CUT": True, "STEPS": (1 << 63) + 1, "SURE": 0.25}


def telling(model: ServedModel) -> ServedModel:
    """The model, with outputs that become parameters."""
    return replace(model, spec=replace(model.spec, outputs=(*model.spec.outputs, *ANSWERED)))


def outputs(call: Call) -> list[Tensor]:
    """The outputs of `simple`, and others; SUM is of each row its first number."""
    plain, rows = compute(call), call.rows
    data = {
        "LANGUAGE": one_element("né".encode()) * rows,
        "CUT": b"\1" * rows,
        "STEPS": np.full(rows, SAME["STEPS"], "<u8").tobytes(),
        "SURE": np.full(rows, 0.25, "<f4").tobytes(),
        "SUM": np.frombuffer(plain[0].data, "<i4")[::16].tobytes(),
    }
    more = [Tensor(each.name, each.datatype, (rows, *each.shape[1:]), data[each.name]) for each in ANSWERED]
    return [*plain, *more]


class Telling(FakeServing):
    def __init__(self) -> None:
        super().__init__()
        self.models = {"simple": telling(SIMPLE)}

    def _reply(self, call: Call) -> Reply:
        reply = super()._reply(call)
        reply.outputs = outputs(call)
        return reply


@pytest.fixture(params=[True, False], ids=["fast path", "ASGI"])
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    running = Running(LIMITS, direct=bool(request.param), serving=Telling())
    yield running
    running.stop()


def ask(running: Running, rows: int = 1, **more: object) -> dict[str, Any]:
    inputs = [
        {"name": name, "shape": [rows, 16], "datatype": "INT32", "data": [*range(16 * rows)]}
        for name in ("INPUT0", "INPUT1")
    ]
    body = json.dumps({"inputs": inputs, **more}).encode()
    answer = running.ask(request("/v2/models/simple/infer", body=body))
    assert answer.status == 200, answer.body
    found: dict[str, Any] = json.loads(answer.body)
    return found


def test_an_answer_has_them_as_parameters_and_not_as_outputs(running: Running) -> None:
    said = ask(running, id="mine")
    assert said["parameters"] == {**SAME, "SUM": 0}
    assert [each["name"] for each in said["outputs"]] == ["OUTPUT0", "OUTPUT1"]
    assert said["id"] == "mine"


def test_of_several_rows_it_is_the_value_that_all_have(running: Running) -> None:
    assert ask(running, rows=3)["parameters"] == SAME  # SUM differs


def test_one_that_is_asked_for_by_name_comes_as_an_output(running: Running) -> None:
    said = ask(running, rows=2, outputs=[{"name": "SUM"}, {"name": "OUTPUT1"}])
    assert said["parameters"] == SAME
    first = said["outputs"][0]
    assert (first["name"], first["data"]) == ("SUM", [0, 32])
    everything = [{"name": each.name} for each in telling(SIMPLE).spec.outputs]
    assert "parameters" not in ask(running, outputs=everything)


def test_metadata_lists_them_apart(running: Running) -> None:
    told = json.loads(running.ask(get("/v2/models/simple")).body)
    assert [each["name"] for each in told["outputs"]] == ["OUTPUT0", "OUTPUT1"]
    assert [each["name"] for each in told["parameters"]["answer_parameters"]] == [e.name for e in ANSWERED]


def test_a_model_without_any_says_nothing_of_them() -> None:
    running = Running(LIMITS)
    try:
        assert "parameters" not in ask(running)
        assert "parameters" not in ask(running, outputs=[{"name": "OUTPUT1"}])
    finally:
        running.stop()


class TellingCore(Core):
    def __init__(self) -> None:
        super().__init__(self._told)
        self.models = {"simple": telling(SIMPLE)}

    def _told(self, call: Call) -> Reply:
        reply = completed(call)
        reply.outputs = outputs(call)
        return reply


@pytest.mark.usefixtures("both_servers")
async def test_over_grpc_each_has_the_field_of_its_type() -> None:
    async with serve(TellingCore()) as edge, triton_aio.InferenceServerClient(edge.address) as client:
        result = await client.infer("simple", simple_inputs(triton_aio))
        metadata = await client.get_model_metadata("simple")
    answer = result.get_response()
    fields = {name: each.WhichOneof("parameter_choice") for name, each in answer.parameters.items()}
    assert {name: getattr(answer.parameters[name], field) for name, field in fields.items()} == {
        **SAME,
        "SUM": 1,
    }
    assert fields == {
        "LANGUAGE": "string_param",
        "CUT": "bool_param",
        "STEPS": "uint64_param",
        "SURE": "double_param",
        "SUM": "int64_param",
    }
    assert [each.name for each in answer.outputs] == [each.name for each in metadata.outputs]
    assert result.as_numpy("OUTPUT0").shape == (1, 16)
