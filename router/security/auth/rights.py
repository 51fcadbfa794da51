"""What each request needs: which roles may make it, and of which model it is. A table, and nothing else.

What the table does not name needs the role admin, so that a route that is added later is closed at first.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from router.protocol.dialects.catalogue import PATHS
from router.settings.keys import ADMIN, INFER, READ

Roles = frozenset[str]

ANYBODY: Final[Roles] = frozenset()
"""No key is needed: a load balancer has none."""
CALLERS: Final[Roles] = frozenset((INFER, ADMIN))
CLIENTS: Final[Roles] = frozenset((INFER, READ, ADMIN))
WATCHERS: Final[Roles] = frozenset((READ, ADMIN))
ADMINS: Final[Roles] = frozenset((ADMIN,))


@dataclass(frozen=True, slots=True)
class NeededRight:
    """`roles`: any of these will do, ANYBODY without a key. `model`: the one that it is of, "" for none."""

    roles: Roles
    model: str = ""


_PLACES: Final[Mapping[tuple[str, str], Roles]] = MappingProxyType(
    {
        **{("GET", path): ANYBODY for path in ("/v2/health/live", "/v2/health/ready")},
        **{("GET", path): ANYBODY for path in ("/livez", "/healthz", "/readyz", "/")},
        **{("GET", path): CLIENTS for path in ("/v2", "/v2/", "/v2/models", "/docs", "/openapi.json")},
        **{("GET", path): WATCHERS for path in ("/v2/models/stats", "/v2/status", "/v2/placement")},
        **{("GET", f"/v2/{name}"): WATCHERS for name in ("cells", "requests", "live", "events", "rollouts")},
        **{("GET", f"/v2/{kind}sharedmemory/status"): CLIENTS for kind in ("system", "cuda")},
        **{("POST", f"/v2/{kind}sharedmemory/unregister"): CALLERS for kind in ("system", "cuda")},
        **{("POST", path): WATCHERS for path in ("/v2/repository/index", "/v2/what-if")},
        **{("GET", path): WATCHERS for path in ("/v2/logging", "/v2/trace/setting")},
        **{("POST", path): CALLERS for path in PATHS},
        ("GET", "/v1/models"): CLIENTS,
    }
)
_OF_MODELS: Final[Mapping[tuple[str, str], Roles]] = MappingProxyType(
    {
        ("GET", ""): CLIENTS,
        ("GET", "config"): CLIENTS,
        ("GET", "example"): CLIENTS,
        ("GET", "ready"): CLIENTS,
        ("POST", "infer"): CALLERS,
        ("POST", "generate"): CALLERS,
        ("POST", "generate_stream"): CALLERS,
        ("POST", "feedback"): CALLERS,
        ("GET", "stats"): WATCHERS,
        ("GET", "trace/setting"): WATCHERS,
        ("GET", "selection"): WATCHERS,
        ("GET", "explain"): WATCHERS,
    }
)
_MODEL: Final = re.compile(r"/v2/models/([^/]+)(?:/versions/[^/]+)?(?:/([a-z_]+|trace/setting))?\Z")
_REGION: Final = re.compile(r"/v2/(?:system|cuda)sharedmemory/region/[^/]+/(register|unregister|status)\Z")
"""A caller reaches only what it has registered itself."""
_APPLICATION: Final = re.compile(r"/v1/models/([^/:]+)(:predict)?\Z")
_REQUEST: Final = re.compile(r"/v2/requests/.+\Z")
_PAGE: Final = re.compile(r"/page/[^/]+\Z")
"""Files of the operators' page, the same for every gateway: what it shows is read with a key."""
_ROLLOUT: Final = re.compile(r"/v2/rollouts/[^/]+/prediction\Z")
_REPOSITORY: Final = re.compile(r"/v2/repository/[^/]+/index\Z")

_RPC: Final[Mapping[str, Roles]] = MappingProxyType(
    {
        "ServerLive": ANYBODY,
        "ServerReady": ANYBODY,
        "ModelReady": CLIENTS,
        "ServerMetadata": CLIENTS,
        "ModelMetadata": CLIENTS,
        "ModelConfig": CLIENTS,
        "ModelInfer": CALLERS,
        "ModelStreamInfer": CALLERS,
        "ModelStatistics": WATCHERS,
        "RepositoryIndex": WATCHERS,
        **{f"{kind}SharedMemoryStatus": CLIENTS for kind in ("System", "Cuda")},
        **{f"{kind}SharedMemoryRegister": CALLERS for kind in ("System", "Cuda")},
        **{f"{kind}SharedMemoryUnregister": CALLERS for kind in ("System", "Cuda")},
        "TraceSetting": WATCHERS,  # of one that changes something, its handler asks for more
        "LogSettings": WATCHERS,
    }
)


def need_of(method: str, path: str) -> NeededRight:
    """Return what a REST request needs; `path` is decoded, as the application's own routes see it."""
    method = "GET" if method == "HEAD" else method
    roles = _PLACES.get((method, path))
    if roles is not None:
        return NeededRight(roles)
    found = _MODEL.match(path)
    if found is not None:
        return NeededRight(_OF_MODELS.get((method, found.group(2) or ""), ADMINS), found.group(1))
    region = _REGION.match(path)
    if region is not None:
        reads = method == "GET" and region.group(1) == "status"
        changes = method == "POST" and region.group(1) != "status"
        return NeededRight(CLIENTS if reads else CALLERS if changes else ADMINS)
    found = _APPLICATION.match(path)
    if found is not None and method == ("POST" if found.group(2) else "GET"):
        return NeededRight(CALLERS if found.group(2) else CLIENTS, found.group(1))
    if method == "GET" and _PAGE.match(path):
        return NeededRight(ANYBODY)
    reads = (method == "POST" and _REPOSITORY.match(path)) or (
        method == "GET" and (_REQUEST.match(path) or _ROLLOUT.match(path))
    )
    return NeededRight(WATCHERS if reads else ADMINS)


def asks_model(method: str, path: str) -> bool:
    """Return whether a request is inference at an application's endpoint."""
    return method == "POST" and (path in PATHS or path.endswith(":predict"))


def rpc_roles(method: str) -> Roles:
    """Return the roles that may call a method of the inference service."""
    return _RPC.get(method, ADMINS)
