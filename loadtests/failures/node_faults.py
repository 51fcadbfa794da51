"""What is lost when a node of a gateway dies, freezes or is cut off, under steady load; and for how long.

  python -m loadtests.failures.node_faults
  python -m loadtests.failures.node_faults --only "node frozen" --seconds 10

One slice is here and one on a node, both on this machine. The node calls by way of a proxy, the cable. The
model sleeps 4 ms and 0.2 ms a row. Every request must get exactly one answer, a right one or a clear error.
Exit status 1 where one does not.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from loadtests.failures.faults import CALM_S, MODEL, SLO_S, rows, scenario_parser, timeline
from loadtests.harness.gateway import ROOT, Gateway, free_ports, started
from loadtests.harness.processes import undisturbed, workers_of
from loadtests.stand.checked import NO_ANSWER, RIGHT, WRONG, Client
from loadtests.stand.testbed import may_go_first
from serving.simulation.traffic.patterns import POISSON_CV, RateStep, draw

TOKEN: Final = "0123456789abcdef"  # noqa: S105  of this run's gateway alone
NODE: Final = "box"
FAULT_S: Final = 5.0
"""For how long a frozen or cut node stays so; a killed one is started again after 1 s."""
LOOK_S: Final = 0.02
BACK_S: Final = 60.0
SCENARIOS: Final = ("worker killed", "worker frozen", "node killed", "node frozen", "cable cut")


@dataclass
class Course:
    """What a fault did, in seconds from it: until the gateway knew, and until the node's slice was back."""

    at_s: float = 0.0
    known_s: float = np.nan
    back_s: float = np.nan


class Cable:
    """Passes bytes between the node and the door. While it is `cut`, they go nowhere, and nobody hears."""

    def __init__(self, port: int) -> None:
        self.whole = asyncio.Event()
        self.whole.set()
        self._port = port

    @contextlib.asynccontextmanager
    async def laid(self, port: int) -> AsyncIterator[None]:
        """Listen in place of the door."""
        async with await asyncio.start_server(self._pass, "127.0.0.1", port):
            yield

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection("127.0.0.1", self._port)
        ways = [asyncio.create_task(each) for each in (self._way(reader, onward), self._way(there, writer))]
        with contextlib.suppress(asyncio.CancelledError):  # the run is over
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for each in ways:
            each.cancel()
        for end in (writer, onward):
            end.transport.abort()

    async def _way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self.whole.wait()
                writer.write(data)
                await writer.drain()


class Node:
    """The agent's process, which can be started again."""

    def __init__(self, port: int, cache: Path) -> None:
        self._command = [sys.executable, "-m", "router.cli", "node", "--join", f"127.0.0.1:{port}"]
        self._command += ["--name", NODE, "--cache", str(cache)]
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "PENSTOCK_NODE_TOKEN": TOKEN}
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(self._command, cwd=ROOT, env=environment, stdout=quiet, stderr=quiet)

    def workers(self) -> list[int]:
        return workers_of(self.process.pid)

    def signal(self, sent: signal.Signals) -> None:
        """Send it to the agent and to all below it."""
        for pid in (*self.workers(), self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sent)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def main() -> int:
    """Return 0 if each request got its one answer, else 1."""
    asked = _arguments()
    faults = 0
    for scenario in asked.only or SCENARIOS:
        client, course = play(scenario, asked)
        faults += show(scenario, client, course)
    return 1 if faults else 0


def play(scenario: str, asked: argparse.Namespace) -> tuple[Client, Course]:
    """Return what became of the requests on a gateway of its own."""
    door, cable = free_ports(2)
    os.environ["PENSTOCK_NODE_TOKEN"] = TOKEN
    slices = [{"name": "near"}, {"name": "far", "node": NODE}]
    entry = {"path": str(MODEL), "slo_ms": SLO_S * 1e3, "slices": ["near", "far"]}
    with tempfile.TemporaryDirectory(prefix="penstock-nodes-") as folder:
        settings: dict[str, Any] = {"slices": slices, "limits": {"stall_s": 1.0}, "nodes": {"port": door}}
        gateways = started([entry], (), Path(folder, "profiles"), **settings)
        with gateways as gateway, undisturbed(None, may_go_first()):
            return asyncio.run(_experiment(scenario, asked, gateway, (door, cable, Path(folder))))


