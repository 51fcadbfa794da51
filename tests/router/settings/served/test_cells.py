"""`cells:`: what a file becomes, and the one sentence for each way to get it wrong."""

import socket
from pathlib import Path

import pytest

from router.settings import load_settings
from tests.router.settings.samples import gateway_faults, write_gateway

MODELS = "models: [{path: models/digits}]\n"
REDIS = "redis://127.0.0.1:6379/0"
TOKEN = "0123456789abcdef"  # noqa: S105
NAME = "PENSTOCK_CELL_TOKEN"


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, TOKEN)


def test_the_section_says_where_cells_meet(home: Path) -> None:
    text = f'cells: {{name: a, redis: "{REDIS}", host: 0.0.0.0, port: 9006, address: "10.0.0.7:9006"}}\n'
    cells = load_settings(write_gateway(home, MODELS + text)).cells
    assert cells is not None
    assert (cells.name, cells.host, cells.port, cells.address) == ("a", "0.0.0.0", 9006, "10.0.0.7:9006")
    assert (cells.redis.url, cells.token, cells.tls) == (REDIS, TOKEN, False)
    assert TOKEN not in repr(cells)


def test_what_is_left_out_has_a_default(home: Path) -> None:
    settings = load_settings(write_gateway(home, f'{MODELS}cache: {{redis: "{REDIS}"}}\ncells: {{}}\n'))
    cells = settings.cells
    assert cells is not None
    assert (cells.name, cells.redis.url) == (socket.gethostname(), REDIS)
    assert (cells.host, cells.port, cells.address) == ("127.0.0.1", 8006, "")
    assert load_settings(write_gateway(home, MODELS)).cells is None


def test_the_address_may_be_found_by_the_way_to_redis(home: Path) -> None:
    text = "cells: {redis: 'redis://redis.example:6379/0', host: 0.0.0.0}\n"
    cells = load_settings(write_gateway(home, MODELS + text)).cells
    assert cells is not None
    assert (cells.host, cells.address) == ("0.0.0.0", "")


def test_redis_may_have_a_section_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "sesame")
    text = f'cells: {{redis: {{url: "{REDIS}", password_env: SECRET, namespace: blue}}}}\n'
    cells = load_settings(write_gateway(home, MODELS + text)).cells
    assert cells is not None
    assert (cells.redis.password, cells.redis.namespace) == ("sesame", "blue")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{}", "no Redis where the cells meet; expected `redis: redis://host:6379/0`"),
        ("{redis: 'http://x'}", "not the URL of a Redis server; got the scheme 'http', expected redis://"),
        ("{redis: {}}", "url"),
        (
            f"{{redis: {{url: '{REDIS}', budget_ms: 5}}}}",
            "cells.redis.budget_ms: `budget_ms` is of kept answers, and cells keep none there",
        ),
        (f"{{redis: {{url: '{REDIS}', key_env: K}}}}", "`key_env` is of kept answers"),
        (f"{{redis: '{REDIS}', port: 8000}}", "the port of another door"),
        (f"{{redis: '{REDIS}', host: 0.0.0.0}}", "0.0.0.0 is no address for others"),
        ("{redis: 'unix:///tmp/redis.sock', host: 0.0.0.0}", "0.0.0.0 is no address for others"),
        (f"{{redis: '{REDIS}', address: here}}", "HOST:PORT, such as 10.0.0.7:8006"),
        (f"{{redis: '{REDIS}', address: 'here:0'}}", "HOST:PORT, such as 10.0.0.7:8006"),
        (f"{{redis: '{REDIS}', ca: ca.pem}}", "the doors have no TLS"),
        (f"{{redis: '{REDIS}', token_env: NONE}}", "the environment has no 'NONE'"),
        (f"{{redis: '{REDIS}', nmae: a}}", "did you mean name?"),
    ],
)
def test_each_fault_has_its_sentence(home: Path, text: str, sentence: str) -> None:
    faults = gateway_faults(home, f"{MODELS}cells: {text}\n")
    assert any(sentence in fault for fault in faults), faults


def test_a_short_token_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "short")
    (fault,) = gateway_faults(home, f"{MODELS}cells: {{redis: '{REDIS}'}}\n")
    assert "the environment has 5 characters as 'PENSTOCK_CELL_TOKEN'" in fault
    assert "the same on all cells" in fault


def test_a_door_for_other_machines_without_tls_is_warned_of(home: Path) -> None:
    text = f"cells: {{redis: '{REDIS}', host: 10.0.0.7}}\n"
    warnings = load_settings(write_gateway(home, MODELS + text)).warnings
    assert any("whoever sees the network of 10.0.0.7 sees tensors" in str(each) for each in warnings)
