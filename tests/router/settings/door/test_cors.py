"""`server: {cors}`: which origins it takes, and what is said of others."""

from pathlib import Path

import pytest

from router.settings import load_settings
from tests.router.settings.samples import GATEWAY, gateway_fault, write_gateway

SERVER = "server: {name: test, "


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("[https://App.example.com]", ("https://app.example.com",)),
        ("['http://localhost:5173', 'https://[::1]:8443']", ("http://localhost:5173", "https://[::1]:8443")),
        ("['*']", ("*",)),
    ],
)
def test_origins_are_taken_as_browsers_write_them(home: Path, stated: str, expected: tuple[str, ...]) -> None:
    settings = load_settings(write_gateway(home, GATEWAY.replace(SERVER, f"{SERVER}cors: {stated}, ")))
    assert settings.server.cors == expected


@pytest.mark.parametrize(
    "stated", ["[app.example.com]", "['https://a.b/path']", "https://a.b", "[]", "[1]", "['https://*.a.b']"]
)
def test_what_is_no_origin_is_refused_at_its_place(home: Path, stated: str) -> None:
    fault = gateway_fault(home, SERVER, f"{SERVER}cors: {stated}, ")
    assert ": server.cors: not" in fault
    assert "expected" in fault or "such as" in fault
