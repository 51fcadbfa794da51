"""What a start leaves for the time in which clients wait: nothing that Python's collector walks over."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from router.settings import load_settings
from router.startup.deployment import GatewayServer
from router.startup.serve import GENERATIONS, freeze, serve_settings

ROOT = Path(__file__).parents[3]
SOME = 10_000


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """The collector as it was."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
    gc.enable()


def test_what_is_frozen_is_not_walked_over_again() -> None:
    gc.disable()  # as `penstock serve` does while it starts
    freeze()
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    assert frozen > SOME
    assert len(gc.get_objects()) < SOME  # what a later collection walks over
    assert gc.get_threshold() == GENERATIONS


@pytest.mark.slow
def test_imports_are_frozen_before_the_first_client_can_come(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[int]()

    async def bind(_: GatewayServer) -> None:
        seen.append(gc.get_freeze_count())
        raise OSError("the port is taken")

    monkeypatch.setattr(GatewayServer, "bind", bind)
    settings = load_settings(ROOT / "penstock.yaml")
    server = replace(settings.server, rest_port=0, grpc_port=0, metrics_port=0)
    assert serve_settings(replace(settings, server=server)) == 1
    assert seen[0] > SOME
