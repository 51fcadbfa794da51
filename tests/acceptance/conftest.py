"""One gateway with the sample settings for all tests that only talk to it."""

from collections.abc import Iterator

import pytest
import yaml

from tests.acceptance.gateway import PATIENT_MS, ROOT, SAMPLE, GatewayProcess


def patient_sample() -> str:
    """The sample settings, but with SLOs that a machine keeps too that others use: nobody is refused."""
    settings = yaml.safe_load(SAMPLE.read_text())
    for model in settings["models"]:
        model |= {"path": str(ROOT / model["path"]), "slo_ms": PATIENT_MS}
    return yaml.safe_dump(settings | {"profiles": {"folder": str(ROOT / "profiles")}})


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    config = folder / "penstock.yaml"
    config.write_text(patient_sample())
    started = GatewayProcess.start(config, folder / "log")
    yield started
    assert started.stop() == 0, started.output
