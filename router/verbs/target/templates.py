"""The files of `penstock new`, by kind. NAME stands for the model's name."""

from collections.abc import Mapping
from typing import Final

_PYTHON: Final = '''\
"""NAME, a model of two functions. Serve it: penstock serve NAME.py"""

import numpy as np


def predict(x):
    """Get each input by its name, an array with the rows of a batch; return an array, or several by name."""
    return {"sum": x.sum(axis=1, keepdims=True), "largest": x.max(axis=1, keepdims=True)}


def sample(rows):
    """Return inputs of so many rows; they show names, shapes and datatypes, and serve to measure."""
    return {"x": np.random.default_rng(1).random((rows, 4), np.float32)}
'''
_TORCH: Final = '''\
"""NAME, a network of torch. Serve it: penstock serve NAME.py"""

import numpy as np
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)).eval()
# net.load_state_dict(torch.load("NAME.pt", weights_only=True))   # your weights


@torch.inference_mode()
def predict(x):
    """Get each input by its name, an array with the rows of a batch; return a tensor, or several by name."""
    return {"scores": net(torch.from_numpy(x))}


def sample(rows):
    """Return inputs of so many rows; they show names, shapes and datatypes, and serve to measure."""
    return {"x": np.random.default_rng(1).random((rows, 4), np.float32)}
'''
_TEST: Final = '''\
"""What the gateway counts on. Run it: python -m pytest test_NAME.py"""

import numpy as np
from NAME import predict, sample

ROWS = 5


def outputs(inputs):
    found = predict(**inputs)
    named = found if isinstance(found, dict) else {"output": found}
    return {name: np.asarray(value) for name, value in named.items()}


def test_a_row_has_the_same_answer_alone_and_in_a_batch():
    inputs = sample(ROWS)
    together = outputs(inputs)
    for row in range(ROWS):
        alone = outputs({name: value[row : row + 1] for name, value in inputs.items()})
        for name, value in alone.items():
            np.testing.assert_allclose(value[0], together[name][row], rtol=1e-4, atol=1e-5)


def test_rows_come_first():
    assert all(len(value) == ROWS for value in outputs(sample(ROWS)).values())
'''
_TRAIN: Final = '''\
"""Fits NAME and writes NAME.joblib: python train.py. Then serve it: penstock serve NAME.joblib"""

import joblib
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

flowers = load_iris()
names = flowers.target_names[flowers.target]
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(flowers.data, names)
joblib.dump(model, "NAME.joblib")
print(f"NAME.joblib: {model.score(flowers.data, names):.1%} of the flowers are named right")
'''
_LOAD: Final = '''\
"""Sends requests at a steady rate, and says how many were answered: python load.py [A SECOND] [SECONDS]

The latency of each counts from the instant at which it was due, so a slow gateway cannot hide behind a client
that waits for it.
"""

import http.client
import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import local

RATE, SECONDS = ([float(each) for each in sys.argv[1:]] + [50.0, 5.0][len(sys.argv) - 1 :])[:2]
HOST, PATH = "127.0.0.1:8000", "/v2/models/NAME"
own = local()


def ask(method, path, body=None):
    if not hasattr(own, "connection"):
        own.connection = http.client.HTTPConnection(HOST, timeout=30)
    own.connection.request(method, path, body)
    answer = own.connection.getresponse()
    return answer.status, answer.read()


def one(due, body):
    time.sleep(max(0.0, due - time.perf_counter()))
    status, _ = ask("POST", f"{PATH}/infer", body)
    return status, (time.perf_counter() - due) * 1000


status, body = ask("GET", f"{PATH}/example")
if status != 200:
    sys.exit(body.decode())
slo_ms = json.loads(ask("GET", PATH)[1])["parameters"]["slo_ms"]
start = time.perf_counter() + 0.1
with ThreadPoolExecutor(64) as pool:
    asked = [pool.submit(one, start + number / RATE, body) for number in range(int(RATE * SECONDS))]
    found = [each.result() for each in asked]
good = sorted(took for status, took in found if status == 200)
in_time = sum(took <= slo_ms for took in good)
print(f"{len(found)} requests, {RATE:g} a second: {in_time / len(found):.1%} answered within {slo_ms:g} ms")
if good:
    print(f"p50 {good[len(good) // 2]:.1f} ms, p99 {good[len(good) * 99 // 100]:.1f} ms; by status", end=" ")
print(dict(Counter(status for status, _ in found)))
'''

FILES: Final[Mapping[str, Mapping[str, str]]] = {
    "python": {"NAME.py": _PYTHON, "test_NAME.py": _TEST, "load.py": _LOAD},
    "torch": {"NAME.py": _TORCH, "test_NAME.py": _TEST, "load.py": _LOAD},
    "sklearn": {"train.py": _TRAIN, "load.py": _LOAD},
}
STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "python": ("python -m pytest -q", "penstock serve NAME.py", "penstock infer NAME", "python load.py"),
    "torch": ("python -m pytest -q", "penstock serve NAME.py", "penstock infer NAME", "python load.py"),
    "sklearn": ("python train.py", "penstock serve NAME.joblib", "penstock infer NAME", "python load.py"),
}
"""What to do next, in the new folder."""
