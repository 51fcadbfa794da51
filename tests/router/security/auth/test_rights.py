"""Every route and every gRPC method of a gateway has the roles that it is to have; what is new is closed."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Route
from tritonclient.grpc import service_pb2

from router.protocol.dialects.catalogue import ENDPOINTS
from router.security.auth.rights import (
    ADMINS,
    ANYBODY,
    CALLERS,
    CLIENTS,
    WATCHERS,
    NeededRight,
    need_of,
    rpc_roles,
)
from router.settings import load_settings
from router.startup.deployment import GatewayServer
from tests.router.settings.samples import write_deployment

KINDS, VERBS = ("System", "Cuda"), ("Register", "Unregister")
OPEN = {"/v2/health/live", "/v2/health/ready", "/livez", "/readyz", "/healthz", "/", "/page/{name}"}
INFERRING = {"infer", "feedback", "generate", "generate_stream"}
OWN = ("/register", "/unregister")
"""Ends of paths of POSTs that reach only what their caller has registered."""
APPLICATIONS = {path for endpoint in ENDPOINTS.values() for path in endpoint.paths}


@pytest.fixture
async def routes(tmp_path: Path) -> list[tuple[str, str]]:
    """(method, path) of all routes of a gateway."""
    settings = load_settings(write_deployment(tmp_path))
    deployment = GatewayServer(settings, settings, lambda _line: None)
    app = cast(FastAPI, deployment.rest._config.app)
    found = [*_routes(app)]
    await deployment.close()
    assert len(found) > 30
    return found


def _routes(app: FastAPI) -> Iterator[tuple[str, str]]:
    for route in app.routes:
        if isinstance(route, APIRoute | Route):
            for method in route.methods or ():
                yield method, route.path


async def test_what_reads_needs_no_admin_and_what_changes_something_does(
    routes: list[tuple[str, str]],
) -> None:
    for method, path in routes:
        roles = need_of(method, path.replace("{model}", "m")).roles
        where = f"{method} {path}"
        if path in OPEN:
            assert roles is ANYBODY, where
        elif method in ("GET", "HEAD"):
            if path.startswith("/docs/"):
                continue
            assert roles in (CLIENTS, WATCHERS), where
        elif path.rpartition("/")[2] in INFERRING or path.endswith(OWN) or path in APPLICATIONS:
            assert roles is CALLERS, where
        elif path.endswith(("/index", "/what-if")):
            assert roles is WATCHERS, where
        else:
            assert roles is ADMINS, where


async def test_a_route_of_a_model_is_of_that_model(routes: list[tuple[str, str]]) -> None:
    for method, path in routes:
        if path.startswith(("/v2/models/{model}", "/v1/models/{model}")):
            of_a_version = path.replace("{model}", "a.b-1").replace("{model_version}", "1")
            assert need_of(method, of_a_version).model == "a.b-1", path


@pytest.mark.parametrize(
    ("method", "path", "need"),
    [
        ("POST", "/v2/models/m/infer", NeededRight(CALLERS, "m")),
        ("POST", "/v2/models/m/versions/7/infer", NeededRight(CALLERS, "m")),
        ("POST", "/v1/embeddings", NeededRight(CALLERS)),
        ("POST", "/v1/models/m:predict", NeededRight(CALLERS, "m")),
        ("GET", "/v1/models/m", NeededRight(CLIENTS, "m")),
        ("GET", "/v1/models/m:predict", NeededRight(ADMINS)),
        ("GET", "/v2/models/stats", NeededRight(WATCHERS)),
        ("GET", "/v2/models/m", NeededRight(CLIENTS, "m")),
        ("HEAD", "/v2/models/m/ready", NeededRight(CLIENTS, "m")),
        ("HEAD", "/livez", NeededRight(ANYBODY)),
        ("POST", "/livez", NeededRight(ADMINS)),
        ("GET", "/livez/", NeededRight(ADMINS)),
        ("DELETE", "/v2/models/m", NeededRight(ADMINS, "m")),
        ("GET", "/v2/models/m/infer", NeededRight(ADMINS, "m")),
        ("POST", "/v2/models/m/infer/", NeededRight(ADMINS)),
        ("POST", "/v2/models/a/b/infer", NeededRight(ADMINS)),
        ("POST", "/v2/repository/any/index", NeededRight(WATCHERS)),
        ("POST", "/v2/systemsharedmemory/region/r/register", NeededRight(CALLERS)),
        ("GET", "/v2/systemsharedmemory/region/r/status", NeededRight(CLIENTS)),
        ("GET", "/v2/systemsharedmemory/region/r/register", NeededRight(ADMINS)),
        ("POST", "/v2/systemsharedmemory/region/r/status", NeededRight(ADMINS)),
        ("POST", "/v2/systemsharedmemory/region/a/b/register", NeededRight(ADMINS)),
        ("POST", "/v2/repository/models/m/load", NeededRight(ADMINS)),
        ("GET", "/v2/rollouts/m/prediction", NeededRight(WATCHERS)),
        ("POST", "/v2/rollouts/m/prediction", NeededRight(ADMINS)),
        ("GET", "/v2/new", NeededRight(ADMINS)),
    ],
)
def test_a_request_needs(method: str, path: str, need: NeededRight) -> None:
    assert need_of(method, path) == need


@given(st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH"]), st.text(max_size=60))
def test_only_probes_need_no_key(method: str, path: str) -> None:
    assert (need_of(method, path).roles is ANYBODY) == (method == "GET" and path in OPEN)
    assert need_of(method, "/v2/health/live\n").roles is ADMINS


def test_methods_of_grpc_have_the_roles_of_their_twins() -> None:
    methods = [each.name for each in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods]
    by_roles = {roles: {name for name in methods if rpc_roles(name) is roles} for roles in
                (ANYBODY, CLIENTS, CALLERS, WATCHERS)}  # fmt: skip
    assert by_roles == {
        ANYBODY: {"ServerLive", "ServerReady"},
        CLIENTS: {
            "ModelReady",
            "ServerMetadata",
            "ModelMetadata",
            "ModelConfig",
            "SystemSharedMemoryStatus",
            "CudaSharedMemoryStatus",
        },
        CALLERS: {
            "ModelInfer",
            "ModelStreamInfer",
            *(f"{kind}SharedMemory{verb}" for kind in KINDS for verb in VERBS),
        },
        WATCHERS: {
            "ModelStatistics",
            "RepositoryIndex",
            "TraceSetting",
            "LogSettings",
        },
    }
    assert rpc_roles("RepositoryModelLoad") is rpc_roles("AnythingNew") is ADMINS
