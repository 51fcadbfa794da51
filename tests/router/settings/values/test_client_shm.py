"""`client_shm:` of `server:` in penstock.yaml: what clients may register, and what is wrong with it."""

from pathlib import Path

import pytest

from router.settings import load_settings
from router.settings.values.client_shm import ClientShm
from tests.router.settings.samples import gateway_faults, write_gateway

MODELS = "models: [{path: models/digits}]"


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("", None),
        ("server: {client_shm: }", None),
        ("server: {client_shm: false}", None),
        ("server: {client_shm: true}", ClientShm(64, 1 << 30)),
        ("server: {client_shm: {}}", ClientShm(64, 1 << 30)),
        ("server: {client_shm: {regions: null, mb: 0.5}}", ClientShm(64, 1 << 19)),
        ("server: {client_shm: {regions: 1024}}", ClientShm(1024, 1 << 30)),
    ],
)
def test_what_clients_may_register(home: Path, section: str, expected: ClientShm | None) -> None:
    assert load_settings(write_gateway(home, f"{section}\n{MODELS}")).server.client_shm == expected


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ("server: {client_shm: 5}",
         "1:22: server.client_shm: not true or false; got 5, expected true, or how much: {regions: 64, "
         "mb: 1024}"),
        ("server: {client_shm: {region: 5}}", "1:23: server.client_shm.region: unknown key; got 'region', "
         "expected regions or mb (did you mean regions?)"),
        ("server: {client_shm: {regions: 0}}",
         "1:32: server.client_shm.regions: too small; got 0, expected 1 or more"),
        ("server: {client_shm: {regions: 1025}}",
         "1:32: server.client_shm.regions: too large; got 1025, expected 1024 or less"),
        ("server: {client_shm: {mb: much}}",
         "1:27: server.client_shm.mb: not a number; got 'much', expected a number"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_place(home: Path, section: str, fault: str) -> None:
    assert gateway_faults(home, f"{section}\n{MODELS}") == [f"penstock.yaml:{fault}"]
