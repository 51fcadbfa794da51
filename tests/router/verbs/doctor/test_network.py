"""What the checks say of ports that are taken and of Redis, with real sockets."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from router.settings import Settings
from router.settings.door.admin import AdminSettings
from router.verbs.doctor.network import check_ports, check_redis
from serving.cache.spec import RedisSpec
from tests.router.verbs.doctor.roots import deployment, is_fault, is_ok, is_warning


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which this test listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def ports(home: Path, rest_port: int = 0, grpc_port: int = 0) -> Settings:
    """Return settings that want no port but these."""
    settings = deployment(home)
    server = replace(settings.server, rest_port=rest_port, grpc_port=grpc_port, metrics_port=0)
    return replace(settings, server=server, admin=AdminSettings(port=0))


def test_free_ports_are_fine_and_stay_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = int(server.getsockname()[1])
    found = check_ports(ports(tmp_path, rest_port=free))
    assert is_ok(found)
    assert found.sentence == f"free: rest_port {free}"
    socket.create_server(("127.0.0.1", free)).close()
    assert is_ok(check_ports(ports(tmp_path)))


def test_a_taken_port_is_a_fault_and_is_named(tmp_path: Path, taken: int) -> None:
    found = check_ports(ports(tmp_path, grpc_port=taken))
    assert is_fault(found)
    assert found.sentence == f"the gateway could not listen at grpc_port {taken} (address already in use)"
    admin = replace(ports(tmp_path), admin=AdminSettings(port=taken))
    assert f"admin.port {taken}" in check_ports(admin).sentence


def test_an_address_of_another_machine_is_a_fault(tmp_path: Path) -> None:
    settings = ports(tmp_path, rest_port=8000)
    settings = replace(settings, server=replace(settings.server, host="192.0.2.1"))  # RFC 5737
    assert is_fault(check_ports(settings))


def test_a_gateway_that_runs_already_is_a_warning(tmp_path: Path, taken: int) -> None:
    settings = ports(tmp_path, rest_port=taken, grpc_port=taken)
    found = check_ports(settings, lambda host, port: (host, port) == ("127.0.0.1", taken))
    assert is_warning(found)
    assert found.sentence == f"a gateway already answers at port {taken}"
    assert is_fault(check_ports(settings, lambda _, __: False))


def test_an_admin_socket_is_taken_where_somebody_listens(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    settings = replace(ports(tmp_path), admin=AdminSettings(socket=path))
    assert is_ok(check_ports(settings))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert is_ok(check_ports(settings))  # left by an ended process: the gateway replaces it
        server.listen()
        assert is_fault(check_ports(settings))


def test_redis_has_to_answer_and_be_new_enough() -> None:
    spec = RedisSpec("redis://:secret@localhost:7/0")
    assert is_ok(check_redis(spec, lambda _: "7.2.4"))
    assert is_ok(check_redis(spec, lambda _: "6.2.14"))
    old = check_redis(spec, lambda _: "6.0.16")
    assert is_fault(old)
    assert "secret" not in old.sentence


def test_redis_that_is_not_there_is_a_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = check_redis(RedisSpec(f"redis://:secret@127.0.0.1:{port}/0"))
    assert is_fault(found)
    assert found.sentence.startswith(f"redis://127.0.0.1:{port}/0 does not answer")
    assert "secret" not in found.sentence + found.cure
