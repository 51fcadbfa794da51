"""Questions whose right answers are known: held-out digits, eight a request, and summaries of docstrings.

What is right is found here from the outputs on the wire, by what the models' builds kept (`models/*/build`).
"""

import json
import struct
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from loadtests.harness.gateway import ROOT, Gateway
from loadtests.harness.report import OK
from loadtests.harness.wire import Answer, ask, post
from router.settings import load_model
from serving.profile.derived.latency import Latency
from serving.values.objectives import ranked
from serving.values.specs import ModelSpec
from serving.values.tensor import text_size
from serving.values.vocabulary import Reason

Floats = npt.NDArray[np.float32]

LOADED_S = 120.0  # within which all variants are to be loaded
TRIES = 20  # of a body that is to be embedded, where others keep the cores
DIGITS_A_REQUEST = 8


@dataclass(frozen=True, slots=True)
class Terms:
    """What is promised of a model: an SLO, the floor of accuracy, and the floor of requests that ask for
    more."""

    model: str
    slo_ms: float
    floor: float
    strict: float
    rows: int  # of a request


class Subject(Protocol):
    """A model, and questions that are asked in rotation."""

    terms: Terms
    spec: ModelSpec
    sizes: Sequence[int]  # of the rows, by their bucket; 0 where the model has none

    def requests(self, accuracy_min: float | None = None, variant: str = "") -> list[bytes]:
        """Return all questions; with a floor of their own, or for one variant, where that is given."""
        ...

    def learn(self, gateway: Gateway, variant: str) -> None:
        """Ask an idle gateway for what is needed before this variant's answers can be judged."""
        ...

    def right(self, turn: int, variant: str, outputs: Floats) -> int:
        """Count the rows that the variant has right in the answer to question `turn`, of any number."""
        ...


class Digits:
    """Held-out images, all of them equally often; the largest score names the digit."""

    terms = Terms("digits", 25, 0.97, 0.99, DIGITS_A_REQUEST)
    sizes: Sequence[int] = (0,)

    def __init__(self, seed: int) -> None:
        self.spec = load_model(ROOT / "models" / "digits")
        held = load_file(self.spec.folder / "build" / "heldout.safetensors")
        count = len(held["labels"])
        rng = np.random.default_rng(seed)
        order = np.concatenate([rng.permutation(count) for _ in range(DIGITS_A_REQUEST)])
        chosen = order.reshape(count, DIGITS_A_REQUEST)
        self._pixels: Floats = held["pixels"].astype("<f4")[chosen]
        self._labels = held["labels"][chosen]

    def requests(self, accuracy_min: float | None = None, variant: str = "") -> list[bytes]:
        tensor = "PIXELS", "FP32", [DIGITS_A_REQUEST, 64]
        return [
            _request("digits", tensor, pixels.tobytes(), accuracy_min, variant) for pixels in self._pixels
        ]

    def learn(self, gateway: Gateway, variant: str) -> None:
        """Do nothing: labels are labels."""

    def right(self, turn: int, variant: str, outputs: Floats) -> int:  # noqa: ARG002  (of any variant)
        named = outputs.reshape(DIGITS_A_REQUEST, -1).argmax(1)
        return int((named == self._labels[turn % len(self._labels)]).sum())


