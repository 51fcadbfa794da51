"""`admin:` in penstock.yaml: where the door is, and what is wrong with it."""

from pathlib import Path

import pytest

from router.settings import load_settings
from router.settings.door.admin import SOCKET_BYTES_MAX, AdminSettings
from tests.router.settings.samples import GATEWAY, gateway_faults, write_gateway


def read(home: Path, section: str) -> AdminSettings:
    return load_settings(write_gateway(home, f"{section}\n{GATEWAY}")).admin


@pytest.mark.parametrize("section", ["", "admin:", "admin: {}", "admin: {host: null, hosts: null}"])
def test_without_it_the_door_is_on_loopback_and_takes_all_changes(home: Path, section: str) -> None:
    found = read(home, section)
    assert found == AdminSettings("127.0.0.1", 8004, None, (), False, False)
    assert found.address == "http://127.0.0.1:8004"


def test_everything_can_be_stated(home: Path) -> None:
    section = "admin: {host: '::', port: 0, hosts: [a.example, b], on_inference_ports: true, feedback: true}"
    found = read(home, section)
    assert found == AdminSettings("::", 0, None, ("a.example", "b"), True, True)
    assert found.address == ""


def test_a_socket_lies_beside_the_settings_and_needs_no_folder_yet(home: Path) -> None:
    assert read(home, "admin: {socket: run/door}").address == f"unix:{home}/run/door"
    assert read(home, "admin: {socket: /run/penstock/door}").socket == Path("/run/penstock/door")


def test_a_socket_takes_no_port_from_the_others(home: Path) -> None:
    text = "server: {rest_port: 8004}\nadmin: {socket: a}\nmodels: [{path: models/digits}]"
    assert load_settings(write_gateway(home, text)).admin.socket == home / "a"


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ("admin: 8004", "1:8: admin: not a mapping; got 8004, expected keys and values (key: value)"),
        ("admin: {prot: 1}", "1:9: admin.prot: unknown key; got 'prot', expected host, port, socket, hosts, "
         "on_inference_ports or feedback (did you mean port?)"),
        ("admin: {port: 65536}", "1:15: admin.port: too large; got 65536, expected 65535 or less"),
        ("admin: {port: 9000}", "1:15: admin.port: the same port as server.rest_port; got 9000, expected a "
         "port of its own (0 picks a free one)"),
        ("admin: {on_inference_ports: 8000}",
         "1:29: admin.on_inference_ports: not true or false; got 8000, expected true or false"),
        ("admin: {hosts: ['http://a']}", "1:17: admin.hosts[0]: not a host name; got 'http://a', expected a "
         "name without scheme and port, such as ops.example.com"),
        ("admin: {hosts: [a:80]}", "1:17: admin.hosts[0]: not a host name; got 'a:80', expected a name "
         "without scheme and port, such as ops.example.com"),
        ("admin: {socket: a, port: 1}", "1:17: admin.socket: a socket takes the place of host and port; "
         "expected the one or the other"),
        ("admin: {socket: ''}", "1:17: admin.socket: empty; got '', expected text"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_place(home: Path, section: str, fault: str) -> None:
    assert gateway_faults(home, f"{section}\n{GATEWAY}") == [f"penstock.yaml:{fault}"]


def test_a_port_of_the_server_may_not_be_the_doors_default(home: Path) -> None:
    (fault,) = gateway_faults(home, "server: {grpc_port: 8004}\nmodels: [{path: models/digits}]")
    assert "1:21: server.grpc_port: the port of the admin door; got 8004" in fault


def test_a_path_that_no_socket_can_have_is_named(home: Path) -> None:
    (long,) = gateway_faults(home, f"admin: {{socket: /{'a' * SOCKET_BYTES_MAX}}}\n{GATEWAY}")
    assert f"a path of {SOCKET_BYTES_MAX + 1} bytes" in long
    assert read(home, f"admin: {{socket: /{'a' * (SOCKET_BYTES_MAX - 1)}}}").socket is not None
    (zero,) = gateway_faults(home, f'admin: {{socket: "a\\0b"}}\n{GATEWAY}')
    assert "no possible name" in zero
