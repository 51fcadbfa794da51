"""Token ids of 1 to 128 tokens on one encoder: rows filled up to share batches, and rows of one length each.

  python -m loadtests.scheduling.unlike_rows
  python -m loadtests.scheduling.unlike_rows --rounds 1 --seconds 4 --rates 800 1600

Both models have the same weights. `padded` states `pad` and a mask, so rows of unlike length share batches.
`alone` states a free size, so only rows of the same length do. Lengths are log-uniform, arrivals Poisson. The
worker is alone on one core; gateway and client share another. Figures are the share of requests that were
answered within the SLO, counted from the instant each was due: the median of the rounds, and the worst.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
import yaml

from loadtests.harness.dispatch import Load, Server, measure
from loadtests.harness.gateway import Gateway, started
from loadtests.harness.payloads import Question
from loadtests.harness.processes import pin, undisturbed
from loadtests.stand.testbed import CONNECTIONS, CONNECTIONS_MAX, may_go_first
from serving.simulation.traffic.patterns import due_times

SLO_MS, TOKENS_MAX, DISTINCT = 100.0, 128, 512
WARM_UP_S: Final = 3.0
CODE: Final = """
import torch


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(1000, 128)
        layer = torch.nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def forward(self, ids, mask):
        states = self.layers(self.words(ids), src_key_padding_mask=~mask)
        weights = mask[:, :, None].float()
        return (states * weights).sum(1) / weights.sum(1)


class Model:
    def __init__(self):
        self.encoder = Encoder().eval()

    def predict(self, inputs, parameters):
        ids = torch.from_numpy(inputs["ids"])
        mask = torch.from_numpy(inputs["mask"]) if "mask" in inputs else torch.ones_like(ids, dtype=bool)
        with torch.inference_mode():
            return {"embedding": self.encoder(ids, mask).numpy()}


def load(artifact, options):
    return Model()
"""
FORMS: Final = {
    "padded": [
        {"name": "ids", "datatype": "INT64", "shape": [-1, "tokens"], "pad": 0},
        {"name": "mask", "datatype": "BOOL", "shape": [-1, "tokens"], "mask": True},
    ],
    "alone": [{"name": "ids", "datatype": "INT64", "shape": [-1, "tokens"]}],
}
"""The inputs that each model states."""
Shares = dict[tuple[str, float], list[float]]
"""By form and rate, of the rounds."""


def main() -> int:
    """Return 0 if everything ran, 2 if nothing could."""
    asked = _arguments()
    found: Shares = {}
    try:
        with tempfile.TemporaryDirectory(prefix="unlike-") as name:
            for number in range(asked.rounds):
                for form in FORMS:
                    _play(_written(Path(name), form, asked.buckets), form, found, number, asked)
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"unlike_rows: {error}\n")
        return 2
    print("| requests/s | " + " | ".join(FORMS) + " |\n" + "|---" * (1 + len(FORMS)) + "|")
    for rate in asked.rates:
        told = (f"{median(found[form, rate]):.3f} ({min(found[form, rate]):.3f})" for form in FORMS)
        print(f"| {rate:g} | {' | '.join(told)} |")
    return 0


def _written(home: Path, form: str, buckets: Sequence[int]) -> Path:
    folder = home / form
    folder.mkdir(exist_ok=True)
    stated = {
        "name": form, "inputs": FORMS[form], "batch_max": 32, "slo_ms": SLO_MS,
        "outputs": [{"name": "embedding", "datatype": "FP32", "shape": [-1, 128]}],
        "size_hint": {"input": "ids", "buckets": buckets[0] if len(buckets) == 1 else [*buckets]},
    }  # fmt: skip
    (folder / "model.yaml").write_text(yaml.safe_dump(stated))
    (folder / "model.py").write_text(CODE)
    return folder


def _play(
    folder: Path,
    form: str,
    found: dict[tuple[str, float], list[float]],
    number: int,
    asked: argparse.Namespace,
) -> None:
    entry: dict[str, object] = {"path": str(folder), "slices": ["measured"]}
    with started([entry], [asked.worker_core], folder.parent / "profiles") as gateway:
        pin(gateway.pid, [asked.core])
        _share(gateway, form, asked.rates[0], WARM_UP_S, (asked.core, 99))
        for rate in asked.rates:
            share = _share(gateway, form, rate, asked.seconds, (asked.core, number))
            found.setdefault((form, rate), []).append(share)
            sys.stderr.write(f"round {number + 1}: {form} at {rate:g}/s: {share:.3f}\n")


def _share(gateway: Gateway, form: str, rate: float, seconds: float, run: tuple[int, int]) -> float:
    """Return the share of requests that were answered in time; `run`: core and seed."""
    core, seed = run
    rng = np.random.default_rng(seed)
    at = Server(gateway.host, gateway.rest_port, CONNECTIONS, CONNECTIONS_MAX)
    load = Load(due_times(f"{rate}", seconds, 1.0, rng), [_request(form, rng) for _ in range(DISTINCT)])
    with undisturbed(core, may_go_first()):
        record, _ = measure([load], at)
    took_ms = (np.asarray(record.done_ns, float) - np.asarray(record.due_ns)) / 1e6
    return float(np.mean((np.asarray(record.statuses) == 200) & (took_ms <= SLO_MS)))


def _request(form: str, rng: np.random.Generator) -> bytes:
    tokens = int(TOKENS_MAX ** rng.random())
    data = rng.integers(1, 999, tokens).tolist()
    body = {"inputs": [{"name": "ids", "datatype": "INT64", "shape": [1, tokens], "data": data}]}
    return Question(f"/v2/models/{form}/infer", {}, json.dumps(body).encode()).request


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seconds", type=float, default=8.0, help="of each run")
    add("--rounds", type=int, default=3)
    add("--rates", type=float, nargs="+", default=[800.0, 1200.0, 1600.0, 2400.0], help="requests a second")
    add("--buckets", type=int, nargs="+", default=[TOKENS_MAX], help="of the size hint; one: the largest")
    add("--worker-core", type=int, default=0)
    add("--core", type=int, default=1, help="of gateway and client")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
