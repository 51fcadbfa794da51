"""A model by itself: its own code in a process of its own on one core, loaded as a worker loads it.

What it does without a gateway is what a gateway's goodput is held against. The process answers each line of
ROWS REPEATS on its standard input with the latencies of so many batches, in microseconds, on its output.
"""

import argparse
import contextlib
import os
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from loadtests.harness.gateway import ROOT
from serving.values.specs import PYTHON, ModelSpec, TensorSpec, VariantSpec
from serving.worker.backends.chosen import ChosenBackend
from serving.worker.frames.orders import LoadOrder, MeasureOrder
from serving.worker.process.garbage import Garbage
from serving.worker.process.memory import Memory
from serving.worker.process.yardstick import Yardstick
from serving.worker.replicas.replicas import load_replica

REPEATS = 40  # of which the median is taken: a second of the load-test model's largest batches
WARM_UP = 5  # batches of each measurement that do not count: another process had the core
_THREAD_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # as a worker's
_READY = "ready"


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the model does in batches of `rows`, the largest with 2 l(rows) <= SLO; `rate` is rows a second.

    Two batches long is the worst that a request can take under constant full load: it just missed one batch
    and waits for it to end, then is in the next (Nexus, SOSP 2019, section 4.1).
    """

    rows: int
    latency_us: float
    rate: float


class BareModel:
    """The process, from outside; `batch_max` is the model's own bound."""

    def __init__(self, process: "subprocess.Popen[str]", batch_max: int) -> None:
        self._process = process
        self.batch_max = batch_max

    def median_us(self, rows: int, repeats: int = REPEATS) -> float:
        """Return l(rows), the median latency of batches of `rows` rows. Raises RuntimeError if the process is
        gone."""
        took_us = [int(each) for each in self._ask(f"{rows} {repeats + WARM_UP}").split()]
        return median(took_us[WARM_UP:] or took_us)  # of runs that nothing disturbed there may be few

    def capacity(self, slo_us: float) -> Capacity:
        """Measure the capacity now. Raises ValueError if no batch fits the SLO twice."""
        seen: dict[int, float] = {}

        def latency_us(rows: int) -> float:
            seen[rows] = self.median_us(rows)
            return seen[rows]

        largest = self.batch_max
        if 2 * latency_us(largest) > slo_us:
            largest = bisect_right(range(1, self.batch_max), slo_us / 2, key=latency_us)
        if not largest:
            raise ValueError(f"an SLO of {slo_us / 1e3:g} ms has no room for two batches of one row")
        return Capacity(largest, seen[largest], largest / seen[largest] * 1e6)

    def curve(self, repeats: int = REPEATS) -> list[float]:
        """Return l(1), l(2), ... l(batch_max) in microseconds."""
        return [self.median_us(rows, repeats) for rows in range(1, self.batch_max + 1)]

    def _ask(self, line: str) -> str:
        pipes = self._process.stdin, self._process.stdout
        if pipes[0] is None or pipes[1] is None:
            raise RuntimeError("the bare model was started without pipes")
        with contextlib.suppress(BrokenPipeError):
            pipes[0].write(line + "\n")
            pipes[0].flush()
        answer = pipes[1].readline()
        if not answer:
            raise RuntimeError(f"the bare model's process ended with {self._process.wait()}")
        return answer


@contextlib.contextmanager
def loaded(model: str, core: int) -> Iterator[BareModel]:
    """Yield a sample model, default variant, alone in a process on the core, and end it afterwards.

    Raises ValueError if the model has no such cost, RuntimeError if its code cannot be loaded.
    """
    spec = read_spec(ROOT / "models" / model)
    command = [sys.executable, "-m", "loadtests.stand.bare", model, "--core", str(core)]
    environment = {**os.environ, **dict.fromkeys(_THREAD_POOLS, "1")}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True)
    try:
        if process.stdout is None or process.stdout.readline().strip() != _READY:
            raise RuntimeError(f"the bare model {model} could not be loaded")
        yield BareModel(process, spec.batch_max)
    finally:
        process.kill()
        process.communicate()


def read_spec(folder: Path) -> ModelSpec:
    """Return the specification that loading the model needs, from its model.yaml. Raises ValueError if the
    file is missing or if the model's cost depends on the content."""
    file = folder / "model.yaml"
    if not file.is_file():
        raise ValueError(f"{folder.name!r} is no sample model: {file} is not there")
    found = yaml.safe_load(file.read_text())
    if "size_hint" in found:
        raise ValueError(f"{found['name']} costs what its texts cost, so it has no one capacity; use another")
    variants = tuple(_variant(entry, folder) for entry in found["variants"])
    return ModelSpec(
        found["name"], folder, _tensors(found["inputs"]), _tensors(found["outputs"]), variants,
        found["default_variant"], int(found["slo_ms"] * 1000), found["batch_max"],
    )  # fmt: skip


# Any below is what YAML holds; the gateway, which is started too, checks it.


def _tensors(entries: Sequence[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(one["name"], one["datatype"], tuple(one["shape"])) for one in entries)


def _variant(entry: Mapping[str, Any], folder: Path) -> VariantSpec:
    artifact = folder / entry["artifact"] if entry.get("artifact") else None
    options = tuple((entry.get("options") or {}).items())
    return VariantSpec(entry["name"], artifact, options, backend=entry.get("backend", PYTHON))


def main() -> int:
    """Measure until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("--core", type=int, default=0)
    asked = parser.parse_args()
    os.sched_setaffinity(0, {asked.core})
    spec = read_spec(ROOT / "models" / asked.model)
    memory, yardstick = Memory(), Yardstick()
    order = LoadOrder.of(0, spec, spec.default_variant)
    replica, _ = load_replica(ChosenBackend(threads=1), order, memory, Garbage())
    print(_READY, flush=True)
    for line in sys.stdin:
        rows, repeats = map(int, line.split())
        unbounded_us = 1 << 62
        found = replica.measure(MeasureOrder(0, rows, 0, repeats, unbounded_us), memory, yardstick)
        print(*found.latencies_us, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
