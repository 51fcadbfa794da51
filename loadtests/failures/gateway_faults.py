"""What is lost when the gateway itself is upgraded, or killed and started again, under steady load.

  python -m loadtests.failures.gateway_faults
  python -m loadtests.failures.gateway_faults --only upgrade --slices 1 --rate 100

The model sleeps 4 ms and 0.2 ms a row. Every request must get at most one answer, a right one or a clear
error. An upgrade may leave none without an answer. A kill may lose what was in flight, and what came before
the next gateway listened, unless another process holds its port (as systemd can). No model may be loaded
again. Exit status 1 where one of these is broken.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from loadtests.failures.faults import CALM_S, MODEL, SLO_S, rows, scenario_parser, timeline
from loadtests.harness.processes import undisturbed
from loadtests.stand.checked import NO_ANSWER, RIGHT, WRONG, Client
from loadtests.stand.living import Living
from loadtests.stand.testbed import may_go_first
from serving.simulation.traffic.patterns import POISSON_CV, RateStep, draw

UPGRADE, KILL, HELD = "upgrade", "gateway killed", "gateway killed, its port held"
SCENARIOS: Final = (UPGRADE, KILL, HELD)


def main() -> int:
    """Return 0 if nothing was lost that may not be lost, else 1."""
    asked = _arguments()
    return 1 if sum([play(scenario, asked) for scenario in asked.only or SCENARIOS]) else 0


def play(scenario: str, asked: argparse.Namespace) -> int:
    """Play a scenario on a gateway of its own, print what became of the requests, and return how many faults
    there were."""
    names = [f"s{number}" for number in range(asked.slices)]
    entry = {"path": str(MODEL), "slo_ms": SLO_S * 1e3, "slices": names}
    with tempfile.TemporaryDirectory(prefix="penstock-gateways-") as folder:
        settings = {
            "slices": [{"name": name} for name in names],
            "models": [entry],
            "cache": False,
            "profiles": str(Path(folder, "profiles")),
        }
        living = Living(Path(folder), settings, hold=scenario == HELD)
        living.start()
        try:
            with undisturbed(None, may_go_first()):
                client, at_s, took_s = asyncio.run(_experiment(scenario, asked, living))
            return show(scenario, client, (at_s, took_s), loads(living))
        finally:
            living.stop()


async def _experiment(
    scenario: str, asked: argparse.Namespace, living: Living
) -> tuple[Client, float, float]:
    """Return the client, when the gateway was struck, and how long the command or the start took."""
    client = Client(living.gateway)
    arrivals = draw([RateStep(asked.rate, asked.seconds)], POISSON_CV, np.random.default_rng(0))
    running = asyncio.create_task(client.run(arrivals.tolist(), rows(0)))
    await asyncio.sleep(CALM_S)
    at_s = time.monotonic()
    if scenario == UPGRADE:
        await living.upgrade()
    else:
        await asyncio.to_thread(living.kill)
        await asyncio.to_thread(living.start)
    took_s = time.monotonic() - at_s
    await running
    return client, at_s, took_s


def loads(living: Living) -> int:
    """Return how many replicas the gateway that serves now has loaded itself."""
    with urllib.request.urlopen(f"http://127.0.0.1:{living.ports[2]}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        int(float(line.split()[-1])) for line in lines if line.startswith("penstock_model_loads_total{")
    )


def show(scenario: str, client: Client, struck: tuple[float, float], loaded: int) -> int:
    """Print what became of the requests, and return the number of faults. `struck`: when, and for how long;
    `loaded`: replicas that were loaded again."""
    sent, (at_s, took_s) = client.sent, struck
    late = [one for one in sent if not one.in_time(SLO_S)]
    right = sorted(one.done_s for one in sent if one.what == RIGHT)
    gap_s = max(later - earlier for earlier, later in pairwise(right))
    took_ms = [1e3 * (one.done_s - one.due_s) for one in sent if one.what == RIGHT]
    p50, p99, most = np.percentile(took_ms, [50, 99, 100])
    said = Counter(one.what for one in sent)
    print(
        f"{scenario}: {len(sent)} requests, {len(late)} not in time ({json.dumps(said)}); p50 {p50:.1f} ms, "
        f"p99 {p99:.1f} ms, longest {most:.0f} ms; longest time without an answer {gap_s:.3f} s; "
        f"it took {took_s:.2f} s; {loaded} replicas were loaded again"
    )
    for from_s, found in timeline(sent, at_s):
        if set(found) - {"in time"}:
            print(f"  due {from_s:+.1f} s: " + ", ".join(f"{count} {what}" for what, count in found.items()))
    lost = sum(one.what.startswith(NO_ANSWER) for one in sent)
    wrong = sum(one.what.startswith(WRONG) for one in sent)
    return wrong + loaded + client.surplus_bytes + (lost if scenario == UPGRADE else 0)


def _arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = scenario_parser(__doc__, SCENARIOS)
    parser.add_argument("--slices", type=int, default=2)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
