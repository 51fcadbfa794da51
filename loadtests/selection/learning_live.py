"""Selections over the wire: what answers are worth, counted against labels, while feedback teaches.

    python -m loadtests.selection.learning_live [--rounds 1800]

A gateway serves digits with all its variants on one slice, once by each policy. One client asks a held-out
row at a time, in turn, each with its label as feedback on the answer (but to the ensemble, which takes none).
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from statistics import median
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file

from loadtests.harness.gateway import Gateway, model_entry, started
from loadtests.harness.wire import DIGITS, digits_question

VARIANTS = ("pooled", "linear", "mlp", "cnn", "ensemble")
PANELS: Mapping[str, Sequence[str]] = {
    "ensemble": VARIANTS,
    "ensemble of three": ("pooled", "linear", "mlp"),
    "exp3": VARIANTS,
    "exp4": VARIANTS,
}
SLO_MS = 100


@dataclass(frozen=True, slots=True)
class Told:
    """One answer: its variant, the accuracy it stated, whether it was right, how long it took."""

    variant: str
    accuracy: str
    right: bool
    took_ms: float


class Client:
    """One connection to a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._connection = HTTPConnection(gateway.host, gateway.rest_port, timeout=30)
        self._rows = int(load_file(DIGITS / "heldout.safetensors")["labels"].shape[0])
        self._labels = load_file(DIGITS / "heldout.safetensors")["labels"]
        self._questions = [digits_question(row) for row in range(self._rows)]

    def ask(self, place: int) -> Told:
        """Return the row of that place, and feedback on its answer where some is taken; RuntimeError where
        there is no answer."""
        question, label = self._questions[place % self._rows], int(self._labels[place % self._rows])
        begun = perf_counter()
        self._connection.request("POST", question.path, question.body, dict(question.headers))
        answer = self._connection.getresponse()
        body = answer.read()
        took_ms = (perf_counter() - begun) * 1000
        if answer.status != 200:
            raise RuntimeError(f"row {place}: status {answer.status}: {body[:200]!r}")
        size = int(answer.headers["Inference-Header-Content-Length"])
        right = int(np.frombuffer(body[size:], "<f4").argmax()) == label
        query = answer.headers.get("x-penstock-query", "")
        if query:
            self.read("/v2/models/digits/feedback", {"query": query, "label": label})
        variant, accuracy = (
            answer.headers["x-penstock-variant"],
            answer.headers.get("x-penstock-accuracy", "-"),
        )
        return Told(variant, accuracy, right, took_ms)

    def read(self, path: str, said: object = None) -> object:
        """Return the JSON of a GET, or of a POST of `said`. Raises RuntimeError if it is refused."""
        self._connection.request("GET" if said is None else "POST", path, json.dumps(said) if said else None)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: status {answer.status}: {body[:200]!r}")
        return json.loads(body)


def measure(policy: str, members: Sequence[str], rounds: int) -> tuple[list[Told], object]:
    """Return the answers of a gateway of its own, and what it says of the members at the end."""
    selection = {"policy": policy.split()[0], "members": [*members], "output": "SCORES"}
    entry = model_entry("digits", slo_ms=SLO_MS, variants=[*VARIANTS], selection=selection)
    with started([entry]) as gateway:
        client = Client(gateway)
        return [client.ask(place) for place in range(rounds)], client.read("/v2/models/digits/selection")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1800)
    arguments = parser.parse_args()
    console = Console(width=140)
    table = Table(title=f"digits over the wire, {arguments.rounds} rows, one at a time")
    for column in ("policy", "right", "stated", "last third right", "p50 ms", "most answers by"):
        table.add_column(column)
    for policy, members in PANELS.items():
        told, known = measure(policy, members, arguments.rounds)
        late = told[len(told) * 2 // 3 :]
        by = ", ".join(
            f"{name} {count}" for name, count in Counter(each.variant for each in told).most_common(3)
        )
        table.add_row(
            f"{policy}: {', '.join(members)}",
            f"{np.mean([each.right for each in told]):.4f}",
            ", ".join(sorted({each.accuracy for each in told})),
            f"{np.mean([each.right for each in late]):.4f}",
            f"{median(each.took_ms for each in told):.2f}",
            by,
        )
        console.print_json(data=known, indent=None)
    console.print(table)


if __name__ == "__main__":
    main()
