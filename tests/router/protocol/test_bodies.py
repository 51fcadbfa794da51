"""Bodies on every route of the whole application: too large, and broken off by clients that leave."""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from router.logs.logs import AUDIT
from router.management.admin.guard import ADMIN_DOOR
from router.settings import load_settings
from router.settings.values.document import FILE_BYTES_MAX
from router.startup.deployment import GatewayServer
from tests.router.settings.samples import write_deployment

GATEWAY = """\
server: {rest_port: 0, grpc_port: 0, metrics_port: 0}
admin: {port: 0}
slices: [{name: a, cores: 1}]
models: [{path: models/digits}]
repository: {folders: [models]}
"""
Messages = list[dict[str, Any]]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[FastAPI]:
    """That of a whole gateway, whose workers are not started."""
    settings = load_settings(write_deployment(tmp_path, GATEWAY))
    settings = replace(settings, profiles=tmp_path / "profiles")
    deployment = GatewayServer(settings, settings, lambda _line: None)
    found = deployment.rest._config.app
    assert isinstance(found, FastAPI)
    yield found
    await deployment.close()


async def ask(app: FastAPI, method: str, path: str, pieces: Messages, **fields: str) -> tuple[Messages, int]:
    """What the application sends, and how many of the pieces of a body it took."""
    sent: Messages = []
    left = [*pieces]

    async def receive() -> dict[str, Any]:
        return left.pop(0) if left else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": "",
        "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "penstock.door": ADMIN_DOOR, "client": None,
        "headers": [(b"host", b"localhost")]
        + [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()],
    }  # fmt: skip
    await app(scope, receive, send)  # what it raises, uvicorn would log with its traceback
    return sent, len(pieces) - len(left)


async def test_a_client_that_leaves_in_mid_body_costs_no_line_whatever_it_asked_for(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tried = 0
    piece = {"type": "http.request", "body": b'{"a', "more_body": True}
    for route in app.routes:
        if not isinstance(route, APIRoute):
            continue
        values = dict.fromkeys(route.param_convertors, "a") | {"model": "digits"}
        path = route.path.replace(":path", "").format(**values).replace("versions/a", "versions/1")
        for method in (route.methods or set()) & {"POST", "PUT", "PATCH"}:
            tried += 1
            sent, _ = await ask(app, method, path, [piece])
            assert sent[0]["status"] != 500, path
    assert tried > 15
    assert not [record for record in caplog.records if record.name != AUDIT]


async def test_a_placement_is_refused_before_more_than_it_may_have_is_read(app: FastAPI) -> None:
    more = {"type": "http.request", "body": b" " * 65536, "more_body": True}
    sent, taken = await ask(app, "PUT", "/v2/placement", [more] * 1000)
    assert (sent[0]["status"], taken) == (413, FILE_BYTES_MAX // 65536 + 1)
    assert b"256 KB" in sent[1]["body"]
    sent, taken = await ask(app, "PUT", "/v2/placement", [more] * 1000, content_length="65536000")
    assert (sent[0]["status"], taken) == (413, 0)
