"""Settings for every test."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import compress
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from tests import seeds

# Shared, noisy machines: a slow example is no failure.
# `make test` draws the same examples at every commit, `make night` more of them, and others from its base.
settings.register_profile(
    "house",
    deadline=None,
    derandomize=not seeds.IS_NIGHT,
    max_examples=seeds.drawn(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")


LIVE = "pytest.mark.live"
HANGS_S = {"acceptance": 400, "loadtests": 300, "models": 300}
"""Seconds after which a test that starts gateways is given up: on a machine that others use it may take
several times as long."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`tests/goldens` has texts that commands print, and `looks` pictures of the page."""
    parser.addoption("--update-goldens", action="store_true", help="write tests/goldens/*.txt again")
    parser.addoption("--update-looks", action="store_true", help="write the page's looks/references again")


def pytest_configure(config: pytest.Config) -> None:
    """Give Hypothesis the base of this run, unless the command names another seed."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(seeds.BASE)


def pytest_report_header() -> str:
    """Say how to repeat what is drawn in this run."""
    return seeds.told()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it again: a quiet run has no header."""
    terminalreporter.write_line(seeds.told())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files without a live test where only these are asked for: to import them takes longer than some
    of the tests. `tests/architecture/test_live.py` holds live tests to the words that are sought here."""
    if collection_path.suffix != ".py" or not str(config.option.markexpr).startswith("live"):
        return None
    is_whole_gateway = collection_path.parent.name == "acceptance"
    return None if is_whole_gateway or LIVE in collection_path.read_text("utf-8") else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of whole gateways as live, give those that start gateways more time, and leave out tests
    that take turns, unless the command names their file."""
    for item in items:
        place = item.path.relative_to(Path(__file__).parent)
        if place.parts[0] == "acceptance":
            item.add_marker(pytest.mark.live)
        if place.parts[0] in HANGS_S:
            item.add_marker(pytest.mark.timeout(HANGS_S[place.parts[0]]))
    if any(".py" in argument for argument in config.args):
        return
    its_turn = [_is_its_turn(item) for item in items]
    config.hook.pytest_deselected(items=[*compress(items, [not each for each in its_turn])])
    items[:] = compress(items, its_turn)


def _is_its_turn(item: pytest.Item) -> bool:
    """Live tests of a file share a gateway, and so their turn."""
    turns = item.get_closest_marker("in_turn")
    is_live = item.get_closest_marker("live") is not None
    return turns is None or seeds.is_turn(item.nodeid.split("::" if is_live else "[")[0], turns.args[0])


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Bytes are named by their argument: gzip puts the time into them, and processes that share the tests
    of one run must find the same names."""
    return argname if isinstance(val, bytes) else None


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Async tests run on the loop that serves: its timers and transports differ from asyncio's."""
    return {"uvloop": uvloop.new_event_loop}
