"""Versions of a running gateway: they come and go under load, and a rollout between two ends by itself."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.acceptance.gateway import GatewayProcess, await_true, serving

pytestmark = pytest.mark.slow

MODEL = """\
name: scale
inputs: [{name: x, datatype: FP32, shape: [-1, 1]}]
outputs: [{name: y, datatype: FP32, shape: [-1, 1]}]
batch_max: 4
slo_ms: 500
version_policy: {latest: 2}
"""
CODE = """\
import time

import numpy as np


class Model:
    def predict(self, inputs, parameters):
        time.sleep(0.01)  # so that requests wait as the name goes to another version
        return {"y": inputs["x"] * NUMBER}

    def sample(self, rows, size):
        return {"x": np.zeros((rows, 1), np.float32)}
"""
SETTINGS = """\
admin: {on_inference_ports: true}
slices: [{name: a, cores: 1}, {name: b, cores: 1}]
models: [{path: scale, cache: false, ENTRY}]
"""
ROLLOUT = """\
version_policy: {latest: 1}, rollout: {steps: [50], hold_s: 1, sticky: none, \
margins: {attainment: 0.3, errors: 0.3, latency: false}}"""
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}).encode()
LOAD = "/v2/repository/models/scale/load"


def add(home: Path, *versions: int) -> None:
    for version in versions:
        folder = home / "scale" / str(version)
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(CODE.replace("NUMBER", str(version)))


def settings(home: Path, entry: str) -> Path:
    file = home / "penstock.yaml"
    file.write_text(SETTINGS.replace("ENTRY", entry))
    return file


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a model of two versions, each answers with its number."""
    add(tmp_path, 1, 2)
    (tmp_path / "scale" / "model.yaml").write_text(MODEL)
    return tmp_path


@contextmanager
def asked(gateway: GatewayProcess, *paths: str) -> Iterator[Counter[tuple[str, int, str, float]]]:
    """Clients ask at these paths all the time; how often each got which status, version and number."""
    found: Counter[tuple[str, int, str, float]] = Counter()
    over = threading.Event()

    def ask(path: str) -> None:
        while not over.is_set():
            status, body = gateway.post(f"/v2/models/scale{path}/infer", BODY)
            answer = json.loads(body)
            value = answer["outputs"][0]["data"][0] if status == 200 else 0
            found[path, status, answer.get("model_version", ""), value] += 1
            time.sleep(0.005)

    clients = [threading.Thread(target=ask, args=(each,)) for each in paths for _ in range(3)]
    for each in clients:
        each.start()
    try:
        yield found
    finally:
        over.set()
        for each in clients:
            each.join()


def index(gateway: GatewayProcess) -> list[str]:
    """The versions that are ready."""
    found = json.loads(gateway.post("/v2/repository/index", b'{"ready": true}')[1])
    return [each["version"] for each in found]


