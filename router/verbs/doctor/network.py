"""Ports that the gateway is to listen on, and the Redis that it is to ask."""

import asyncio
import http.client
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from router.settings import Settings
from router.verbs.doctor.finding import Finding, fault, listed, ok, warning
from serving.cache.spec import RedisSpec
from serving.runtime.caching.redis_wire import server_version

REDIS_MIN: Final = (6, 2)
_ANSWER_S: Final = 0.5


def check_ports(settings: Settings, is_gateway: Callable[[str, int], bool] | None = None) -> Finding:
    """Return whether each port is free: the check takes it for a moment, without listening there."""
    server = settings.server
    wanted = list(_wanted(settings))
    ask = partial(_is_gateway, secure=server.tls is not None)
    refused = [(key, port, why) for key, host, port in wanted if (why := _refusal(host, port))]
    refused += [("admin.socket", 0, why) for why in _socket_refusal(settings)]
    if not refused:
        return ok("ports", f"free: {listed([f'{key} {port}' for key, _, port in wanted]) or 'any'}")
    if refused[0][0] == "rest_port" and (is_gateway or ask)(server.host, server.rest_port):
        sentence = f"a gateway already answers at port {server.rest_port}"
        return warning("ports", sentence, "stop it before you start another, or give this one other ports")
    what = listed([f"{key} {port or ''}".strip() + f" ({why})" for key, port, why in refused])
    return fault(
        "ports",
        f"the gateway could not listen at {what}",
        "end what listens there (ss -ltnp), or choose another port",
    )


def check_redis(spec: RedisSpec, ask: Callable[[RedisSpec], str] | None = None) -> Finding:
    """Return whether Redis answers, and knows what is asked of it."""
    try:
        version = (ask or _version)(spec)
    except OSError as error:
        sentence = f"{spec.place} does not answer: {error}"
        return fault("redis", sentence, "start Redis there, or correct `redis:` (url, password_env)")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < REDIS_MIN:
        sentence = f"{spec.place} is Redis {version}, and {'.'.join(map(str, REDIS_MIN))} is needed"
        return fault("redis", sentence, "update Redis")
    return ok("redis", f"{spec.place} answers (Redis {version})")


def _wanted(settings: Settings) -> Iterator[tuple[str, str, int]]:
    server, admin = settings.server, settings.admin
    for key in ("rest_port", "grpc_port", "metrics_port"):
        if port := getattr(server, key):
            yield key, server.host, port
    if admin.socket is None and admin.port:
        yield "admin.port", admin.host, admin.port


def _refusal(host: str, port: int) -> str:
    """Return why a gateway could not listen there, "" where it could."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as found:
            found.setsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
            )  # as the gateway: past ones do not count
            found.bind(address)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _socket_refusal(settings: Settings) -> Iterator[str]:
    path = settings.admin.socket
    if path is None or not path.exists():
        return
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(_ANSWER_S)
        if caller.connect_ex(os.fspath(path)) == 0:
            yield "another process listens there"


def _is_gateway(host: str, port: int, secure: bool = False) -> bool:
    """Return whether what listens there answers as a gateway does. `secure`: it speaks TLS, and any
    certificate will do."""
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_S)
    if secure:
        trusting = ssl._create_unverified_context()  # noqa: S323,SLF001  # nothing is sent that is secret
        connection = http.client.HTTPSConnection(host, port, timeout=_ANSWER_S, context=trusting)
    try:
        connection.request("GET", "/v2/health/live")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _version(spec: RedisSpec) -> str:
    return asyncio.run(server_version(spec))
