"""Who keeps answering while others disturb the worker's core, and who is back when they have gone?

  python -m loadtests.scheduling.disturbed --triton FOLDER                   # all; an hour and a half
  python -m loadtests.scheduling.disturbed --contenders slo static --disturbances burner --loads 3 --rounds 1

The model is the sample `mlp` with batches of up to 64 rows and an SLO of 50 ms; the worker is alone on one
core, the server and the client share another. Open loop at shares of what the bare model carries in batches
that take half the SLO. Seconds are counted from the first arrival, by the second in which a request was due:
the disturbance comes at second 5, a burner for 3 s (a program that computes on the worker's core), or
SIGSTOP of the worker or the server for 0.5 s. `poisoned` begins with a profile that was measured under
such a burner and ended early. All contenders run in turns, each in a server of its own, and the figures are
goodput: requests a second answered within the SLO, in the median of the rounds, with the worst beside it.
Triton (`loadtests/edge/triton/server.py` says how to get it) is tuned by hand.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from loadtests.edge.triton.server import Tuning, triton, workers
from loadtests.harness.dispatch import Server, measure
from loadtests.harness.gateway import Gateway, copied_model, started
from loadtests.harness.payloads import Contents, Target
from loadtests.harness.processes import pin, undisturbed
from loadtests.openloop import Ask, Course, prepare
from loadtests.stand import bare
from loadtests.stand.testbed import CONNECTIONS, CONNECTIONS_MAX, may_go_first
from serving.profile.curve import Point
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import SliceSpec

MODEL, SLO_MS, BATCH_MAX = "mlp", 50.0, 64
AT_S, BURN_S, STOP_S, SECONDS = 5, 3.0, 0.5, 15
WARM_UP_S = 3.0
LOADS = (0.5, 1.5, 3.0)
ROUNDS = 5
WINDOWS: Mapping[str, tuple[int, int]] = {
    "before": (2, 5), "meanwhile": (5, 8), "1st s after": (8, 9), "2nd, 3rd": (9, 11), "4th on": (11, 15),
}  # fmt: skip
BURN = """import os
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
os.sched_setaffinity(0, [{core}])
while True: pass"""
"""The client goes first on its core (SCHED_FIFO), and its children would too: such a burner leaves the worker
a twentieth of the core instead of half."""

POISON = {1: 20_000.0, 2: 24_000.0, 4: 26_000.0, 8: 28_000.0}  # as a sweep found it beside a burner


@dataclass(frozen=True, slots=True)
class Place:
    """The worker's core, the core of server and client, a folder for what is laid out, and the factor for all
    times of a run."""

    worker_core: int
    core: int
    folder: Path
    scale: float


def main() -> int:
    """Return 0 if everything ran, 2 if nothing could."""
    asked = _arguments()
    found: dict[tuple[str, float, str], list[dict[str, float]]] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="disturbed-") as name:
            place = Place(asked.worker_core, asked.core, Path(name), asked.scale)
            model = copied_model(MODEL, place.folder, BATCH_MAX)
            capacity = _capacity(model, place)
            print(f"capacity of the bare model: {capacity.rate:.0f} rows/s in batches of {capacity.rows}")
            for number in range(asked.rounds):
                for key in _cases(asked):
                    goodput = _run(key, capacity, place, model, asked, number)
                    found.setdefault(key, []).append(goodput)
                    sys.stderr.write(f"round {number + 1}: {key}: {_told(goodput)}\n")
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"disturbed: {error}\n")
        return 2
    print("\n".join(table(found)))
    if asked.json:
        rows = [{"case": key, "rounds": rounds} for key, rounds in found.items()]
        asked.json.write_text(json.dumps({"capacity": capacity.rate, "rows": rows}) + "\n")
    return 0


def table(found: Mapping[tuple[str, float, str], Sequence[Mapping[str, float]]]) -> Iterator[str]:
    """Yield Markdown: the goodput by window, the median of the rounds, and in brackets the worst round."""
    yield "| disturbance | load | contender | " + " | ".join(WINDOWS) + " |"
    yield "|---" * (len(WINDOWS) + 3) + "|"
    for (disturbance, load, contender), rounds in found.items():
        cells = (
            f"{median(each[name] for each in rounds):.0f} ({min(each[name] for each in rounds):.0f})"
            for name in WINDOWS
        )
        yield f"| {disturbance} | {load:g} | {contender} | " + " | ".join(cells) + " |"


def _cases(asked: argparse.Namespace) -> Iterator[tuple[str, float, str]]:
    for disturbance in asked.disturbances:
        for load in asked.loads:
            for contender in asked.contenders:
                if contender != "triton" or (asked.triton and disturbance != "poisoned"):
                    yield disturbance, load, contender


def _run(
    key: tuple[str, float, str],
    capacity: bare.Capacity,
    place: Place,
    model: Path,
    asked: argparse.Namespace,
    seed: int,
) -> dict[str, float]:
    """Play one run of one contender in a server of its own."""
    disturbance, load, contender = key
    with _server(contender, disturbance, capacity, place, model, asked) as server:
        its = workers(server) if contender == "triton" else server.workers()
        rate = load * capacity.rate
        if disturbance != "poisoned":
            _play(server, 0.5 * capacity.rate, WARM_UP_S * place.scale, seed, place)
        disturb = _disturber(disturbance, its, server.pid, place)
        return _play(server, rate, SECONDS * place.scale, seed, place, disturb)


def _play(
    server: Gateway,
    rate: float,
    seconds: float,
    seed: int,
    place: Place,
    disturb: Callable[[], None] | None = None,
) -> dict[str, float]:
    """Return the goodput by window of one open-loop run."""
    at = Server(server.host, server.rest_port, CONNECTIONS, CONNECTIONS_MAX)
    course = Course(seconds, contents=Contents(seed=seed))
    prepared = prepare([Ask(Target(MODEL), f"{rate}", SLO_MS)], course, at)
    thread = threading.Thread(target=disturb) if disturb is not None else None
    with undisturbed(place.core, may_go_first()):
        if thread is not None:
            thread.start()
        record, _ = measure(prepared.loads, at)
    if thread is not None:
        thread.join()
    due_s = (np.asarray(record.due_ns) / 1e9 - record.start_ns / 1e9) / place.scale
    took_ms = (np.asarray(record.done_ns, float) - np.asarray(record.due_ns)) / 1e6
    good = (np.asarray(record.statuses) == 200) & (took_ms <= SLO_MS)
    return {
        name: float(np.sum(good & (due_s >= first) & (due_s < end))) / (end - first) / place.scale
        for name, (first, end) in WINDOWS.items()
    }


def _disturber(disturbance: str, its: Sequence[int], server: int, place: Place) -> Callable[[], None] | None:
    """Return the function that a thread runs to disturb the run, or None if the profile is poisoned."""
    if disturbance == "poisoned":
        return None

    def burn() -> None:
        time.sleep(AT_S * place.scale)
        burner = subprocess.Popen([sys.executable, "-c", BURN.format(core=place.worker_core)])
        time.sleep(BURN_S * place.scale)
        burner.kill()
        burner.wait()

    def stop(pids: Sequence[int]) -> None:
        time.sleep(AT_S * place.scale)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(STOP_S * place.scale)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    if disturbance == "burner":
        return burn
    return lambda: stop(its if disturbance == "worker stopped" else [server])


@contextlib.contextmanager
def _server(
    contender: str,
    disturbance: str,
    capacity: bare.Capacity,
    place: Place,
    model: Path,
    asked: argparse.Namespace,
) -> Iterator[Gateway]:
    if contender == "triton":
        queue_us = int(SLO_MS * 1e3 - capacity.latency_us)
        tuning = Tuning(capacity.rows, queue_us)
        with triton(asked.triton, model, tuning, (place.worker_core, place.core)) as server:
            yield server
        return
    batching: dict[str, object] = {"policy": contender}
    if contender == "static":
        batching |= {"size": capacity.rows}
    profiles = place.folder / ("poisoned" if disturbance == "poisoned" else "profiles")
    if disturbance == "poisoned":
        _poison(place.folder / "profiles", profiles, place.worker_core)
    entry = {"path": str(model), "slices": ["measured"], "slo_ms": SLO_MS, "batching": batching}
    with started([entry], [place.worker_core], profiles) as gateway:
        pin(gateway.pid, [place.core])
        yield gateway


def _poison(source: Path, target: Path, core: int) -> None:
    """Write the profile that a sweep beside a burner would have left."""
    here = SliceSpec("measured", (core,))
    profile = ProfileStore(source).read(device_kind(here), MODEL, "fp32", here.share)
    if profile is None:
        raise RuntimeError("a contender has to run undisturbed first, to measure the profile")
    points = tuple(Point(0, rows, took_us, took_us, 3) for rows, took_us in POISON.items())
    shutil.rmtree(target, ignore_errors=True)
    ProfileStore(target).write(replace(profile, points=points))


def _capacity(model: Path, place: Place) -> bare.Capacity:
    with bare.loaded(str(model), place.worker_core) as alone:
        return alone.capacity(SLO_MS * 1e3)


def _told(goodput: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.0f}" for name, value in goodput.items())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    every = ("burner", "worker stopped", "server stopped", "poisoned")
    add("--contenders", nargs="+", default=["slo", "static", "clockwork", "triton"], help="or other policies")
    add("--disturbances", nargs="+", choices=every, default=list(every))
    add("--loads", nargs="+", type=float, default=list(LOADS), help="shares of the bare model's capacity")
    add("--rounds", type=int, default=ROUNDS)
    add(
        "--triton",
        type=Path,
        metavar="FOLDER",
        help="where nvidia-pytriton is; without it Triton is left out",
    )
    add("--worker-core", type=int, default=0)
    add("--core", type=int, default=1, help="of server and client")
    add("--scale", type=float, default=1.0, help="of all times: 0.2 for a look, which proves nothing")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
