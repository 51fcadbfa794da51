"""Goodput of two slices here, beside two slices on nodes, with and without Ray; all on this machine.

  python -m loadtests.scaling.nodes_goodput [--rates 500 2000 3000] [--rounds 3] [--seconds 5]

The model sleeps 4 ms and 0.2 ms a row, so it takes no core from the gateway, the client or Ray. Goodput is
the requests a second that are answered within the SLO of 50 ms, from the instant at which each was due.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from loadtests.failures.faults import MODEL, SLO_S, rows
from loadtests.harness.gateway import DOORS, Gateway, free_ports, port_options, running
from loadtests.harness.processes import undisturbed
from loadtests.stand.checked import RIGHT, Client
from loadtests.stand.testbed import may_go_first
from serving.compiled import is_compiled
from serving.simulation.traffic.patterns import POISSON_CV, RateStep, draw

WAYS: Final = ("slices here", "nodes", "nodes kept by Ray")
READY_S: Final = 120.0


@contextmanager
def started(way: str, folder: Path) -> Iterator[Gateway]:
    """Yield a gateway whose two slices take batches."""
    *ports, door = free_ports(len(DOORS) + 1)
    settings: dict[str, object] = {
        "profiles": str(folder / "profiles"),
        "models": [{"path": str(MODEL), "slo_ms": SLO_S * 1e3}],
        "slices": [{"name": "near", "count": 2}],
    }
    if way != WAYS[0]:
        settings |= {"nodes": {"port": door}, "slices": [{"name": "far", "node": "box", "node_count": 2}]}
    rest, grpc, metrics, admin = ports
    settings["server"] = {"rest_port": rest, "grpc_port": grpc, "metrics_port": metrics}
    settings["admin"] = {"port": admin}
    file = folder / "penstock.yaml"
    file.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "router.cli", "serve", "--config", str(file), *port_options(ports)]
    if way != WAYS[0]:
        command = [sys.executable, "-m", "router.cli", "up", "--config", str(file)]
        command += ["--ray"] if way == WAYS[2] else []
    with running(command, f"http://127.0.0.1:{rest}/v2/health/ready") as pid:
        gateway = Gateway("127.0.0.1", rest, pid)
        give_up_s = time.monotonic() + READY_S
        while _ready(gateway) < 2:
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"{way}: two slices were not ready within {READY_S:g} s")
            time.sleep(0.2)
        yield gateway


def _ready(gateway: Gateway) -> int:
    with urllib.request.urlopen(f"http://{gateway.host}:{gateway.rest_port}/v2/status", timeout=5) as answer:
        told = json.loads(answer.read())
    return sum(each["state"] == "ready" for model in told["models"] for each in model["replicas"])


def asked_for(gateway: Gateway, rate: float, seconds: float, seed: int) -> tuple[float, float, float]:
    """Return the goodput, and the latencies of what was answered: median and 99th percentile, ms."""
    client = Client(gateway)
    arrivals = draw([RateStep(rate, seconds)], POISSON_CV, np.random.default_rng(seed))
    asyncio.run(client.run(arrivals.tolist(), rows(0)))
    took_ms = [1e3 * (one.done_s - one.due_s) for one in client.sent if one.what == RIGHT]
    good = sum(one.in_time(SLO_S) for one in client.sent)
    p50, p99 = np.percentile(took_ms, [50, 99])
    return good / seconds, float(p50), float(p99)


def main() -> None:
    """Print a line for each way and rate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", type=float, nargs="+", default=[500, 2000, 3000])
    parser.add_argument("--rounds", type=int, default=3, help="rounds whose medians are printed")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each round")
    asked = parser.parse_args()
    os.environ.setdefault("PENSTOCK_NODE_TOKEN", "0123456789abcdef")
    print(
        f"{'compiled' if is_compiled() else 'interpreted'}, medians of {asked.rounds} x {asked.seconds:g} s"
    )
    print(f"{'':20}{'asked/s':>9}{'in time/s':>11}{'p50 ms':>9}{'p99 ms':>9}")
    for way in WAYS:
        with (
            tempfile.TemporaryDirectory(prefix="penstock-") as folder,
            started(way, Path(folder)) as gateway,
            undisturbed(None, may_go_first()),
        ):
            asked_for(gateway, 200, 2.0, 99)
            for rate in asked.rates:
                found = [asked_for(gateway, rate, asked.seconds, seed) for seed in range(asked.rounds)]
                good, p50, p99 = np.median(found, axis=0)
                print(f"{way:20}{rate:9.0f}{good:11.0f}{p50:9.1f}{p99:9.1f}", flush=True)


if __name__ == "__main__":
    main()
