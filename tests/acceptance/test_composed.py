"""What docker-compose.yml asks of a running gateway, asked of a real one: its health and its metrics."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.gateway import ROOT, TALK_S, GatewayProcess
from tests.deploy.files import SERVICES

pytestmark = pytest.mark.slow


@pytest.fixture
def draining_slowly(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway that still answers for long after it was told to end."""
    config = tmp_path / "penstock.yaml"
    config.write_text(f"models: [{{path: {ROOT}/models/simple}}]\nlimits: {{drain_grace_s: 100}}\n")
    started = GatewayProcess.start(config, tmp_path / "log")
    yield started
    started.kill()
    started.process.wait()


def is_healthy(gateway: GatewayProcess) -> bool:
    """By the health check of the compose file, run as it stands but for the port."""
    kind, python, *arguments = SERVICES["gateway"]["healthcheck"]["test"]
    assert (kind, python) == ("CMD", "python")
    port = gateway.rest.rpartition(":")[2]
    asked = [argument.replace(":8000/", f":{port}/") for argument in arguments]
    assert asked != arguments
    done = subprocess.run([sys.executable, *asked], capture_output=True, timeout=TALK_S, check=False)
    return done.returncode == 0


def test_the_health_check_passes_while_the_gateway_is_ready_and_only_then(
    draining_slowly: GatewayProcess,
) -> None:
    assert is_healthy(draining_slowly)
    draining_slowly.process.send_signal(signal.SIGTERM)
    while draining_slowly.get("/v2/health/ready")[0] == 200:
        time.sleep(0.01)
    assert not is_healthy(draining_slowly)
    draining_slowly.stop()  # the second signal, which ends it at once
    assert not is_healthy(draining_slowly)


def test_prometheus_finds_metrics_at_its_default_path(gateway: GatewayProcess) -> None:
    assert gateway.metrics.endswith("/metrics")
    families = {family.name for family in text_string_to_metric_families(gateway.read_metrics())}
    assert {"penstock_slo_objective_ratio", "penstock_replicas", "process_cpu_seconds"} <= families
