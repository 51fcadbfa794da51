"""`server: {forward_headers}`: which parameters a header field may state, and what `check` says of it."""

from pathlib import Path

import pytest

from router.settings import load_settings
from router.settings.gateway import read_served
from router.settings.values.document import read_document
from router.verbs.plan import header_lines
from tests.router.settings.samples import GATEWAY, TEXT, gateway_fault, write_gateway, write_model

PARAMETERS = """\
  - {name: X-User, type: string, default: ""}
  - {name: x-level, type: int, default: 1}
  - {name: authorization, type: string, default: ""}
"""
SERVER = "server: {name: test, "


def file(home: Path, pattern: str) -> Path:
    write_model(home / "models" / "minilm", TEXT + PARAMETERS)
    return write_gateway(home, GATEWAY.replace(SERVER, f"{SERVER}forward_headers: '{pattern}', "))


@pytest.mark.parametrize(
    ("pattern", "names"),
    [("x-.*", {"X-User", "x-level"}), ("x-user", {"X-User"}), (".*", {"X-User", "x-level", "delay_ms"})],
)
def test_parameters_of_a_matching_name_are_marked_but_no_secret_is(
    home: Path, pattern: str, names: set[str]
) -> None:
    path = file(home, pattern)
    for model in (load_settings(path).models[1], *read_served(read_document(path), 1)):
        assert {each.name for each in model.spec.parameters if each.header} == names
    assert load_settings(path).server.forward_headers == pattern
    (line,) = header_lines(load_settings(path).models[1].spec)
    assert all(name.lower() in line for name in names)


def test_without_the_key_no_field_is(home: Path) -> None:
    write_model(home / "models" / "minilm", TEXT + PARAMETERS)
    settings = load_settings(write_gateway(home, GATEWAY))
    assert not any(each.header for model in settings.models for each in model.spec.parameters)
    assert [*header_lines(settings.models[1].spec)] == []


def test_a_pattern_that_no_parameter_has_is_warned_of(home: Path) -> None:
    (warning,) = load_settings(file(home, "y-.*")).warnings
    assert warning.where == "server.forward_headers"
    assert load_settings(file(home, "x-.*")).warnings == ()


@pytest.mark.parametrize("pattern", ["'x-('", "'*'", "''"])
def test_what_is_no_pattern_is_refused_with_its_place(home: Path, pattern: str) -> None:
    fault = gateway_fault(home, SERVER, f"{SERVER}forward_headers: {pattern}, ")
    assert fault.startswith("penstock.yaml:1:")
    assert "server.forward_headers: " in fault
