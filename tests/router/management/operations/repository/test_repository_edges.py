"""The repository API as clients see it: REST and gRPC answer as Triton does, whose answers are written here.

TRITON was asked of Triton 2.51.0 (the server of nvidia-pytriton 0.7.0), in modes explicit and none, with
models of the same kinds: "digits" loaded, "spare" never, and "broken", whose code raises.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple  # grpc's clients and messages carry no types

import grpc
import httpx
import orjson
import pytest
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from router.grpc.rpc import SERVICE
from router.grpc.servers import RPC_SERVERS
from router.http.app import create_app
from router.management.operations.repository.repository_rest import BODY_BYTES_MAX, add_repository
from router.management.operations.repository.repository_rpc import repository_methods
from router.payloads.bulk.pool import Bulk
from serving.values.specs import Limits
from tests.router.management.operations.worlds import GATEWAY, World
from tests.router.rpc_edge import Chosen

pytestmark = pytest.mark.usefixtures("both_servers")

EXTENSIONS = {"model_repository", "model_repository(unload_dependents)"}
UNKNOWN = "failed to load 'nobody', failed to poll from model repository"
BROKEN = "load failed for model 'broken': version 1 is at UNAVAILABLE state: "
NO_CONTROL = "explicit model load / unload is not allowed"
NAMED = "'repository_name' specification is not supported"


class Answer(NamedTuple):
    """HTTP status, gRPC code, and how the error begins ("" where there is none)."""

    http_status: int
    grpc_code: str
    beginning: str = ""


DONE = Answer(200, "OK")
TRITON = {
    ("load", "spare"): DONE,
    ("load", "digits"): DONE,
    ("load", "nobody"): Answer(500, "INTERNAL", UNKNOWN),
    ("load", "broken"): Answer(400, "INVALID_ARGUMENT", BROKEN),
    ("unload", "digits"): DONE,
    ("unload", "spare"): DONE,
    ("unload", "nobody"): DONE,
}


class Edges:
    """Both doors of one repository."""

    def __init__(self, world: World, http: httpx.AsyncClient, rpc: Any, address: str) -> None:
        self.world = world
        self.http = http
        self.rpc = rpc
        self.address = address

    async def post(self, path: str, body: bytes = b"") -> tuple[int, Any]:
        """Status and JSON over REST; "" for an empty body."""
        answer = await self.http.post(f"/v2/repository/{path}", content=body)
        assert answer.headers["content-type"] == "application/json"
        return answer.status_code, orjson.loads(answer.content) if answer.content else ""

    async def call(self, verb: str, model: str, **more: Any) -> tuple[str, str]:
        """Code and details over gRPC."""
        try:
            await getattr(self.rpc, f"{verb}_model")(model, **more)
        except InferenceServerException as error:
            return error.status().removeprefix("StatusCode."), error.message()
        return "OK", ""


@asynccontextmanager
async def edges(home: Path, gateway: str = GATEWAY) -> AsyncIterator[Edges]:
    world = World(home, gateway)
    for name in ("spare", "broken"):
        world.add_folder(name)
    statistics = world.serving.telemetry.statistics
    app = create_app(world.serving, statistics, name="penstock", version="0.1.0", bulk=Bulk(Limits()))
    add_repository(app, world.repository)
    server = RPC_SERVERS[Chosen.server](world.serving, "penstock", "0.1.0", Limits(), "127.0.0.1", statistics)
    server.offer(repository_methods(world.repository))
    address = f"127.0.0.1:{await server.start(0)}"
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    try:
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://test") as http,
            triton_aio.InferenceServerClient(address) as rpc,
        ):
            yield Edges(world, http, rpc, address)
    finally:
        await server.stop(0)


@pytest.mark.parametrize(("verb", "model"), TRITON)
async def test_both_doors_answer_as_triton_does(tmp_path: Path, verb: str, model: str) -> None:
    expected = TRITON[verb, model]
    async with edges(tmp_path) as both:
        if model == "broken":
            both.world.current.refusal = ("its code raises",)
        status, body = await both.post(f"models/{model}/{verb}")
        code, details = await both.call(verb, model)
    assert (status, code) == (expected.http_status, expected.grpc_code)
    if expected is DONE:
        assert (body, details) == ("", "")
    else:
        assert body["error"].startswith(expected.beginning)
        assert details == body["error"]


@pytest.mark.parametrize("verb", ["load", "unload"])
async def test_without_control_they_answer_as_triton_does_in_mode_none(tmp_path: Path, verb: str) -> None:
    async with edges(tmp_path, GATEWAY.replace("[models]}", "[models], control: false}")) as both:
        for model in ("digits", "nobody"):
            status, body = await both.post(f"models/{model}/{verb}")
            code, details = await both.call(verb, model)
            assert (status, code) == (503, "UNAVAILABLE")
            assert body["error"] == details
            assert details.startswith(NO_CONTROL)


async def test_the_index_has_tritons_shape_on_both_doors(tmp_path: Path) -> None:
    async with edges(tmp_path, GATEWAY.replace("  - {path: models/minilm}\n", "")) as both:
        both.world.current.refusal = ("its code raises",)
        await both.post("models/broken/load")
        told = [
            {"name": "broken", "version": "1", "state": "UNAVAILABLE", "reason": "its code raises"},
            {"name": "digits", "version": "1", "state": "READY"},
            {"name": "minilm"},
            {"name": "spare"},
        ]
        for path in ("index", "anything/index"):
            for body in (b"", b"{}", b'{"ready":false}'):
                assert await both.post(path, body) == (200, told)
            assert await both.post(path, b'{"ready":true}') == (200, told[1:2])
        answer = await both.rpc.get_model_repository_index()
        empty = {"version": "", "state": "", "reason": ""}
        assert [
            {"name": m.name, "version": m.version, "state": m.state, "reason": m.reason}
            for m in answer.models
        ] == [empty | each for each in told]
        async with grpc.aio.insecure_channel(both.address) as channel:
            index = channel.unary_unary(
                f"/{SERVICE}/RepositoryIndex",
                service_pb2.RepositoryIndexRequest.SerializeToString,
                service_pb2.RepositoryIndexResponse.FromString,
            )
            answer = await index(service_pb2.RepositoryIndexRequest(ready=True))
        assert [each.name for each in answer.models] == ["digits"]


async def test_a_load_may_say_the_batch_size_as_tritons_clients_do(tmp_path: Path) -> None:
    config = '{"max_batch_size":"16"}'
    async with edges(tmp_path) as both:
        body = orjson.dumps({"parameters": {"config": config}})
        assert await both.post("models/digits/load", body) == (200, "")
        assert both.world.served["digits"].spec.batch_max == 16
        assert await both.call("load", "minilm", config=config) == ("OK", "")
        assert both.world.served["minilm"].spec.batch_max == 16


async def test_files_are_not_taken(tmp_path: Path) -> None:
    async with edges(tmp_path) as both:
        body = orjson.dumps({"parameters": {"config": "{}", "file:1/model.py": "AAAA"}})
        status, answer = await both.post("models/digits/load", body)
        code, details = await both.call("load", "digits", config="{}", files={"file:1/model.py": b"x"})
        assert both.world.current.changes == []
    assert (status, code, details) == (501, "UNIMPLEMENTED", answer["error"])
    assert "files are not taken over the network" in details


@pytest.mark.parametrize("verb", ["load", "unload"])
async def test_a_repository_name_is_not_supported_as_in_triton(tmp_path: Path, verb: str) -> None:
    async with edges(tmp_path) as both:
        assert await both.post(f"mine/models/digits/{verb}") == (501, {"error": NAMED})
        async with grpc.aio.insecure_channel(both.address) as channel:
            request = getattr(service_pb2, f"RepositoryModel{verb.capitalize()}Request")
            call = channel.unary_unary(
                f"/{SERVICE}/RepositoryModel{verb.capitalize()}", request.SerializeToString
            )
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(request(repository_name="mine", model_name="digits"))
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNIMPLEMENTED, NAMED)


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("index", b"{", "the body is not valid JSON"),
        ("index", b"[]", "the body must be a JSON object, got a list"),
        ("index", b'{"ready":"true"}', "'ready' must be true or false, got 'true'"),
        ("models/digits/load", b'{"parameters":[]}', "'parameters' must be an object, got a list"),
        ("models/digits/load", b"\xff", "the body is not valid JSON"),
        ("models/digits/unload", b"{", "the body is not valid JSON"),
        ("index", b'{"redy":true}', "the body has an unknown key 'redy'; did you mean 'ready'?"),
        ("models/digits/load", b'{"paramters":{}}', "the body has an unknown key 'paramters'; did you mean"),
        ("models/digits/unload", b'{"a":1}', "the body has an unknown key 'a'; known are 'parameters'"),
        ("models/digits/unload", b'{"parameters":{"force":true}}', "unknown parameter 'force'; expected"),
    ],
)
async def test_what_is_malformed_is_the_clients_fault_where_triton_says_internal(
    tmp_path: Path, path: str, body: bytes, sentence: str
) -> None:
    async with edges(tmp_path) as both:
        status, answer = await both.post(path, body)
        assert both.world.current.changes == []
    assert status == 400
    assert answer["error"].startswith(sentence)


async def test_a_body_that_could_only_be_files_is_not_read_to_its_end(tmp_path: Path) -> None:
    async with edges(tmp_path) as both:
        status, answer = await both.post("models/digits/load", b" " * (BODY_BYTES_MAX + 1))
    assert (status, BODY_BYTES_MAX) == (413, 1 << 16)
    assert str(BODY_BYTES_MAX) in answer["error"]


async def test_unload_dependents_is_accepted(tmp_path: Path) -> None:
    async with edges(tmp_path) as both:
        body = b'{"parameters":{"unload_dependents":true}}'
        assert await both.post("models/digits/unload", body) == (200, "")
        assert await both.call("unload", "minilm", unload_dependents=True) == ("OK", "")
        assert both.world.served == {}
        assert await both.post("index", b'{"ready":true}') == (200, [])


async def test_an_unload_over_grpc_refuses_what_it_does_not_read(tmp_path: Path) -> None:
    async with edges(tmp_path) as both, grpc.aio.insecure_channel(both.address) as channel:
        request = service_pb2.RepositoryModelUnloadRequest(model_name="digits")
        request.parameters["force"].bool_param = True
        call = channel.unary_unary(f"/{SERVICE}/RepositoryModelUnload")(request.SerializeToString())
        with pytest.raises(grpc.aio.AioRpcError, match="unknown parameter 'force'") as caught:
            await call
        assert "digits" in both.world.served
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_only_post_is_served(tmp_path: Path) -> None:
    async with edges(tmp_path) as both:
        for path in ("index", "models/digits/load", "models/digits/unload"):
            assert (await both.http.get(f"/v2/repository/{path}")).status_code == 405


async def test_the_extensions_and_the_documentation_name_it(tmp_path: Path) -> None:
    async with edges(tmp_path) as both:
        assert set((await both.http.get("/v2")).json()["extensions"]) >= EXTENSIONS
        assert set((await both.rpc.get_server_metadata()).extensions) >= EXTENSIONS
        assert "/v2/repository/models/{model}/load" in (await both.http.get("/docs")).text


async def test_a_bug_is_an_internal_error_that_only_the_log_explains(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with edges(tmp_path) as both:
        both.world.current.change = None  # type: ignore[assignment,method-assign]
        status, body = await both.post("models/digits/load")
        code, details = await both.call("load", "digits")
    assert (status, code) == (500, "INTERNAL")
    assert body["error"] == details == "internal error of the gateway; its log has the cause"
    assert "NoneType" in caplog.text
