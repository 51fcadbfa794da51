"""Every route that changes something stands behind the guard, and leaves one line."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from router.grpc.rpc import SERVICE
from router.logs.logs import AUDIT, JsonFormatter
from router.management.admin import ChangeGuard
from router.management.admin.audit import say_edit
from router.management.admin.guard import ASKS, FEEDBACK
from router.security.auth.identity import IDENTITY
from router.settings import load_settings
from router.settings.door.admin import AdminSettings
from router.startup.deployment import GatewayServer
from serving.values.specs import Limits
from tests.router.happenings import text
from tests.router.rpc_edge import Core, Edge, error_of
from tests.router.settings.samples import write_deployment

GATEWAY = """\
server: {rest_port: 0, grpc_port: 0, metrics_port: 0}
admin: {port: 0}
slices: [{name: a, cores: 1}]
models: [{path: models/digits}]
repository: {folders: [models]}
cache:
"""
DROP = "/v2/cache"


@dataclass
class Doors:
    """Clients of both, and the application that both have."""

    rest: httpx.AsyncClient
    admin: httpx.AsyncClient
    app: FastAPI

    def changes(self) -> Iterator[tuple[str, str, str]]:
        """(method, the route's path, a path) of all that has another method than GET."""
        for route in self.app.routes:
            if isinstance(route, APIRoute):
                values = dict.fromkeys(route.param_convertors, "a")
                for method in (route.methods or set()) - {"GET", "HEAD"}:
                    yield method, route.path, route.path.format(**values)


@asynccontextmanager
async def opened(home: Path, admin: str = "") -> AsyncIterator[Doors]:
    """A gateway's application whose workers and ports are not started."""
    settings = load_settings(write_deployment(home, GATEWAY.replace("{port: 0}", f"{{port: 0{admin}}}")))
    settings = replace(settings, profiles=home / "profiles")
    deployment = GatewayServer(settings, settings, lambda _line: None)
    app, behind = deployment.rest._config.app, deployment._admin._config.app
    assert isinstance(app, FastAPI)
    rest, door = (httpx.ASGITransport(app=each) for each in (app, behind))  # type: ignore[arg-type]
    async with (
        httpx.AsyncClient(transport=rest, base_url="http://localhost:8000") as at_rest,
        httpx.AsyncClient(transport=door, base_url="http://localhost:8004") as at_door,
    ):
        yield Doors(at_rest, at_door, app)
    await deployment.close()


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Doors]:
    async with opened(tmp_path) as found:
        yield found


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger=AUDIT)
    return caplog


def records(lines: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in lines.records if record.name == AUDIT]


def audited(lines: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in records(lines)]


async def test_every_route_is_one_that_asks_or_is_refused_at_the_rest_port(doors: Doors) -> None:
    asks = set()
    for method, route, path in doors.changes():
        answer = await doors.rest.request(method, path)
        if answer.status_code != 403:
            asks.add(route)
            continue
        sentence = answer.json()["error"]
        assert "the admin door" in sentence
        assert "on_inference_ports: true" in sentence
        assert (await doors.admin.request(method, path)).status_code != 403, path
    assert asks == ASKS | {FEEDBACK}


