"""The model configuration: as Triton says it, over REST and gRPC, and only what is true."""

from dataclasses import replace
from typing import Any  # tritonclient's messages carry no types

import httpx
import pytest
import tritonclient.grpc.aio as triton_grpc
from fastapi import FastAPI
from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]
from tritonclient.utils import InferenceServerException

from router.http.app import create_app
from router.management.triton.config_edges import add_model_config, model_config_methods
from router.management.triton.model_config import as_json, model_config
from router.payloads.bulk.pool import Bulk
from router.protocol.oip import PLATFORMS
from router.tensors.protos.files import oip
from serving.values.slice_specs import SliceSpec
from serving.values.specs import BatchingSpec, Limits, Priorities, ServedModel
from serving.worker.backends.chosen import BACKENDS
from tests.router.fakes import IDENTITY, SIMPLE, FakeServing
from tests.router.rpc_edge import Core, Edge

SLICES = {"cpu0": SliceSpec("cpu0", ()), "gpu": SliceSpec("gpu", (), device="cuda:1")}


def configured(model: ServedModel = SIMPLE, *, keeps: bool = False) -> dict[str, Any]:
    return as_json(model_config(model, Limits(), SLICES, keeps=keeps))


def configure(model: ServedModel) -> Any:
    return model_config(model, Limits(), SLICES, keeps=False)


@pytest.fixture
def app() -> FastAPI:
    serving = FakeServing()
    made = create_app(serving, serving.telemetry.statistics, name="p", version="1", bulk=Bulk(Limits()))
    add_model_config(made, serving, configure)
    return made


def test_tensors_are_stated_without_their_batch_in_triton_s_words() -> None:
    config = configured()
    assert (config["name"], config["platform"], config["backend"]) == (
        "simple",
        "penstock_python",
        "python",
    )
    assert config["max_batch_size"] == 8
    assert [each["name"] for each in config["input"]] == ["INPUT0", "INPUT1"]
    first = config["input"][0]
    assert (first["data_type"], first["dims"], first["format"]) == ("TYPE_INT32", [16], "FORMAT_NONE")
    assert (first["optional"], first["is_shape_tensor"]) == (False, False)
    assert config["output"][1]["dims"] == [16]
    assert config["model_transaction_policy"] == {"decoupled": False}
    assert config["version_policy"] == {"latest": {"num_versions": 1}}
    assert configured(IDENTITY)["input"][0]["data_type"] == "TYPE_INVALID"
    inputs = (SIMPLE.spec.inputs[0], replace(SIMPLE.spec.inputs[1], optional=True))
    lenient = replace(SIMPLE, spec=replace(SIMPLE.spec, inputs=inputs))
    assert [each["optional"] for each in configured(lenient)["input"]] == [False, True]


def test_a_model_without_a_batch_says_so() -> None:
    config = configured(replace(SIMPLE, spec=replace(SIMPLE.spec, unbatched=True, batch_max=1)))
    assert (config["max_batch_size"], config["input"][0]["dims"]) == (0, [16])
    assert "dynamic_batching" not in config


def test_batching_says_what_the_gateway_does() -> None:
    quiet = configured()["dynamic_batching"]
    assert (quiet["preferred_batch_size"], quiet["max_queue_delay_microseconds"]) == ([], 0)
    assert quiet["default_queue_policy"]["max_queue_size"] == Limits().queue_requests
    stated = replace(SIMPLE, batching=BatchingSpec("static", size=4, delay_us=2_000))
    told = configured(stated)
    assert told["dynamic_batching"]["preferred_batch_size"] == [4]
    assert told["dynamic_batching"]["max_queue_delay_microseconds"] == 2_000
    assert told["parameters"]["batching_policy"] == {"string_value": "static"}


def test_levels_of_priority_are_told_as_triton_tells_them() -> None:
    config = configured(replace(SIMPLE, spec=replace(SIMPLE.spec, priorities=Priorities(4, 2))))
    told = config["dynamic_batching"]
    assert (int(told["priority_levels"]), int(told["default_priority_level"])) == (4, 2)


def test_instances_are_the_slices_by_device() -> None:
    groups = configured(replace(SIMPLE, slices=("cpu0", "gpu", "lost")))["instance_group"]
    assert [(each["kind"], each["count"], each["gpus"]) for each in groups] == [
        ("KIND_CPU", 1, []),
        ("KIND_GPU", 1, [1]),
    ]


@pytest.mark.parametrize(("cache", "keeps"), [(True, True), (True, False), (False, True)])
def test_the_response_cache_is_on_where_answers_are_kept(cache: bool, keeps: bool) -> None:
    found = configured(replace(SIMPLE, cache=cache), keeps=keeps)["response_cache"]
    assert found == {"enable": cache and keeps}


def test_the_json_is_a_model_config_again() -> None:
    read = ParseDict(configured(), oip.ModelConfig())
    assert read == model_config(SIMPLE, Limits(), SLICES, keeps=False)


async def test_over_rest_it_is_json_and_unknown_models_are_refused(app: FastAPI) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        for path in ("simple/config", "simple/versions/1/config"):
            answer = await client.get(f"/v2/models/{path}")
            assert (answer.status_code, answer.json()) == (200, configured())
        for path in ("nobody/config", "simple/versions/2/config"):
            answer = await client.get(f"/v2/models/{path}")
            assert answer.status_code == 404
            assert answer.json()["error"].startswith("Request for unknown model: ")


async def test_over_grpc_tritonclient_reads_the_same() -> None:
    core = Core()
    edge = Edge(core, Limits())
    edge.server.offer(model_config_methods(core, configure))
    edge.address = f"127.0.0.1:{await edge.server.start(0)}"
    try:
        async with triton_grpc.InferenceServerClient(edge.address) as client:
            assert (await client.get_model_config("simple")).config.SerializeToString() == configure(
                SIMPLE
            ).SerializeToString()
            assert (await client.get_model_config("simple", "1")).config.max_batch_size == 8
            for name, version in (("nobody", ""), ("simple", "2")):
                with pytest.raises(InferenceServerException, match="Request for unknown model: "):
                    await client.get_model_config(name, version)
    finally:
        await edge.server.stop(0)


def test_every_backend_has_a_platform_of_its_own() -> None:
    assert set(PLATFORMS) == set(BACKENDS)
    assert len(set(PLATFORMS.values())) == len(PLATFORMS)
