"""Over the wire: clients say which answers were right, and a candidate that errs is rolled back."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance import test_rollouts as rollouts
from tests.acceptance.gateway import TALK_S, GatewayProcess, await_true, serving
from tests.acceptance.test_rollouts import penstock, state

pytestmark = pytest.mark.slow

MODEL = """\
name: NAME
inputs: [{name: x, datatype: FP32, shape: [-1, 1]}]
outputs: [{name: y, datatype: FP32, shape: [-1, 3]}]
batch_max: 4
slo_ms: 20000
default_variant: default
variants: [{name: default}]
"""
CODE = """\
import numpy as np


class Model:
    def predict(self, inputs, parameters):
        named = (inputs["x"][:, 0].astype(int) + OFF) % 3
        return {"y": np.eye(3, dtype=np.float32)[named]}

    def sample(self, rows, size):
        return {"x": np.zeros((rows, 1), np.float32)}
"""
SETTINGS = rollouts.SETTINGS.replace("latency: false", "latency: false, accuracy: 0.2").replace(
    "hold_s: 2, sticky: request,", "hold_s: 1, sticky: none, SHADOW"
)
"""With labels, and a place for copies."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two models that name the class x, of 3; the second names the next one where it is `off`."""
    codes = [CODE.replace("OFF", "0")] * 2
    return rollouts.write_pair(tmp_path, MODEL, codes, SETTINGS.replace("SHADOW", ""))


def ask(gateway: GatewayProcess, label: int) -> str:
    """Ask m-1 for a class, and return the name of the answer."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [label]}
    body = json.dumps({"inputs": [tensor]}).encode()
    with urllib.request.urlopen(f"http://{gateway.rest}/v2/models/m-1/infer", body, timeout=TALK_S) as answer:
        answer.read()
        return str(answer.headers["x-penstock-query"] or "")


def tell(gateway: GatewayProcess, said: list[tuple[str, int]]) -> tuple[int, bytes]:
    entries = [{"query": query, "label": label} for query, label in said]
    return gateway.post("/v2/models/m-1/feedback", json.dumps({"feedback": entries}).encode())


@contextmanager
def labelled(gateway: GatewayProcess) -> Iterator[None]:
    """Four clients ask m-1 all the time, and say of ten answers at a time what was right."""
    over = threading.Event()

    def client(number: int) -> None:
        while not over.is_set():
            said = []
            for each in range(10):
                label = (number + each) % 3
                said.append((ask(gateway, label), label))
                time.sleep(0.01)
            named = [(query, label) for query, label in said if query]  # the others came after its end
            if named:
                tell(gateway, named)

    clients = [threading.Thread(target=client, args=(each,)) for each in range(4)]
    for each in clients:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in clients:
            each.join()


def test_a_right_candidate_waits_for_labels_and_is_promoted_by_them(home: Path) -> None:
    with serving(home / "penstock.yaml") as gateway:
        await_true(lambda: state(gateway)[0] == "canary", gateway)
        for _ in range(80):
            query = ask(gateway, 1)
        shown = penstock("status", "--url", f"http://{gateway.rest}").stdout
        assert "  right: labels on answers of both models are missing" in shown
        assert tell(gateway, [(query, 1)]) == (200, b'{"taken":1}')
        status, said = tell(gateway, [(query, 1)])
        assert (status, "was taken before" in said.decode()) == (409, True)
        assert state(gateway)[0] == "canary"
        with labelled(gateway):
            await_true(lambda: state(gateway) == ("promoted", 1.0), gateway)
        assert ask(gateway, 1) == ""
        status, said = tell(gateway, [(query, 1)])
        assert (status, "m-1 takes no feedback" in said.decode()) == (409, True)


@pytest.mark.parametrize("shadow", ["", "shadow: 100,"])
def test_a_wrong_candidate_is_rolled_back_as_soon_as_labels_say_so(home: Path, shadow: str) -> None:
    text = SETTINGS.replace("SHADOW", shadow)
    if shadow:
        text = text.replace("hold_s: 1", "hold_s: 60").replace("margins: {", "margins: {agreement: false, ")
    (home / "penstock.yaml").write_text(text)
    (home / "m-2" / "model.py").write_text(CODE.replace("OFF", "1"))
    with serving(home / "penstock.yaml") as gateway:
        await_true(lambda: state(gateway)[0] != "waiting", gateway)
        with labelled(gateway):
            await_true(lambda: state(gateway) == ("rolled back", 0.0), gateway)
        (found,) = json.loads(gateway.get("/v2/rollouts")[1])["rollouts"]
        assert found["why"].startswith("it is right for 0.00% of ")
        assert found["step"] == (0 if shadow else 1)  # on copies alone, or on a share
