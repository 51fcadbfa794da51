"""Settings for every test."""

import asyncio
from collections.abc import Callable, Mapping

import uvloop
from hypothesis import HealthCheck, settings

# Shared, noisy machines: a slow example is no failure. Same examples on every run, so that CI repeats.
QUIET = [HealthCheck.too_slow]
settings.register_profile("house", deadline=None, derandomize=True, suppress_health_check=QUIET)
settings.load_profile("house")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Async tests run on the loop that serves: its timers and transports differ from asyncio's."""
    return {"uvloop": uvloop.new_event_loop}
