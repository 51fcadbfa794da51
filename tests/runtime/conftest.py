"""What several files of tests ask for by name."""

from collections.abc import Iterator

import pytest

from loadtests.stand.redis_server import RedisServer, redis_server
from tests.runtime.redis_tiers import away_after


@pytest.fixture(scope="module")
def one_server() -> Iterator[RedisServer]:
    with redis_server() as started:
        yield started


@pytest.fixture
def server(one_server: RedisServer) -> RedisServer:
    """Empty. Tests that stop or kill have one of their own."""
    one_server.client().flushall()
    return one_server


@pytest.fixture
def patient_tier() -> Iterator[None]:
    """A machine that stands still for a while is no server that has gone."""
    with away_after(5.0):
        yield