def test_a_version_comes_and_another_goes_while_clients_ask_for_the_one_that_stays(home: Path) -> None:
    with serving(settings(home, "required: true")) as gateway:
        client = grpcclient.InferenceServerClient(gateway.grpc)
        tensor = grpcclient.InferInput("x", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 1), np.float32))
        assert client.get_model_metadata("scale").versions == ["1", "2"]
        for version, number in (("", 2), ("1", 1), ("2", 2)):
            answer = client.infer("scale", [tensor], model_version=version)
            assert answer.as_numpy("y")[0, 0] == number
            assert answer.get_response().model_version == str(number)
        with asked(gateway, "", "/versions/2") as found:
            time.sleep(0.3)
            add(home, 3)
            assert gateway.post(LOAD, b"{}")[0] == 200
            time.sleep(0.3)
        assert {*found} == {("", 200, "2", 2), ("", 200, "3", 3), ("/versions/2", 200, "2", 2)}
        assert index(gateway) == ["2", "3"]
        gone = json.loads(gateway.post("/v2/repository/index", b"{}")[1])[0]
        assert gone == {"name": "scale", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
        assert json.loads(gateway.get("/v2/models/scale/versions/2")[1])["versions"] == ["2"]
        assert not client.is_model_ready("scale", "1")
        assert client.is_model_ready("scale", "2")
        counted = client.get_inference_statistics("scale").model_stats
        assert [(each.name, each.version) for each in counted] == [("scale", "2"), ("scale", "3")]
        assert 'nv_inference_request_success{model="scale",version="3"}' in gateway.read_metrics()
        with pytest.raises(InferenceServerException, match="its versions are 2, 3"):
            client.infer("scale", [tensor], model_version="1")
        with asked(gateway, "/versions/2", "/versions/3") as found:
            broken = home / "scale" / "4"
            broken.mkdir()
            status, body = gateway.post(LOAD, b"{}")  # it has no code
        assert (status, b"version 4 is at UNAVAILABLE state" in body) == (400, True)
        assert {*found} == {("/versions/2", 200, "2", 2), ("/versions/3", 200, "3", 3)}, "all is as before"
        broken.rmdir()
        policy = json.dumps({"version_policy": {"specific": {"versions": [1]}}})
        client.load_model("scale", config=policy)
        assert client.get_model_metadata("scale").versions == ["1"]
        assert gateway.post("/v2/repository/models/scale/unload", b"{}")[0] == 200
        assert gateway.post("/v2/models/scale/infer", BODY)[0] == 404


def test_a_new_version_is_rolled_out_and_then_has_the_models_name(home: Path) -> None:
    add(home, 3)
    file = settings(home, ROLLOUT)
    with serving(file) as gateway:  # and killed: how it ended is kept
        assert index(gateway) == ["2", "3"]
        with asked(gateway, "", "/versions/2") as found:
            await_true(lambda: index(gateway) == ["3"], gateway)
        answered = {each for each in found if each[0] == ""}
        assert answered == {("", 200, "2", 2), ("", 200, "3", 3)}
        early = {each for each in found if each[0] and each[1] == 200}
        assert early == {("/versions/2", 200, "2", 2)}, "who names a version gets that one"
    with serving(file) as gateway:
        assert index(gateway) == ["3"]
        add(home, 4)
        assert gateway.post(LOAD, b"{}")[0] == 200
        (now,) = json.loads(gateway.get("/v2/rollouts")[1])["rollouts"]
        assert (now["model"], now["candidate"]) == ("scale", "scale@4")
        assert gateway.post("/v2/rollouts/scale/abort", b"")[0] == 200
        add(home, 5)
        assert gateway.post(LOAD, b"{}")[0] == 200
        assert index(gateway) == ["3", "5"], "4 was taken back, so 5 is tried beside 3"


STREAM = """\
import time

import numpy as np


class Model:
    def stream(self, inputs, parameters):
        for _ in range(3):
            for row, x in enumerate(inputs["x"]):
                time.sleep(0.005)
                yield row, {"y": (x * NUMBER).reshape(1, 1)}
        for row in range(len(inputs["x"])):
            yield row, None

    def sample(self, rows, size):
        return {"x": np.zeros((rows, 1), np.float32)}


def load(artifact, options):
    return Model()
"""


def test_each_stream_is_of_one_version_and_says_so_while_a_new_one_is_rolled_out(home: Path) -> None:
    add(home, 3)
    (home / "scale" / "model.yaml").write_text(MODEL + "decoupled: true\n")
    for each in (1, 2, 3):
        (home / "scale" / str(each) / "model.py").write_text(STREAM.replace("NUMBER", str(each)))
    found: Counter[tuple[str, ...]] = Counter()

    def ask(gateway: GatewayProcess) -> None:
        while not over.is_set():
            status, body = gateway.post("/v2/models/scale/generate_stream", b'{"x": 1}')
            answers = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: ")]
            assert status == 200
            found[tuple(f"{each['model_version']} {each['y']:g}" for each in answers)] += 1

    over = threading.Event()
    with serving(settings(home, ROLLOUT)) as gateway:
        clients = [threading.Thread(target=ask, args=(gateway,)) for _ in range(4)]
        for client in clients:
            client.start()
        try:
            await_true(lambda: index(gateway) == ["3"], gateway)
        finally:
            over.set()
            for client in clients:
                client.join()
    assert {*found} == {("2 2",) * 3, ("3 3",) * 3}
