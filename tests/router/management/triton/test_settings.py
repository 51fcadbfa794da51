"""Log and trace settings: read as they are, changed with effect, and refused where they cannot be."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from io import StringIO
from typing import Any  # tritonclient's answers carry no types

import grpc
import httpx
import pytest
import tritonclient.grpc.aio as triton_grpc
from fastapi import FastAPI
from tritonclient.utils import InferenceServerException

from router.logs.levels import LogLevels, levels_from
from router.logs.logs import ACCESS, levels, set_levels, set_up
from router.management.admin import ChangeGuard
from router.management.operations.repository.refusals import RepositoryError
from router.management.triton.log_settings import change_log_settings, log_settings
from router.management.triton.settings_edges import add_settings, only_asks, settings_methods
from router.management.triton.trace_settings import TraceExtension
from router.security.auth.identity import CALLER, Identity
from router.settings.door.admin import AdminSettings
from router.settings.door.logs import LogSettings
from serving.values.specs import Limits
from tests.router.fakes import FakeServing
from tests.router.rpc_edge import Core, Edge

QUIET = {"log_info": False, "log_warning": False, "log_error": True, "log_verbose_level": 0}


@pytest.fixture(autouse=True)
def stream() -> Iterator[StringIO]:
    """What is logged; logging is as before afterwards."""
    root = logging.getLogger()
    handlers, level, before = root.handlers[:], root.level, levels()
    said = StringIO()
    set_up(LogSettings(), said)
    yield said
    root.handlers[:] = handlers
    root.setLevel(level)
    set_levels(before)
    root.setLevel(level)


def lines(stream: StringIO) -> list[str]:
    """Log one line of each level; return which were said."""
    stream.truncate(0)
    logger = logging.getLogger("router.something")
    for level in ("debug", "info", "warning", "error"):
        getattr(logger, level)("line of %s", level)
    return [each for each in ("debug", "info", "warning", "error") if f"line of {each}" in stream.getvalue()]


def test_the_switches_of_each_level_have_effect(stream: StringIO) -> None:
    assert lines(stream) == ["info", "warning", "error"]
    change_log_settings({"log_warning": False, "log_verbose_level": 3})
    assert lines(stream) == ["debug", "info", "error"]
    change_log_settings(QUIET)
    assert lines(stream) == ["error"]
    change_log_settings({"log_error": False})
    assert lines(stream) == []
    logging.getLogger(ACCESS).info("a request")
    assert "a request" in stream.getvalue()


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_the_settings_say_what_the_file_sets(level: str) -> None:
    set_up(LogSettings(level), StringIO())
    found = log_settings()
    order = ["debug", "info", "warning", "error"].index(level)
    assert (found["log_info"], found["log_warning"], found["log_error"]) == (order <= 1, order <= 2, True)
    assert (found["log_verbose_level"], found["log_format"], found["log_file"]) == (
        int(order == 0), "default", "",
    )  # fmt: skip
    assert logging.getLogger().level == levels_from(level).least
    set_up(LogSettings(format="json"), StringIO())
    assert log_settings()["log_format"] == "json"


@pytest.mark.parametrize(
    ("stated", "status", "sentence"),
    [
        ({"log_file": "x"}, 501, "log file location can not be updated through network protocol"),
        ({"log_format": "ISO8601"}, 501, "log format can not be updated through network protocol"),
        ({"log_info": 1}, 400, "'log_info' must be true or false, got 1"),
        ({"log_info": None}, 400, "'log_info' must be true or false, got null"),
        ({"log_verbose_level": -1}, 400, "'log_verbose_level' must be a whole number"),
        ({"log_verbose_level": True}, 400, "'log_verbose_level' must be a whole number"),
        ({"log_inof": True}, 400, "there is no log setting 'log_inof'; did you mean 'log_info'?"),
    ],
)
def test_a_log_setting_that_cannot_be_set_changes_nothing(
    stated: dict[str, object], status: int, sentence: str
) -> None:
    with pytest.raises(RepositoryError) as caught:
        change_log_settings({"log_warning": False, **stated})
    assert caught.value.refusal.http_status == status
    assert caught.value.message.startswith(sentence)
    assert levels() == LogLevels()


@pytest.mark.parametrize(
    ("stated", "status", "sentence"),
    [
        ({"trace_level": ["TIMESTAMPS"]}, 501, "trace level 'TIMESTAMPS' is not supported: this gateway"),
        ({"trace_level": ["OFF", "OFF"]}, 400, "Expect only one trace level 'OFF' is specified"),
        ({"trace_level": ["ON"]}, 400, "there is no trace level 'ON'"),
        ({"trace_level": [1]}, 400, "trace_level must be a list of strings"),
        ({"trace_file": "x"}, 501, "trace file location can not be updated through network protocol"),
        ({"trace_rate": "1"}, 501, "trace_rate stays '1000': this gateway writes no trace file"),
        ({"trace_rat": "1"}, 400, "there is no trace setting 'trace_rat'; did you mean 'trace_rate'?"),
    ],
)
def test_a_trace_setting_that_would_have_no_effect_is_refused(
    stated: dict[str, object], status: int, sentence: str
) -> None:
    with pytest.raises(RepositoryError) as caught:
        TraceExtension().change(stated)
    assert caught.value.refusal.http_status == status
    assert caught.value.message.startswith(sentence)


@pytest.mark.parametrize(
    "stated",
    [{}, {"trace_level": ["OFF"]}, {"trace_level": None}, {"trace_rate": "1000"}, {"trace_count": ["-1"]}],
)
def test_a_trace_setting_that_is_so_anyway_is_taken(stated: dict[str, object]) -> None:
    TraceExtension().change(stated)


async def test_over_rest_both_are_read_and_set() -> None:
    app = FastAPI()
    add_settings(app, FakeServing(), TraceExtension())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        assert (await client.get("/v2/logging")).json() == log_settings()
        answer = await client.post("/v2/logging", json=QUIET)
        assert answer.json() == {**QUIET, "log_file": "", "log_format": "default"}
        assert not levels().info
        for path in ("/v2/trace/setting", "/v2/models/simple/trace/setting"):
            assert (await client.get(path)).json() == TraceExtension().read()
            assert (await client.post(path, json={"trace_level": ["OFF"]})).json() == TraceExtension().read()
            assert (await client.post(path, json={"trace_level": ["TENSORS"]})).status_code == 501
        unknown = await client.get("/v2/models/nobody/trace/setting")
        assert (unknown.status_code, unknown.json()) == (
            400, {"error": "Request for unknown model : nobody"},
        )  # fmt: skip
        for body, status in ((b"[]", 400), (b"{", 400), (b" " * (1 << 15), 413)):
            assert (await client.post("/v2/logging", content=body)).status_code == status


@asynccontextmanager
async def offered(settings: AdminSettings) -> AsyncIterator[triton_grpc.InferenceServerClient]:
    """tritonclient at a gRPC port with both, behind the guard."""
    core, guard = Core(), ChangeGuard(settings, "127.0.0.1")
    edge = Edge(core, Limits())
    for name, method in settings_methods(core, TraceExtension()).items():
        edge.server.offer({name: guard.method_that_may_ask(name, method, only_asks)})
    address = f"127.0.0.1:{await edge.server.start(0)}"
    try:
        async with triton_grpc.InferenceServerClient(address) as client:
            yield client
    finally:
        await edge.server.stop(0)


async def test_over_grpc_tritonclient_reads_and_sets_both() -> None:
    async with offered(AdminSettings(on_inference_ports=True)) as client:
        found = await client.update_log_settings(QUIET, as_json=True)
        assert found["settings"]["log_info"] == {"bool_param": False}
        assert found["settings"]["log_verbose_level"] == {"uint32_param": 0}
        assert not levels().info
        traces: dict[str, Any] = await client.get_trace_settings("simple", as_json=True)
        assert traces["settings"]["trace_level"] == {"value": ["OFF"]}
        assert await client.update_trace_settings(settings={"trace_level": None}, as_json=True) == traces
        for settings, sentence in (
            ({"trace_level": ["TIMESTAMPS"]}, "UNIMPLEMENTED.*writes no trace file"),
            ({"trace_file": "x"}, "trace file location can not be updated through network protocol"),
        ):
            with pytest.raises(InferenceServerException, match=sentence):
                await client.update_trace_settings(settings=settings)
        with pytest.raises(InferenceServerException, match="Request for unknown model : nobody"):
            await client.get_trace_settings("nobody")


async def test_a_closed_grpc_port_reads_but_does_not_set() -> None:
    async with offered(AdminSettings()) as client:
        assert (await client.get_log_settings()).settings["log_info"].bool_param
        with pytest.raises(InferenceServerException, match=r"PERMISSION_DENIED.*the admin door"):
            await client.update_log_settings(QUIET)
        with pytest.raises(InferenceServerException, match=r"PERMISSION_DENIED.*the admin door"):
            await client.update_trace_settings(settings={"trace_level": ["OFF"]})
    assert levels() == LogLevels()


@pytest.mark.parametrize(("role", "may"), [("admin", True), ("read", False)])
async def test_a_key_needs_the_role_admin_to_set(role: str, may: bool) -> None:
    class EndedError(Exception):
        pass

    class Context:
        """As much of a call's context as an ended call needs."""

        code: grpc.StatusCode | None = None

        async def abort(self, code: grpc.StatusCode, _details: str) -> None:
            self.code = code
            raise EndedError

    method = settings_methods(Core(), TraceExtension())["LogSettings"]
    request = triton_grpc.service_pb2.LogSettingsRequest()
    request.settings["log_info"].bool_param = False
    context, token = Context(), CALLER.set(Identity("k", "default", frozenset((role,))))
    try:
        await method(request, context)
    except EndedError:
        assert context.code is grpc.StatusCode.PERMISSION_DENIED
    finally:
        CALLER.reset(token)
    assert levels().info is not may
