"""One gateway with the sample settings for all tests that only talk to it."""

from collections.abc import Iterator

import pytest

from tests.acceptance.gateway import SAMPLE, GatewayProcess


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    started = GatewayProcess.start(SAMPLE, tmp_path_factory.mktemp("gateway") / "log")
    yield started
    assert started.stop() == 0, started.output
