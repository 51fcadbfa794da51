"""Models that end or hold the process in which they are loaded, and a request that would: the others of their
slices do not notice."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess, await_true, serving
from tests.acceptance.test_isolation import MODEL_YAML, asked_all_the_time, workers

pytestmark = pytest.mark.slow

STALL_S = 1.0
HELD_S = 4
STUCK = 666
MODEL_PY = f"""
import time


class Model:
    def predict(self, inputs, parameters):
        if (inputs["X"] == {STUCK}).any():
            time.sleep(1000)
        return {{"Y": inputs["X"]}}


def load(artifact, options):
    return Model()
"""
EXITING = "import os\nos._exit(1)\n"
HOLDING = f"import ctypes\nctypes.PyDLL(None).sleep({HELD_S})\n"  # PyDLL keeps the interpreter


def write(folder: Path, name: str, code: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.yaml").write_text(MODEL_YAML.replace("NAME", name))
    (folder / "model.py").write_text(code + MODEL_PY)
    return folder


@contextmanager
def on_two_slices(folder: Path, *more: str) -> Iterator[GatewayProcess]:
    """`sound` and models of this repository on two slices; others can be loaded by name."""
    entries: list[dict[str, object]] = [{"path": str(write(folder / "sound", "sound"))}]
    entries += [{"path": str(ROOT / "models" / name), "slo_ms": PATIENT_MS} for name in more]
    config = folder / "penstock.yaml"
    settings = {
        "slices": [{"name": "a", "cores": 1}, {"name": "b", "cores": 1}],
        "models": entries,
        "limits": {"stall_s": STALL_S},
        "repository": {"folders": ["repo"]},
    }
    (folder / "repo").mkdir()
    config.write_text(yaml.safe_dump(settings))
    with serving(config) as gateway:
        yield gateway


def load(gateway: GatewayProcess, name: str) -> tuple[int, str]:
    status, body = gateway.change("POST", f"/v2/repository/models/{name}/load", b"{}")
    return status, body.decode()


def infer(gateway: GatewayProcess, model: str, value: int = 4) -> tuple[int, dict[str, object]]:
    tensor = {"name": "X", "shape": [1, 1], "datatype": "INT32", "data": [value]}
    status, body = gateway.post(f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}).encode())
    return status, json.loads(body)


@contextmanager
def timed(gateway: GatewayProcess, took_s: list[float]) -> Iterator[None]:
    """How long each of these requests took, complete once this is left."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            began_s = time.monotonic()
            infer(gateway, "sound")
            took_s.append(time.monotonic() - began_s)

    client = threading.Thread(target=run)
    client.start()
    try:
        yield
    finally:
        over.set()
        client.join()


def restarts(gateway: GatewayProcess) -> dict[str, int]:
    """Of the slices' own processes."""
    return {name: int(str(each["restarts"])) for name, each in workers(gateway).items() if "+" not in name}


def isolation(gateway: GatewayProcess, name: str) -> dict[str, object]:
    (found,) = (
        each["isolation"]
        for each in json.loads(gateway.get("/v2/status")[1])["models"]
        if each["name"] == name
    )
    return dict(found)


def test_a_load_that_ends_its_process_is_given_up_and_no_request_of_others_is_lost(tmp_path: Path) -> None:
    with on_two_slices(tmp_path) as gateway:
        write(tmp_path / "repo" / "exiting", "exiting", EXITING)
        with asked_all_the_time(gateway, "sound") as statuses:
            status, told = load(gateway, "exiting")
        assert status == 400
        assert "exited with 1" in told
        assert statuses.keys() == {200}
        assert restarts(gateway) == {"a": 0, "b": 0}
        await_true(lambda: workers(gateway).keys() == {"a", "b"}, gateway)
        write(tmp_path / "repo" / "exiting", "exiting")
        assert load(gateway, "exiting")[0] == 200
        assert infer(gateway, "exiting")[0] == 200
        assert restarts(gateway) == {"a": 0, "b": 0}


def test_other_files_that_end_their_process_leave_the_model_as_it_was(tmp_path: Path) -> None:
    with on_two_slices(tmp_path) as gateway:
        write(tmp_path / "sound", "sound", EXITING)
        with asked_all_the_time(gateway, "sound") as statuses:
            assert load(gateway, "sound")[0] == 400
        assert statuses.keys() == {200}
        assert restarts(gateway) == {"a": 0, "b": 0}


def test_a_load_that_holds_the_interpreter_makes_nobody_late_and_keeps_its_own_process(
    tmp_path: Path,
) -> None:
    with on_two_slices(tmp_path) as gateway:
        write(tmp_path / "repo" / "holding", "holding", HOLDING)
        took_s: list[float] = []
        with asked_all_the_time(gateway, "sound") as statuses, timed(gateway, took_s):
            assert load(gateway, "holding")[0] == 200
        assert statuses.keys() == {200}
        assert sum(took_s) > HELD_S
        assert max(took_s) < HELD_S / 2
        assert restarts(gateway) == {"a": 0, "b": 0}
        assert workers(gateway).keys() == {"a", "b", "a+holding", "b+holding"}
        told = isolation(gateway, "holding")
        assert str(told["why"]).startswith("its load holds the interpreter for ")
        assert infer(gateway, "holding")[0] == 200


def test_a_batch_that_never_ends_costs_one_slice_and_is_not_tried_on_the_next(tmp_path: Path) -> None:
    with on_two_slices(tmp_path) as gateway:
        write(tmp_path / "repo" / "stuck", "stuck")
        assert load(gateway, "stuck")[0] == 200
        status, told = infer(gateway, "stuck", STUCK)
        assert (status, told["reason"]) == (503, "worker_lost")
        assert sorted(restarts(gateway).values()) == [0, 1]
        assert isolation(gateway, "stuck")["died"] == 1
        await_true(lambda: infer(gateway, "sound")[0] == infer(gateway, "stuck")[0] == 200, gateway)
        assert 'penstock_model_worker_deaths_total{model="stuck"} 1\n' in gateway.read_metrics()


def test_a_delay_that_a_client_asks_for_is_refused_where_it_would_end_a_worker(tmp_path: Path) -> None:
    with on_two_slices(tmp_path, "identity") as gateway:
        tensor = {"name": "INPUT0", "shape": [1, 1], "datatype": "INT32", "data": [4]}
        for delay_ms, expected in ((60_000, 400), (501, 400), (500, 200)):
            question = {"inputs": [tensor], "parameters": {"execute_delay_ms": delay_ms}}
            status, body = gateway.post("/v2/models/identity/infer", json.dumps(question).encode())
            assert status == expected, body
            if status == 400:
                said = f"'execute_delay_ms' must be at most 500 (50% of limits.stall_s), got {delay_ms}"
                assert said in json.loads(body)["error"]
        assert restarts(gateway) == {"a": 0, "b": 0}