async def _experiment(
    scenario: str, asked: argparse.Namespace, gateway: Gateway, ground: tuple[int, int, Path]
) -> tuple[Client, Course]:
    client, course = Client(gateway), Course()
    cable = Cable(ground[0])
    async with cable.laid(ground[1]):
        node = Node(ground[1], ground[2] / "cache")
        try:
            await _until(gateway, ready=True)
            arrivals = draw([RateStep(asked.rate, asked.seconds)], POISSON_CV, np.random.default_rng(0))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(client.run(arrivals.tolist(), rows(0)))
                tasks.create_task(_strike(scenario, gateway, node, cable, course))
        finally:
            node.signal(signal.SIGCONT)
            node.end()
    return client, course


async def _strike(scenario: str, gateway: Gateway, node: Node, cable: Cable, course: Course) -> None:
    await asyncio.sleep(CALM_S)
    course.at_s = time.monotonic()
    watching = asyncio.create_task(_watch(gateway, course))
    match scenario:
        case "worker killed":
            os.kill(node.workers()[0], signal.SIGKILL)
        case "worker frozen":
            os.kill(node.workers()[0], signal.SIGSTOP)
        case "node killed":
            node.end()
            await asyncio.sleep(1.0)
            node.start()
        case "node frozen":
            node.signal(signal.SIGSTOP)
            await asyncio.sleep(FAULT_S)
            node.signal(signal.SIGCONT)
        case "cable cut":
            cable.whole.clear()
            await asyncio.sleep(FAULT_S)
            cable.whole.set()
    await watching


async def _watch(gateway: Gateway, course: Course) -> None:
    await _until(gateway, ready=False)
    course.known_s = time.monotonic() - course.at_s
    await _until(gateway, ready=True)
    course.back_s = time.monotonic() - course.at_s


async def _until(gateway: Gateway, *, ready: bool) -> None:
    """Wait until the status says that the node's slice takes batches, or that it does not."""
    async with asyncio.timeout(BACK_S):
        while await asyncio.to_thread(_far_ready, gateway) is not ready:  # noqa: ASYNC110  another process
            await asyncio.sleep(LOOK_S)


def _far_ready(gateway: Gateway) -> bool:
    with urllib.request.urlopen(f"http://{gateway.host}:{gateway.rest_port}/v2/status", timeout=5) as answer:
        told = json.loads(answer.read())
    replicas: Iterator[Any] = (each for model in told["models"] for each in model["replicas"])
    return any(each["slice"] == "far" and each["state"] == "ready" for each in replicas)


def show(scenario: str, client: Client, course: Course) -> int:
    """Print what became of the requests, and return how many got no answer or a wrong one."""
    sent = client.sent
    late = [one for one in sent if not one.in_time(SLO_S)]
    after = [one for one in sent if one.due_s >= course.at_s]
    took_ms = [1e3 * (one.done_s - one.due_s) for one in sent if one.what == RIGHT]
    p50, p99 = np.percentile(took_ms, [50, 99])
    missed = sum(one.what.startswith((NO_ANSWER, WRONG)) for one in sent)
    said = sorted({one.what for one in late} - {RIGHT})
    print(
        f"{scenario}: {len(sent)} requests, {len(late)} not in time ({', '.join(said) or 'all answered'}); "
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms; known after {course.known_s:.3f} s, "
        f"the slice back after {course.back_s:.2f} s; {len(after)} came after the fault"
    )
    for from_s, found in timeline(sent, course.at_s):
        if set(found) - {"in time"}:
            print(f"  due {from_s:+.1f} s: " + ", ".join(f"{count} {what}" for what, count in found.items()))
    return missed


def _arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    return scenario_parser(__doc__, SCENARIOS).parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