class Summaries:
    """Summaries of docstrings, one a request. A summary is right if its nearest body, by the same variant, is
    its own. That is recall at 1, as `models/minilm/retrieval.py` measures it."""

    terms = Terms("minilm", 250, 0.35, 0.6, 1)

    def __init__(self, seed: int) -> None:
        self.spec = load_model(ROOT / "models" / "minilm")
        pairs = json.loads((self.spec.folder / "build" / "pairs.json").read_text())
        self._order: list[int] = np.random.default_rng(seed).permutation(len(pairs)).tolist()
        self._summaries = [pairs[place][0].encode() for place in self._order]
        self._bodies = [body.encode() for _, body in pairs]
        self._known: dict[str, Floats] = {}
        hint = self.spec.size_hint
        sizes = (text_size(text) for text in self._summaries)
        self.sizes: Sequence[int] = [hint.bucket(size) if hint else 0 for size in sizes]

    def requests(self, accuracy_min: float | None = None, variant: str = "") -> list[bytes]:
        tensor = "TEXT", "BYTES", [1, 1]
        return [_request("minilm", tensor, _element(text), accuracy_min, variant) for text in self._summaries]

    def learn(self, gateway: Gateway, variant: str) -> None:
        """Learn the embeddings of all bodies, kept for later runs. Raises RuntimeError if the gateway has
        none."""
        if variant in self._known:
            return
        self._known[variant] = np.stack([self._embed(gateway, variant, body) for body in self._bodies])

    def _embed(self, gateway: Gateway, variant: str, text: bytes) -> Floats:
        """Return the embedding `[384]`; ask again if it was too late."""
        question = _request("minilm", ("TEXT", "BYTES", [1, 1]), _element(text), variant=variant)
        for _ in range(TRIES):
            answer = ask(gateway, question)
            if answer.status == OK:
                return read_outputs(answer)
        said = f"{answer.status} {answer.body[:200]!r}"
        raise RuntimeError(f"minilm {variant} embeds no bodies: {said}")

    def right(self, turn: int, variant: str, outputs: Floats) -> int:
        bodies = self._known.get(variant)
        if bodies is None:  # a variant that there is not
            return 0
        return int((bodies @ outputs).argmax() == self._order[turn % len(self._order)])


def await_variants(subject: Subject, gateway: Gateway) -> None:
    """Wait until every variant has a replica; a gateway is ready once each model has an answer.

    Raises RuntimeError if a variant has none in time.
    """
    give_up_s = time.monotonic() + LOADED_S
    for variant in subject.spec.variants:
        question = subject.requests(variant=variant.name)[0]
        while ask(gateway, question).reason == Reason.NO_REPLICA.value:
            if time.monotonic() > give_up_s:
                raise RuntimeError(
                    f"{subject.terms.model} {variant.name} has no replica after {LOADED_S:g} s"
                )
            time.sleep(0.1)


def read_outputs(answer: Answer) -> Floats:
    """Return the FP32 elements of a binary answer."""
    start = int(answer.headers["inference-header-content-length"])
    return np.frombuffer(answer.body[start:], "<f4")


def keeping(subject: Subject, floor: float) -> tuple[str, ...]:
    """Return the variants that keep a floor, the most accurate first."""
    return ranked({variant.name: variant.accuracy for variant in subject.spec.variants}, floor)


def accuracies(subject: Subject) -> dict[str, float]:
    """Return the accuracy of each variant, as its build measured it. Raises ValueError if one was not
    measured."""
    found = {variant.name: variant.accuracy for variant in subject.spec.variants}
    known = {name: share for name, share in found.items() if share is not None}
    if missing := found.keys() - known.keys():
        raise ValueError(f"{subject.terms.model}: nobody has measured {', '.join(sorted(missing))}")
    return known


def capacity(subject: Subject, latency: Latency) -> float:
    """Return the most rows a second of a variant by its profile, for these questions, in batches of whole
    requests that fit the SLO twice."""
    terms, total_us = subject.terms, 0.0
    for size, count in Counter(subject.sizes).items():
        most = max(min(latency.rows_in(terms.slo_ms * 500, size), subject.spec.batch_max), terms.rows)
        total_us += count * min(
            latency.predict_us(rows, size) / rows for rows in range(terms.rows, most + 1, terms.rows)
        )
    return len(subject.sizes) / total_us * 1e6


def _request(
    model: str,
    tensor: tuple[str, str, Sequence[int]],
    raw: bytes,
    accuracy_min: float | None = None,
    variant: str = "",
) -> bytes:
    """Return a binary POST with one input (name, datatype, shape), for one variant where that is given."""
    name, datatype, shape = tensor
    sized = {"binary_data_size": len(raw)}
    described = {"name": name, "datatype": datatype, "shape": shape, "parameters": sized}
    asked: Mapping[str, object] = {"binary_data_output": True} | ({"variant": variant} if variant else {})
    header = json.dumps({"inputs": [described], "parameters": asked}, separators=(",", ":")).encode()
    fields: dict[str, object] = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": len(header),
    }
    if accuracy_min is not None:
        fields["x-accuracy-min"] = f"{accuracy_min:g}"
    return post(f"/v2/models/{model}/infer", header + raw, fields)


def _element(text: bytes) -> bytes:
    """Return the text as it travels in a BYTES tensor: its length, then itself."""
    return struct.pack("<I", len(text)) + text
