"""What is lost when one of two gateways ends, and the other one's clients want its model, under steady load.

  python -m loadtests.failures.cell_faults
  python -m loadtests.failures.cell_faults --only upgrade --rate 100

Two gateways share one model, which is in one of them; clients ask the other one, which passes their requests
on. The model sleeps 4 ms and 0.2 ms a row. Every request must get one answer, a right one or a clear error.
An upgrade, an orderly end and a lost Redis may leave none without a right answer. Exit status 1 where one of
these is broken.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import numpy as np

from loadtests.failures.faults import CALM_S, MODEL, SLO_S, rows, scenario_parser, timeline
from loadtests.harness.gateway import free_ports
from loadtests.harness.processes import undisturbed
from loadtests.stand.checked import NO_ANSWER, RIGHT, WRONG, Client
from loadtests.stand.living import Living
from loadtests.stand.redis_server import RedisServer, redis_server
from loadtests.stand.testbed import may_go_first
from serving.simulation.traffic.patterns import POISSON_CV, RateStep, draw

CALM, UPGRADE, END = "nothing", "upgrade", "orderly end"
KILLED, AGAIN, FROZEN, REDIS = "killed", "killed, started again", "frozen for 5 s", "Redis lost for 3 s"
SCENARIOS: Final = (CALM, UPGRADE, END, KILLED, AGAIN, FROZEN, REDIS)
LOSSLESS: Final = (CALM, UPGRADE, END, REDIS)
TOKEN: Final = "0123456789abcdef"  # noqa: S105  of this run alone
FROZEN_S: Final = 5.0
REDIS_S: Final = 3.0
SHARED_S: Final = 60.0


def main() -> int:
    """Return 0 if nothing was lost that may not be lost, else 1."""
    parser = scenario_parser(__doc__, SCENARIOS)
    parser.add_argument("--slices", type=int, default=2, help="of each gateway")
    asked = parser.parse_args()
    os.environ["PENSTOCK_CELL_TOKEN"] = TOKEN
    return 1 if sum([play(scenario, asked) for scenario in asked.only or SCENARIOS]) else 0


@contextmanager
def pair(slices: int) -> Iterator[tuple[Living, Living, RedisServer]]:
    """Yield two gateways and their Redis: the one that clients ask, and the one that has the model."""
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-cells-")))
        both = []
        for name in ("a", "b"):
            home = folder / name
            home.mkdir()
            settings = {
                "cells": {"name": name, "redis": redis.url, "port": free_ports(1)[0]},
                "slices": [{"name": f"s{number}"} for number in range(slices)],
                "models": [{"path": str(MODEL), "slo_ms": SLO_S * 1e3}],
                "cache": False,
                "profiles": str(folder / "profiles"),
            }
            both.append(Living(home, settings))
            stack.callback(both[-1].stop)
        both[0].start()
        both[1].start()
        with_model = _owner(both[0])
        yield both[with_model == "a"], both[with_model == "b"], redis


def _owner(gateway: Living) -> str:
    """Return the cell that has the model, once both cells know of each other."""
    end_s = time.monotonic() + SHARED_S
    while time.monotonic() < end_s:
        with urlopen(f"http://127.0.0.1:{gateway.ports[0]}/v2/cells", timeout=10) as answer:
            told: Any = json.load(answer)
        owners = [cell["name"] for cell in told["cells"] if cell["models"]]
        if len(told["cells"]) == 2 and len(owners) == 1 and not any(cell["reason"] for cell in told["cells"]):
            return str(owners[0])
        time.sleep(0.1)
    raise RuntimeError(f"the cells do not share the model: {told}\n{gateway.output}")


def play(scenario: str, asked: argparse.Namespace) -> int:
    """Play a scenario on two gateways of its own, print what became of the requests; return the faults."""
    with pair(asked.slices) as (asking, owner, redis), undisturbed(None, may_go_first()):
        client, at_s = asyncio.run(_experiment(scenario, asked, (asking, owner, redis)))
    return show(scenario, client, at_s)


async def _experiment(
    scenario: str, asked: argparse.Namespace, there: tuple[Living, Living, RedisServer]
) -> tuple[Client, float]:
    """Return the client, and when the owner was struck."""
    asking, owner, redis = there
    client = Client(asking.gateway)
    arrivals = draw([RateStep(asked.rate, asked.seconds)], POISSON_CV, np.random.default_rng(0))
    running = asyncio.create_task(client.run(arrivals.tolist(), rows(0)))
    await asyncio.sleep(CALM_S)
    at_s = time.monotonic()
    await _strike(scenario, owner, redis)
    await running
    return client, at_s


async def _strike(scenario: str, owner: Living, redis: RedisServer) -> None:
    if scenario == UPGRADE:
        await owner.upgrade()
    elif scenario == END:
        await asyncio.to_thread(owner.stop)
    elif scenario in (KILLED, AGAIN):
        await asyncio.to_thread(owner.kill)
        if scenario == AGAIN:
            await asyncio.to_thread(owner.start)
    elif scenario == FROZEN:
        os.kill(owner.gateway.pid, signal.SIGSTOP)
        await asyncio.sleep(FROZEN_S)
        os.kill(owner.gateway.pid, signal.SIGCONT)
    elif scenario == REDIS:
        redis.kill()
        await asyncio.sleep(REDIS_S)
        redis.start()


def show(scenario: str, client: Client, at_s: float) -> int:
    """Print what became of the requests, and return the number of faults. `at_s`: when it was struck."""
    sent = client.sent
    late = sum(not one.in_time(SLO_S) for one in sent)
    right = sorted(one.done_s for one in sent if one.what == RIGHT)
    gap_s = max(later - earlier for earlier, later in pairwise(right))
    p50, p99 = np.percentile([1e3 * (one.done_s - one.due_s) for one in sent if one.what == RIGHT], [50, 99])
    said = Counter(one.what for one in sent)
    print(
        f"{scenario}: {len(sent)} requests, {late} not in time ({json.dumps(said)}); p50 {p50:.1f} ms, "
        f"p99 {p99:.1f} ms; longest time without an answer {gap_s:.3f} s"
    )
    for from_s, found in timeline(sent, at_s):
        if set(found) - {"in time"}:
            print(f"  due {from_s:+.1f} s: " + ", ".join(f"{count} {what}" for what, count in found.items()))
    lost = sum(one.what.startswith(NO_ANSWER) for one in sent)
    wrong = sum(one.what.startswith(WRONG) for one in sent)
    refused = len(sent) - len(right) - lost - wrong
    return wrong + lost + client.surplus_bytes + (refused if scenario in LOSSLESS else 0)


if __name__ == "__main__":
    sys.exit(main())
