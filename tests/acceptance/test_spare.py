"""A worker that something outside kills again: its spare answers until the next worker has loaded."""

import os
import signal
import time
from pathlib import Path

import pytest
import yaml

from tests.acceptance.gateway import GatewayProcess, await_true, serving
from tests.acceptance.test_isolation import MODEL_YAML, ask, workers

pytestmark = pytest.mark.slow

LOAD_S = 2
MODEL_PY = f"""
import time


class Model:
    def predict(self, inputs, parameters):
        return {{"Y": inputs["X"]}}


def load(artifact, options):
    time.sleep({LOAD_S})
    return Model()
"""


def write(folder: Path, **workers: object) -> Path:
    (folder / "slow").mkdir()
    (folder / "slow" / "model.yaml").write_text(MODEL_YAML.replace("NAME", "slow"))
    (folder / "slow" / "model.py").write_text(MODEL_PY)
    path = folder / "penstock.yaml"
    settings = {"slices": [{"name": "a", "cores": 1}], "models": [{"path": "slow"}], "workers": workers}
    path.write_text(yaml.safe_dump(settings))
    return path


def kill(gateway: GatewayProcess) -> None:
    """Kill the slice's own worker once it has lived for long enough to have answered."""
    pid = workers(gateway)["a"]["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)


def lived(gateway: GatewayProcess) -> bool:
    """Whether the slice's own worker has answered, and a second more has passed."""
    if ask(gateway, "slow") != 200:
        return False
    time.sleep(1.2)
    return True


def test_the_spare_answers_while_the_killed_worker_loads(tmp_path: Path) -> None:
    with serving(write(tmp_path)) as gateway:
        await_true(lambda: lived(gateway), gateway)
        kill(gateway)
        await_true(lambda: workers(gateway).get("a+spare", {}).get("state") == "ready", gateway)
        await_true(lambda: "standing by" in gateway.get("/v2/status")[1].decode(), gateway)
        restarts = workers(gateway)["a"]["restarts"]
        kill(gateway)
        await_true(lambda: workers(gateway)["a"]["restarts"] != restarts, gateway)
        answered = 0
        while workers(gateway)["a"]["state"] != "ready":
            assert ask(gateway, "slow") == 200
            answered += 1
        assert answered >= 1
        for _ in range(20):  # it loads now, and the spare still answers
            assert ask(gateway, "slow") == 200


def test_a_gateway_without_spares_starts_none(tmp_path: Path) -> None:
    with serving(write(tmp_path, spare=False)) as gateway:
        await_true(lambda: lived(gateway), gateway)
        kill(gateway)
        await_true(lambda: workers(gateway)["a"]["restarts"] == 1, gateway)
        await_true(lambda: ask(gateway, "slow") == 200, gateway)
        assert set(workers(gateway)) == {"a"}
