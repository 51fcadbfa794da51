"""`cells:` as a CellsSpec: this gateway among several that share models, and where they meet."""

import os
import socket
from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator

from router.settings.door.auth import is_loopback
from router.settings.door.tls import TlsSettings
from router.settings.machine.nodes import read_token
from router.settings.served.redis import read_redis
from router.settings.values.fields import Name, Port, Text, refuse
from router.settings.values.findings import Findings
from router.settings.values.problems import fault
from router.settings.values.schema import Section
from serving.cache.spec import CacheSpec, RedisSpec
from serving.runtime.cells.address import ANYWHERE
from serving.runtime.cells.spec import TOKEN_ENV, CellsSpec

LOC: Final = ("cells",)


def _is_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise refuse(fault("not an address", value, "HOST:PORT, such as 10.0.0.7:8006"))
    return value


class CellsSection(Section):
    """`cells:`; the defaults are those of CellsSpec. `redis`: None for the one of `cache:`."""

    name: Name | None = None
    redis: object = None
    host: Text | None = None
    port: Port | None = None
    address: Annotated[Text, AfterValidator(_is_address)] | None = None
    token_env: Text = TOKEN_ENV
    ca: Text | None = None


def read_cells(
    findings: Findings, cache: CacheSpec | None, tls: TlsSettings | None, ports: Sequence[int]
) -> CellsSpec | None:
    """Return the section; None if there is none, or if it is faulty. `ports`: of the other doors."""
    if not isinstance(findings.document.at(LOC), dict):
        return None
    section = findings.parse(CellsSection, LOC)
    if section is None:
        return None
    redis = _read_redis(findings, section, cache)
    _check_address(findings, section, redis)
    token = read_token(findings, LOC, section.token_env, "cells")
    default = CellsSpec("", RedisSpec(""))
    host = section.host or default.host
    port = default.port if section.port is None else section.port
    _check_port(findings, port, ports)
    if tls is None and not is_loopback(host):
        message = (
            f"whoever sees the network of {host} sees tensors; expected `tls:` in `server:`, or a network of "
            "your own"
        )
        findings.warn((*LOC, "host"), message)
    ca = _read_ca(findings, section, tls)
    if redis is None:
        return None
    name = section.name or socket.gethostname()
    return CellsSpec(name, redis, token, host, port, section.address or "", tls is not None, ca)


def _read_redis(findings: Findings, section: CellsSection, cache: CacheSpec | None) -> RedisSpec | None:
    if section.redis is not None:
        for key in ("budget_ms", "key_env"):
            if findings.document.at((*LOC, "redis", key)) is not None:
                message = f"`{key}` is of kept answers, and cells keep none there; expected no `{key}` here"
                findings.add((*LOC, "redis", key), message, at_key=True)
        return read_redis(findings, (*LOC, "redis"))
    if cache is not None and cache.redis is not None:
        return cache.redis
    if findings.document.at(("cache", "redis")) is None:
        findings.add(LOC, "no Redis where the cells meet; expected `redis: redis://host:6379/0`")
    return None


def _check_port(findings: Findings, port: int, ports: Sequence[int]) -> None:
    if port and port in ports:
        findings.add((*LOC, "port"), fault("the port of another door", port, "a port of its own"))


def _check_address(findings: Findings, section: CellsSection, redis: RedisSpec | None) -> None:
    """Add a fault if the gateway cannot tell where others reach it: its way to Redis stays on the machine."""
    host = "" if redis is None else urlsplit(redis.url).hostname
    if section.address is None and section.host in ANYWHERE and (not host or is_loopback(host)):
        expected = "`address: HOST:8006`, by which the other gateways reach this one"
        findings.add((*LOC, "host"), f"{section.host} is no address for others; expected {expected}")


def _read_ca(findings: Findings, section: CellsSection, tls: TlsSettings | None) -> str:
    if section.ca is None:
        return ""
    if tls is None:
        findings.add((*LOC, "ca"), "the doors have no TLS; expected `tls:` in `server:`, or no `ca`")
    path = os.path.abspath(findings.document.file.parent / section.ca)
    if not os.path.isfile(path):
        findings.add((*LOC, "ca"), fault("no such file", section.ca, "a file with certificates (PEM)"))
    return path
