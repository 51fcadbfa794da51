"""Header fields that state a model's parameters, over REST on both ways, at endpoints and over gRPC."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from serving.ports import Call
from serving.values.specs import ParameterSpec, ServedModel
from tests.router.fakes import FakeServing
from tests.router.http.fastpath.wire import LIMITS, Answer, Running, request
from tests.router.rpc_edge import Core, error_of, serve, simple_request

PARAMETERS = (
    ParameterSpec("X-User", "string", "nobody", header=True),
    ParameterSpec("x-level", "int", 1, 0, 9, header=True),
    ParameterSpec("x-deep", "bool", False, header=True),
    ParameterSpec("x-share", "float", 0.5, header=True),
    ParameterSpec("x-own", "string", "mine"),
)
DEFAULTS = {spec.name: spec.default for spec in PARAMETERS}
SAID = {"x_user": "ann", "x_level": "3", "x_deep": "TRUE", "x_share": "0.25", "x_own": "theirs"}
EXPECTED = {"X-User": "ann", "x-level": 3, "x-deep": True, "x-share": 0.25, "x-own": "mine"}
WRONG = [("x-level", "ten"), ("x-level", "10"), ("x-deep", "1"), ("x-share", "nan"), ("x-user", "a" * 1025)]


def reading(model: ServedModel) -> ServedModel:
    """The model, with parameters that header fields may state."""
    return replace(model, spec=replace(model.spec, parameters=PARAMETERS))


class Reading(FakeServing):
    """Serves `simple` with PARAMETERS."""

    def __init__(self) -> None:
        super().__init__()
        self.models = {"simple": reading(self.models["simple"])}


def parameters(call: Call) -> dict[str, object]:
    assert [name for name, _ in call.parameters] == sorted(DEFAULTS)
    return dict(call.parameters)


@pytest.fixture(params=["fast path", "ASGI", "KServe v1"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def running(way: str) -> Iterator[Running]:
    running = Running(LIMITS, direct=way != "ASGI", serving=Reading())
    yield running
    running.stop()


def ask(running: Running, way: str, stated: Any = None, **fields: str) -> Answer:
    ones = [1] * 16
    if way == "KServe v1":
        path = "/v1/models/simple:predict"
        body: dict[str, object] = {"instances": [{"INPUT0": ones, "INPUT1": ones}]}
    else:
        inputs = [
            {"name": f"INPUT{place}", "shape": [1, 16], "datatype": "INT32", "data": ones} for place in (0, 1)
        ]
        path, body = "/v2/models/simple/infer", {"inputs": inputs}
    whole = {**body, "parameters": stated or {}}
    return running.ask(request(path, body=json.dumps(whole).encode(), **fields))


def test_a_field_states_the_parameter_of_its_name(running: Running, way: str) -> None:
    assert ask(running, way, **SAID).status == 200
    assert ask(running, way).status == 200
    assert [parameters(call) for call in running.serving.calls] == [EXPECTED, DEFAULTS]


def test_what_the_request_states_itself_counts_before(running: Running, way: str) -> None:
    assert ask(running, way, {"X-User": "bob", "x-level": 7}, **SAID).status == 200
    assert parameters(running.serving.calls[0]) == {**EXPECTED, "X-User": "bob", "x-level": 7}


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_value_that_the_parameter_cannot_have_is_refused(
    running: Running, way: str, name: str, value: str
) -> None:
    answer = ask(running, way, **{name.replace("-", "_"): value})
    assert answer.status == 400
    assert name in answer.error.lower()
    assert running.serving.calls == []


class ReadingCore(Core):
    """The same over gRPC."""

    def __init__(self) -> None:
        super().__init__()
        self.models = {"simple": reading(self.models["simple"])}


@pytest.mark.usefixtures("both_servers")
async def test_metadata_states_the_parameter_of_its_name() -> None:
    metadata = tuple((name.replace("_", "-"), value) for name, value in SAID.items())
    async with serve(ReadingCore()) as edge:
        await edge.infer(simple_request(), metadata=metadata)
        await edge.infer(simple_request())
        stated = simple_request()
        stated.parameters["x-level"].int64_param = 7
        await edge.infer(stated, metadata=(*metadata, ("x-user", "last")))
        assert [parameters(call) for call in edge.core.calls] == [
            EXPECTED,
            DEFAULTS,
            {**EXPECTED, "x-level": 7, "X-User": "last"},
        ]
        code, sentence = await error_of(edge.infer(simple_request(), metadata=(("x-level", "ten"),)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "x-level" in sentence