@pytest.mark.parametrize(
    "fields",
    [
        {"origin": "http://evil.example", "content-type": "text/plain"},
        {"host": "rebound.example:8004", "origin": "http://rebound.example:8004"},
        {"host": "rebound.example"},
        {"sec-fetch-site": "cross-site"},
    ],
    ids=["another origin", "another name", "another name alone", "another site"],
)
@pytest.mark.parametrize("door", ["rest", "admin"])
async def test_no_page_of_another_site_changes_anything(
    tmp_path: Path, door: str, fields: dict[str, str]
) -> None:
    async with opened(tmp_path, ", on_inference_ports: true") as doors:
        client = doors.rest if door == "rest" else doors.admin
        refused = [
            path
            for method, route, path in doors.changes()
            if route not in ASKS | {FEEDBACK}
            and (await client.request(method, path, headers=fields)).status_code == 403
        ]
        assert sorted(refused) == sorted(
            path for _, route, path in doors.changes() if route not in ASKS | {FEEDBACK}
        )
        assert (await client.request("DELETE", DROP)).status_code == 200
        own = {"origin": str(client.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
        assert (await client.request("DELETE", DROP, headers=own)).status_code == 200


async def test_a_stated_name_is_one_of_ours(tmp_path: Path) -> None:
    called = {"host": "ops.example.com"}
    async with opened(tmp_path, ", hosts: [Ops.example.com]") as doors:
        assert (await doors.admin.delete(DROP, headers=called)).status_code == 200


async def test_feedback_is_for_applications_unless_it_is_to_be_a_change(tmp_path: Path) -> None:
    path = FEEDBACK.format(model="digits")
    for more, status in (("", 400), (", feedback: true", 403)):
        async with opened(tmp_path, more) as doors:
            assert (await doors.rest.post(path)).status_code == status
            assert (await doors.admin.post(path)).status_code == 400


async def test_reading_and_wrong_methods_are_answered_as_before(doors: Doors) -> None:
    for client in (doors.rest, doors.admin):
        assert (await client.get("/v2/placement", headers={"host": "a.example"})).status_code == 200
        assert (await client.post("/v2/repository/index")).status_code == 200
        assert (await client.get(DROP)).status_code == 405
        assert (await client.post("/v2/nothing")).status_code == 404


async def test_connections_of_the_admin_door_are_counted_as_those_of_the_other_edges(tmp_path: Path) -> None:
    settings = load_settings(write_deployment(tmp_path, GATEWAY))
    deployment = GatewayServer(settings, settings, lambda _line: None)
    port = await deployment._admin.start()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(60):
        while not deployment._admin.connection_counts[0]:  # noqa: ASYNC110  # until it is accepted
            await asyncio.sleep(0)
    metrics = text(deployment._telemetry)
    writer.close()
    await deployment.close()
    assert 'penstock_connections{edge="admin",place="regular"} 1\n' in metrics
    for name in ("pushed_out", "refused"):
        assert f'penstock_connections_{name}_total{{edge="admin"}} 0\n' in metrics


async def test_each_change_leaves_one_line(doors: Doors, lines: pytest.LogCaptureFixture) -> None:
    await doors.admin.delete(DROP)
    await doors.admin.delete("/v2/cache/models/nobody%0A2026")
    await doors.rest.delete(DROP)
    await doors.admin.get("/v2/placement")
    by = "127.0.0.1:123"
    assert audited(lines) == [
        {"act": f"DELETE {DROP}", "by": by, "door": "the admin door", "status": 200},
        {"act": "DELETE /v2/cache/models/nobody%0A2026", "by": by, "door": "the admin door", "status": 404},
        {"act": f"DELETE {DROP}", "by": by, "door": "the REST port", "status": 403, "refused": True},
    ]
    assert [record.levelname for record in records(lines)] == ["INFO", "INFO", "WARNING"]
    said = json.loads(JsonFormatter().format(records(lines)[0]))
    assert said["logger"] == AUDIT
    assert said["message"] == f"audit: DELETE {DROP} by {by} through the admin door: 200"
    assert said["status"] == 200


def guarded(fails: bool = False) -> tuple[ChangeGuard, FastAPI]:
    """A guard, and an application of one route that changes something."""
    guard, app = ChangeGuard(AdminSettings(), "127.0.0.1"), FastAPI()

    @app.post("/change")
    async def change() -> dict[str, str]:
        if fails:
            raise RuntimeError("a bug")
        return {}

    guard.stand_before(app)
    return guard, app


@pytest.mark.usefixtures("both_servers")
@pytest.mark.parametrize(
    "message",
    [b"\x12\x06digits" + b"\xff" * 9, b"\x12\x06digits" + b"\x1a\x00" * (1 << 20)],
    ids=["damaged", "large"],
)
@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_closed_grpc_port_refuses_a_change_before_it_reads_the_message(
    message: bytes, compression: grpc.Compression, lines: pytest.LogCaptureFixture
) -> None:
    async def load(_request: Any, _context: Any) -> Any:
        raise AssertionError("the port is closed")

    edge = Edge(Core(), Limits())
    guard = ChangeGuard(AdminSettings(), "127.0.0.1")
    edge.server.offer(guard.methods({"RepositoryModelLoad": load}))
    address = f"127.0.0.1:{await edge.server.start(0)}"
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(f"/{SERVICE}/RepositoryModelLoad")(message, compression=compression)
        code, sentence = await error_of(call)
    await edge.server.stop(0)
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "the admin door" in sentence
    assert [(each["act"], each["status"]) for each in audited(lines)] == [
        ("RepositoryModelLoad 'digits'", "PERMISSION_DENIED")
    ]


async def test_an_identity_is_named_in_place_of_its_address(lines: pytest.LogCaptureFixture) -> None:
    guard, app = guarded()

    async def known(scope: Any, receive: Any, send: Any) -> None:
        scope[IDENTITY] = Path("/keys/ops")  # something with a `name`
        await guard.at_admin(app)(scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=known), base_url="http://[::1]") as client:
        assert (await client.post("/change")).status_code == 200
    assert audited(lines)[0]["by"] == "ops"


async def test_a_change_that_fails_by_a_bug_leaves_its_line_too(lines: pytest.LogCaptureFixture) -> None:
    guard, app = guarded(fails=True)
    transport = httpx.ASGITransport(app=guard.at_admin(app), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.post("/change")).status_code == 500
    assert [each["status"] for each in audited(lines)] == [500]


def test_a_route_of_an_unknown_kind_is_not_let_through() -> None:
    guard, app = guarded()
    app.mount("/more", FastAPI())
    with pytest.raises(TypeError, match="no guard is known for a Mount"):
        guard.stand_before(app)


def test_an_edit_that_is_in_force_is_one_line(lines: pytest.LogCaptureFixture) -> None:
    say_edit("/etc/penstock.yaml is in force (0.1 s)")
    assert [record.getMessage() for record in records(lines)] == ["/etc/penstock.yaml is in force (0.1 s)"]
    assert audited(lines) == [{"act": "edit", "by": "the settings file", "status": "in force"}]
