"""A model that ends its worker process takes its neighbour with it three times, then no more."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.acceptance.gateway import PATIENT_MS, GatewayProcess, await_true, serving

pytestmark = pytest.mark.slow

DEADLY = 666
MODEL_YAML = f"""
name: NAME
inputs: [{{name: X, datatype: INT32, shape: [-1, 1]}}]
outputs: [{{name: Y, datatype: INT32, shape: [-1, 1]}}]
batch_max: 4
slo_ms: {PATIENT_MS}
"""
MODEL_PY = f"""
import os


class Model:
    def predict(self, inputs, parameters):
        if (inputs["X"] == {DEADLY}).any():
            os._exit(1)
        return {{"Y": inputs["X"]}}


def load(artifact, options):
    return Model()
"""


def settings(folder: Path, **of_deadly: str) -> Path:
    """Two models on one slice; `of_deadly`: further keys of the one that may end its process."""
    entries: list[dict[str, object]] = []
    for name in ("deadly", "sound"):
        place = folder / name
        place.mkdir(exist_ok=True)
        (place / "model.yaml").write_text(MODEL_YAML.replace("NAME", name))
        (place / "model.py").write_text(MODEL_PY)
        entries.append({"path": name, "slices": ["a"], **(of_deadly if name == "deadly" else {})})
    path = folder / "penstock.yaml"
    scratch = folder / "scratch"
    scratch.write_text(yaml.safe_dump({"slices": [{"name": "a", "cores": 1}], "models": entries}))
    return scratch.replace(path)


def ask(gateway: GatewayProcess, model: str, value: int = 4) -> int:
    tensor = {"name": "X", "shape": [1, 1], "datatype": "INT32", "data": [value]}
    return gateway.post(f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}).encode())[0]


@contextmanager
def asked_all_the_time(gateway: GatewayProcess, model: str) -> Iterator[Counter[int]]:
    """Requests one after the other; how they end, complete once this is left."""
    statuses, over = Counter[int](), threading.Event()

    def run() -> None:
        while not over.is_set():
            statuses[ask(gateway, model)] += 1

    client = threading.Thread(target=run)
    client.start()
    try:
        yield statuses
    finally:
        over.set()
        client.join()


def workers(gateway: GatewayProcess) -> dict[str, dict[str, object]]:
    found = json.loads(gateway.get("/v2/status")[1])["slices"]
    return {each["name"]: {**each, "busy_us": 0} for each in found}  # they go on computing


def isolation(gateway: GatewayProcess) -> dict[str, object]:
    models = json.loads(gateway.get("/v2/status")[1])["models"]
    (found,) = (each["isolation"] for each in models if each["name"] == "deadly")
    return dict(found)


def test_after_three_deaths_the_neighbour_answers_on_while_the_model_goes_on_dying(tmp_path: Path) -> None:
    with serving(settings(tmp_path)) as gateway:
        for death in (1, 2, 3):
            assert ask(gateway, "deadly", DEADLY) == 503
            await_true(lambda: ask(gateway, "deadly") == ask(gateway, "sound") == 200, gateway)
            assert isolation(gateway)["deaths"] == death
            assert isolation(gateway)["processes"] == (["a+deadly"] if death == 3 else [])
        shared = workers(gateway)["a"]
        with asked_all_the_time(gateway, "sound") as statuses:
            for _ in range(4):
                assert ask(gateway, "deadly", DEADLY) == 503
                await_true(lambda: ask(gateway, "deadly") == 200, gateway)
        assert statuses.keys() == {200}
        assert statuses[200] > 10
        assert workers(gateway)["a"] == shared
        assert workers(gateway)["a+deadly"]["restarts"] == 4
        assert isolation(gateway) == {
            "isolate": "auto", "processes": ["a+deadly"], "moved": True,
            "why": "3 worker processes died of it within 5 minutes", "deaths": 7, "limit": 3, "died": 7,
        }  # fmt: skip
        explained = json.loads(gateway.get("/v2/models/deadly/explain")[1])
        assert explained["isolation"] == isolation(gateway)
        metrics = gateway.read_metrics()
        assert 'penstock_model_worker_deaths_total{model="deadly"} 7\n' in metrics
        assert 'penstock_model_isolated{model="deadly"} 1\n' in metrics
        assert 'penstock_model_isolated{model="sound"} 0\n' in metrics
        assert gateway.output.count("deadly gets a worker process of its own: 3 worker processes died") == 1


def test_an_edit_gives_a_model_its_own_process_and_takes_it_back_while_both_are_asked(tmp_path: Path) -> None:
    with serving(settings(tmp_path)) as gateway:
        for isolate, expected in (("always", {"a", "a+deadly"}), ("never", {"a"})):
            with asked_all_the_time(gateway, "sound") as sound, asked_all_the_time(gateway, "deadly") as own:
                settings(tmp_path, isolate=isolate)
                await_true(lambda: f"-> {isolate}" in gateway.output, gateway)  # noqa: B023
                await_true(lambda: workers(gateway).keys() == expected, gateway)  # noqa: B023
                await_true(
                    lambda: json.loads(gateway.get("/v2/status")[1])["move"]["state"] == "steady", gateway
                )
            assert sound.keys() == own.keys() == {200}
        for _ in range(4):
            assert ask(gateway, "deadly", DEADLY) == 503
            await_true(lambda: ask(gateway, "deadly") == ask(gateway, "sound") == 200, gateway)
        assert workers(gateway).keys() == {"a"}
        assert isolation(gateway)["deaths"] == 4
