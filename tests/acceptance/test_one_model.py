"""`penstock serve MODEL`, the command itself: a file, a folder or a server becomes a gateway that answers."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tritonclient import http

from tests.acceptance.gateway import START_S, GatewayProcess, await_true, serving_one
from tests.worker.backends.graphs import WEIGHTS, linear

CODE = """\
import numpy as np

class Negative(ValueError):
    bad_input = True

def predict(x):
    if (x < 0).any():
        raise Negative("input 'x' has a negative number; expected 0 or more")
    return x * 2

def sample(rows):
    return {"x": np.ones((rows, 4), np.float32)}
"""
X = np.arange(8, dtype=np.float32).reshape(2, 4)


NEGATIVE = "input 'x' has a negative number; expected 0 or more"


def blamed(gateway: GatewayProcess) -> None:
    """What a client hears if the model finds its input bad."""
    data = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, -3, 4]}]}
    status, body = gateway.post("/v2/models/doubled/infer", json.dumps(data).encode())
    assert (status, json.loads(body)["reason"]) == (400, "bad_input")
    assert NEGATIVE in json.loads(body)["error"]


def asked(gateway: GatewayProcess, name: str) -> http.InferResult:
    """The answer of tritonclient to X."""
    client = http.InferenceServerClient(gateway.rest, network_timeout=START_S, connection_timeout=START_S)
    given = http.InferInput("x", list(X.shape), "FP32")
    given.set_data_from_numpy(X)
    return client.infer(name, [given])


def test_a_python_file_is_served_and_another_gateway_serves_it_from_there(tmp_path: Path) -> None:
    (tmp_path / "doubled.py").write_text(CODE)
    with serving_one(tmp_path, "doubled.py") as gateway:
        assert np.array_equal(asked(gateway, "doubled").as_numpy("output"), X * 2)
        assert "takes x (FP32 [-1, 4]); answers output (FP32 [-1, 4])" in gateway.output
        command = [sys.executable, "-m", "router.cli", "infer", "doubled", "--url", gateway.rest]
        told = subprocess.run(
            [*command, "--data", "[[1, 2, 3, 4]]"], capture_output=True, text=True, check=True
        )
        assert told.stdout.startswith("output  FP32 [1, 4]: 2, 4, 6, 8\nanswered in ")
        wrong = subprocess.run([*command, "--data", "[[1, 2]]"], capture_output=True, text=True, check=False)
        assert (wrong.returncode, "'x'" in wrong.stderr) == (1, True)
        (tmp_path / "front").mkdir()
        with serving_one(tmp_path / "front", f"remote:{gateway.grpc}/doubled") as front:
            assert np.array_equal(asked(front, "doubled").as_numpy("output"), X * 2)
            blamed(front)
            assert front.stop() == 0
        blamed(gateway)
        assert "Negative" not in gateway.output  # it is no fault of the model's
        assert gateway.stop() == 0
    assert (tmp_path / ".penstock" / "doubled" / "penstock.yaml").exists()


def test_an_edit_of_the_file_is_served_after_a_moment(tmp_path: Path) -> None:
    (tmp_path / "doubled.py").write_text(CODE)
    with serving_one(tmp_path, "doubled.py", options=["--reload"]) as gateway:
        (tmp_path / "doubled.py").write_text(CODE.replace("x * 2", "x * 30"))
        await_true(lambda: np.array_equal(asked(gateway, "doubled").as_numpy("output"), X * 30), gateway)
        (tmp_path / "doubled.py").write_text("raise OSError('half an edit')")
        await_true(lambda: "doubled stays as it was" in gateway.output, gateway)
        assert np.array_equal(asked(gateway, "doubled").as_numpy("output"), X * 30)


def test_an_onnx_file_is_served(tmp_path: Path) -> None:
    linear(tmp_path / "linear.onnx")
    with serving_one(tmp_path, "linear.onnx") as gateway:
        assert np.allclose(asked(gateway, "linear").as_numpy("y"), X @ WEIGHTS)
        assert gateway.stop(signal.SIGINT) == 0


def test_a_fitted_estimator_is_served(tmp_path: Path) -> None:
    import joblib  # here: sklearn takes a second, also in runs that only collect these tests
    from sklearn.linear_model import LogisticRegression

    rows = np.vstack([X, -X])
    classifier = LogisticRegression().fit(rows, ["up", "up", "down", "down"])
    joblib.dump(classifier, tmp_path / "updown.joblib")
    with serving_one(tmp_path, "updown.joblib") as gateway:
        client = http.InferenceServerClient(gateway.rest, network_timeout=START_S, connection_timeout=START_S)
        given = http.InferInput("x", list(rows.shape), "FP64")
        given.set_data_from_numpy(rows.astype(np.float64))
        answer = client.infer("updown", [given])
        assert answer.as_numpy("label").tolist() == [b"up", b"up", b"down", b"down"]
        assert np.allclose(answer.as_numpy("probabilities"), classifier.predict_proba(rows), atol=1e-6)
        assert gateway.stop() == 0


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("wrong.py", "wrong.py: has no function sample(rows)"),
        ("junk.onnx", "junk.onnx: ONNX Runtime cannot load"),
        ("nothing.onnx", "nothing.onnx is not there; expected a .py"),
    ],
)
def test_what_cannot_be_served_ends_the_command_with_a_sentence(
    tmp_path: Path, target: str, said: str
) -> None:
    (tmp_path / "wrong.py").write_text("def predict(x): return x\n")
    (tmp_path / "junk.onnx").write_text("junk")
    command = [sys.executable, "-m", "router.cli", "serve", target]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, timeout=START_S, check=False
    )
    assert ended.returncode == 1
    assert re.search(re.escape(said), ended.stderr)
    assert "Traceback" not in ended.stderr
