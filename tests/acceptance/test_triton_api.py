"""Triton's extensions at a running gateway, by its own clients; docs/protocol.md says what works."""

import asyncio
import inspect
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
from tritonclient.utils import InferenceServerException

from tests.acceptance.client_surface import CALLS, CLIENTS, public, started, surface, table
from tests.acceptance.gateway import ROOT, GatewayProcess
from tests.acceptance.test_clients import WAYS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def triton() -> Iterator[GatewayProcess]:
    with started() as gateway:
        yield gateway


def test_every_public_method_has_a_call() -> None:
    assert set().union(*(public(module) for module in CLIENTS.values())) == set(CALLS)


def test_the_page_says_what_each_method_does(triton: GatewayProcess) -> None:
    page = (ROOT / "docs/protocol.md").read_text()
    found = "\n".join(table(surface(triton)))
    assert found in page, f"`python -m tests.acceptance.client_surface` prints:\n{found}"


def ones(rows: int) -> np.ndarray[Any, Any]:
    return np.ones((rows, 16), np.int32)


def test_the_phases_of_the_statistics_add_up_to_success(triton: GatewayProcess) -> None:
    for way in WAYS.values():
        way(triton)("simple", {"INPUT0": ones(3), "INPUT1": ones(3)}, ["OUTPUT0", "OUTPUT1"])
    with http_client.InferenceServerClient(triton.rest) as client:
        told = client.get_inference_statistics()["model_stats"]
        (one,) = client.get_inference_statistics("simple")["model_stats"]
    assert {each["name"] for each in told} >= {"simple", "digits"}
    assert one["inference_stats"]["success"]["count"] >= len(WAYS)
    for each in (*told, one):
        stats = dict(each["inference_stats"])
        stats.pop("fail")
        total_ns = stats.pop("success")["ns"]
        assert sum(phase["ns"] for phase in stats.values()) == total_ns, each["name"]


def test_both_protocols_tell_the_same_configuration(triton: GatewayProcess) -> None:
    with (
        http_client.InferenceServerClient(triton.rest) as http,
        grpc_client.InferenceServerClient(triton.grpc) as grpc,
    ):
        over_rest = http.get_model_config("digits")
        over_grpc = grpc.get_model_config("digits").config
    said = MessageToDict(over_grpc, preserving_proto_field_name=True)
    assert over_rest["max_batch_size"] == said["max_batch_size"] == 64
    assert (over_rest["input"][0]["dims"], said["input"][0]["dims"]) == ([64], ["64"])


@pytest.mark.parametrize("size", [4, 6])
@pytest.mark.parametrize("module", [http_client, grpc_client], ids=["http", "grpc"])
def test_a_client_loads_the_configuration_that_it_read_with_another_batch(
    triton: GatewayProcess, module: Any, size: int
) -> None:
    address = triton.rest if module is http_client else triton.grpc
    form: dict[str, Any] = {} if module is http_client else {"as_json": True}
    with module.InferenceServerClient(address) as client:
        read = client.get_model_config("simple", **form)
        config = read.get("config", read)
        client.load_model("simple", config=json.dumps(config | {"max_batch_size": size}))
        read = client.get_model_config("simple", **form)
        assert read.get("config", read)["max_batch_size"] == size
        with pytest.raises(InferenceServerException, match="config: output is not supported"):
            client.load_model("simple", config=json.dumps(config | {"output": config["input"]}))


PIXELS = np.random.default_rng(7).random((2, 64), np.float32)


async def scores(name: str, gateway: GatewayProcess, **more: int) -> np.ndarray[Any, Any]:
    """What a client reads of SCORES; `more`: what it asks of the output."""
    module = CLIENTS[name]
    tensor = module.InferInput("PIXELS", [2, 64], "FP32")
    tensor.set_data_from_numpy(PIXELS)
    output = module.InferRequestedOutput("SCORES", **more)
    client = module.InferenceServerClient(gateway.rest if name.startswith("http") else gateway.grpc)
    try:
        result = client.infer("digits", [tensor], outputs=[output])
        result = await result if inspect.isawaitable(result) else result
        found: np.ndarray[Any, Any] = result.as_numpy("SCORES")
        return found
    finally:
        closed = client.close()
        if inspect.isawaitable(closed):
            await closed


@pytest.mark.parametrize("name", CLIENTS)
def test_the_classes_of_a_digit(triton: GatewayProcess, name: str) -> None:
    told = asyncio.run(scores(name, triton, class_count=3))
    assert told.shape == (2, 3)
    for row, said in zip(asyncio.run(scores(name, triton)), told, strict=True):
        best = np.argsort(-row, kind="stable")[:3]
        assert [each.decode() for each in said] == [f"{row[index]:f}:{index}" for index in best]
