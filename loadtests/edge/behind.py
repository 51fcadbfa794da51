"""Triton by itself, tuned by hand, and the same Triton behind Penstock, which makes its batches.

  python -m loadtests.edge.behind --triton FOLDER        # loadtests/edge/triton/server.py says how to get it

The model is the sample `mlp` in Triton's Python backend, alone on one core, with an SLO of 50 ms. Triton, the
gateway with its worker, and the client share another core. Open loop at shares of what the bare model carries
in batches that take half the SLO; `bursts` are arrivals with gaps of CV 4 at a load of 0.8. By itself, Triton
makes batches of up to that size, without a delay, and refuses what has waited too long. Behind Penstock its
own batching is off. Contenders run in turns; figures are goodput as a share of what was asked, or of the
capacity if that is less, in the median of the rounds, with the worst in brackets.
"""

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from loadtests.edge.triton.server import Tuning, triton
from loadtests.harness.gateway import ROOT, Gateway, copied_model, started
from loadtests.harness.processes import pin
from loadtests.stand import bare
from loadtests.stand.shares import Run, Share, goodput

MODEL, SLO_MS, BATCH_MAX = "mlp", 50.0, 64
CASES = {"0.8": (0.8, 1.0), "1.5": (1.5, 1.0), "3": (3.0, 1.0), "bursts": (0.8, 4.0)}
"""The load as a share of the capacity, and the CV of gaps."""
CONTENDERS = ("triton", "triton behind penstock")
WARM_UP_S = 3.0


@dataclass(frozen=True, slots=True)
class Place:
    """The core of the model, the core of all else, and a folder for what is laid out."""

    worker_core: int
    core: int
    folder: Path


def main() -> int:
    """Return 0 if everything ran, 2 if nothing could."""
    asked = _arguments()
    found: dict[tuple[str, str], list[float]] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="behind-") as name:
            place = Place(asked.worker_core, asked.core, Path(name))
            model = copied_model(MODEL, place.folder, BATCH_MAX)
            with bare.loaded(str(model), place.worker_core) as alone:
                capacity = alone.capacity(SLO_MS * 1e3)
            print(f"capacity of the bare model: {capacity.rate:.0f} rows/s in batches of {capacity.rows}")
            for number in range(asked.rounds):
                for contender in CONTENDERS:
                    with _server(contender, capacity, place, asked.triton) as server:
                        warm = Run(MODEL, SLO_MS, WARM_UP_S, place.core, number)
                        goodput(server, Share(0.5, capacity.rate), warm)
                        for case, (part, cv) in CASES.items():
                            load = Share(part, capacity.rate, cv)
                            run = Run(MODEL, SLO_MS, asked.seconds, place.core, number)
                            share = goodput(server, load, run) / load.best
                            found.setdefault((case, contender), []).append(share)
                            sys.stderr.write(f"round {number + 1}: {contender} at {case}: {share:.3f}\n")
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"behind: {error}\n")
        return 2
    print("\n".join(table(found)))
    return 0


def table(found: dict[tuple[str, str], list[float]]) -> Iterator[str]:
    """Yield Markdown: a row for each case, with the median of the rounds and the worst."""
    yield "| load | " + " | ".join(CONTENDERS) + " |"
    yield "|---" * (len(CONTENDERS) + 1) + "|"
    for case in CASES:
        shares = [found[case, contender] for contender in CONTENDERS]
        yield f"| {case} | " + " | ".join(f"{median(each):.2f} ({min(each):.2f})" for each in shares) + " |"


@contextlib.contextmanager
def _server(contender: str, capacity: bare.Capacity, place: Place, wheel: Path) -> Iterator[Gateway]:
    alone = contender == CONTENDERS[0]
    model = ROOT / "models" / MODEL
    queue_us = int(SLO_MS * 1e3 - capacity.latency_us) if alone else None
    tuning = Tuning(capacity.rows if alone else BATCH_MAX, queue_us)
    with triton(wheel, model, tuning, (place.worker_core, place.core)) as server:
        if alone:
            yield server
            return
        folder = place.folder / f"{server.rest_port}" / MODEL
        folder.mkdir(parents=True)
        options = json.dumps({"url": f"127.0.0.1:{server.rpc_port}", "model": MODEL})
        stated = (place.folder / MODEL / "model.yaml").read_text()
        stated = stated.replace("{name: fp32}", f"{{name: fp32, backend: remote, options: {options}}}")
        (folder / "model.yaml").write_text(stated)
        entry: dict[str, object] = {"path": str(folder), "slices": ["measured"], "slo_ms": SLO_MS}
        with started([entry], [place.core], folder.parent / "profiles") as gateway:
            pin(gateway.pid, [place.core])
            yield gateway


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--triton", type=Path, metavar="FOLDER", required=True, help="where nvidia-pytriton is")
    add("--seconds", type=float, default=10.0, help="of each run")
    add("--rounds", type=int, default=3)
    add("--worker-core", type=int, default=0)
    add("--core", type=int, default=1, help="of servers and client")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
