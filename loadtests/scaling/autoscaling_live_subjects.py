"""What is scaled live: `minilm`, which computes, and `waiting`, whose compute only waits, so that six of it
run at once on two cores: real processes, starts, loads and batches, and hardly any CPU."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np

from loadtests.harness.gateway import ROOT, Gateway
from loadtests.harness.wire import post
from loadtests.scaling.autoscaling_live_trace import Shape
from loadtests.selection.variants_play import known_of
from loadtests.selection.variants_scores import Known
from loadtests.selection.variants_subjects import Floats, Subject, Summaries, Terms
from loadtests.stand.stage import Place, Stage
from router.settings import load_model

SLICE = "replica"
PRICE, SPOT_PRICE = 0.04, 0.012  # of a slice of one core, an hour: about what clouds ask
BATCH_MAX = 4
BATCH_MS, ROW_MS, LOAD_MS = 20.0, 10.0, 1000.0  # of `waiting`
WAITING, ONLY = "waiting", "only"

_CODE = '''\
"""Y is X. A batch takes batch_ms and row_ms a row, a load load_ms; all of it is slept, none computed."""

import time

import numpy as np


class Model:
    def __init__(self, options):
        self._options = options

    def predict(self, inputs, parameters):
        rows = inputs["X"]
        time.sleep((self._options["batch_ms"] + self._options["row_ms"] * len(rows)) / 1000)
        return {"Y": rows}

    def sample(self, rows, size):
        return {"X": np.ones((rows, 1), np.float32)}


def load(artifact, options):
    time.sleep(options["load_ms"] / 1000)
    return Model(options)
'''


class Waiting:
    """`waiting`, written into a folder; every answer is right."""

    terms = Terms(WAITING, 200, 0.0, 0.0, 1)
    sizes: Sequence[int] = (0,)

    def __init__(self, folder: Path) -> None:
        self.home = write_waiting(folder)
        self.spec = load_model(self.home)

    def requests(self, accuracy_min: float | None = None, variant: str = "") -> list[bytes]:  # noqa: ARG002
        """Return requests of one row each; there is one variant, so no request asks for another."""
        return [_request(float(number)) for number in range(16)]

    def learn(self, gateway: Gateway, variant: str) -> None:
        """Do nothing."""

    def right(self, turn: int, variant: str, outputs: Floats) -> int:  # noqa: ARG002
        """Return whether the number that was sent came back."""
        return int(outputs.ravel().tolist() == [float(turn % 16)])


@dataclass(frozen=True, slots=True)
class Cast:
    """A subject on as many slices as `most`. `shape` of its day, in capacities of one replica; `cores` of
    each slice, 0 for any of the machine's; `known`: what its variants can do, asked of a gateway that has
    them."""

    subject: Subject
    home: Path
    most: int
    cores: int
    shape: Shape
    known: Callable[[Gateway, Place], Known]

    def slices(self, spot: int = 0) -> list[dict[str, object]]:
        """Return the slices, as in `slices:` of penstock.yaml; the last `spot` of them may be taken away."""
        shares = {"cores": self.cores} if self.cores else {}
        firm = self.most - spot
        return [
            {
                "name": f"{SLICE}-{number}",
                "spot": number > firm,
                "price": SPOT_PRICE if number > firm else PRICE,
                **shares,
            }
            for number in range(1, self.most + 1)
        ]

    def entry(self, replicas: Mapping[str, int] | None) -> dict[str, object]:
        """Return the model as `models:` has it; without `replicas` every slice always has the model."""
        terms = self.subject.terms
        names = [variant.name for variant in self.subject.spec.variants]
        served: dict[str, object] = {"path": str(self.home), "slo_ms": terms.slo_ms, "variants": names}
        if terms.floor:
            served |= {"accuracy_min": terms.floor, "optimize": "most_accurate"}
        return served | ({"replicas": dict(replicas)} if replicas else {})


def minilm(folder: Path, seed: int) -> Cast:  # noqa: ARG001  (it needs no folder)
    """Return a cast of two slices of one core each, as many cores as there are here. The variants carry a
    load that two replicas of the most accurate variant do not."""
    subject = Summaries(seed)

    def known(gateway: Gateway, place: Place) -> Known:
        return known_of(subject, Stage(gateway, place))

    return Cast(subject, ROOT / "models" / "minilm", 2, 1, Shape(0.25, 1.4, 2.5), known)


def waiting(folder: Path, seed: int) -> Cast:  # noqa: ARG001  (its questions are always the same)
    """Return a cast of six slices without cores of their own."""
    subject = Waiting(folder)
    full = BATCH_MAX / (BATCH_MS + ROW_MS * BATCH_MAX) * 1e3

    def known(gateway: Gateway, place: Place) -> Known:  # noqa: ARG001  (it says itself how long it waits)
        return Known({ONLY: 1.0}, {ONLY: full}, [ONLY])

    return Cast(subject, subject.home, 6, 0, Shape(0.25, 4.0, 5.0), known)


CASTS: Mapping[str, Callable[[Path, int], Cast]] = {"minilm": minilm, WAITING: waiting}


def write_waiting(folder: Path) -> Path:
    """Return the folder of the model, under `folder`."""
    home = folder / WAITING
    home.mkdir(parents=True)
    (home / "model.py").write_text(_CODE)
    options = {"batch_ms": BATCH_MS, "row_ms": ROW_MS, "load_ms": LOAD_MS}
    (home / "model.yaml").write_text(
        dedent(f"""\
        name: {WAITING}
        inputs: [{{name: X, datatype: FP32, shape: [-1, 1]}}]
        outputs: [{{name: Y, datatype: FP32, shape: [-1, 1]}}]
        batch_max: {BATCH_MAX}
        slo_ms: {Waiting.terms.slo_ms:g}
        deterministic: true
        default_variant: {ONLY}
        variants: [{{name: {ONLY}, options: {json.dumps(options)}}}]
        """)
    )
    return home


def _request(number: float) -> bytes:
    raw = np.float32(number).tobytes()
    tensor: dict[str, Any] = {"name": "X", "datatype": "FP32", "shape": [1, 1]}
    tensor["parameters"] = {"binary_data_size": len(raw)}
    asked = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    header = json.dumps(asked, separators=(",", ":")).encode()
    fields = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": len(header)}
    return post(f"/v2/models/{WAITING}/infer", header + raw, fields)
