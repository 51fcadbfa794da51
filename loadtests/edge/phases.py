"""How much of a client's time the gateway's phases explain, one request after the other.

One client asks the cheap sample model `simple` over each dialect in turns, and reads `Server-Timing`. Then it
asks a server that computes nothing and gives the same answers after as long. What is beyond that server's own
time is the floor: the client's own work and the transport's, which no phase of a server can hold.
The client has one core, and both servers have the others: on one core they would wake each other at once.

python -m loadtests.edge.phases [--requests 2000 --turns 5]
"""

import argparse
import os
import re
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter_ns

import grpc
import tritonclient.http

from loadtests.harness.gateway import Gateway, model_entry, started
from loadtests.harness.processes import pin, undisturbed
from loadtests.harness.wire import ask as ask_once
from loadtests.stand.dialects import DIALECTS, MODEL, Ask, binary_request, json_request, message, stub
from loadtests.stand.empty_server import Made, empty_server

SLO_MS = 10_000  # no stall of the machine has a request refused
WARM_REQUESTS = 200

Asked = tuple[float, float]
"""What the client measured, and the sum of the server's phases: microseconds."""


@dataclass(slots=True)
class Dialect:
    """What was measured in one, of the gateway and of the empty server. By turns: `counted`, the share of the
    client's time that the gateway's statistics hold, and `turns`, each alone."""

    name: str
    gateway: list[Asked] = field(default_factory=list)
    empty: list[Asked] = field(default_factory=list)
    counted: list[float] = field(default_factory=list)
    turns: list["Dialect"] = field(default_factory=list)

    @property
    def client_us(self) -> float:
        """What a client measures: the median."""
        return median(client for client, _ in self.gateway)

    @property
    def phases_us(self) -> float:
        """The sum of a request's phases: the median."""
        return median(phases for _, phases in self.gateway)

    @property
    def floor_us(self) -> float:
        """What the client and the transport take of a request that nothing is done with: the median."""
        return median(client - own for client, own in self.empty)

    def take(self, gateway: list[Asked], empty: list[Asked]) -> None:
        """Add one turn."""
        self.gateway += gateway
        self.empty += empty
        self.turns.append(Dialect(self.name, gateway, empty))

    @property
    def calmest(self) -> float:
        """The share of the client's time that is explained where others disturbed least: in the turn in which
        a client waited least, with the least floor of all turns."""
        turn = min(self.turns, key=lambda each: each.client_us)
        return (turn.phases_us + min(each.floor_us for each in self.turns)) / turn.client_us

    @property
    def explained(self) -> float:
        """The share of the client's time that phases and floor explain."""
        return (self.phases_us + self.floor_us) / self.client_us


def measure(gateway: Gateway, requests: int, turns: int) -> list[Dialect]:
    """Send `requests` requests a turn to the gateway, which serves MODEL, and to an empty server, in each
    dialect."""
    found = [Dialect(name) for name in DIALECTS]
    with ExitStack() as opened:
        cores = os.sched_getaffinity(0)
        others = cores - {min(cores)} or cores
        opened.enter_context(undisturbed(min(cores), realtime=False))
        pin(gateway.pid, others)
        told = opened.enter_context(tritonclient.http.InferenceServerClient(f"127.0.0.1:{gateway.rest_port}"))
        clients = _clients(opened, (gateway.rest_port, gateway.rpc_port))
        _asked(clients[0], WARM_REQUESTS)
        hold_us = median(phases for _, phases in _asked(clients[0], WARM_REQUESTS))
        made = _answers(gateway, hold_us / 1e6)
        empty = _clients(opened, opened.enter_context(empty_server(made, others)))
        for _ in range(turns):
            for dialect, ask, ask_empty in zip(found, clients, empty, strict=True):
                before_us = _success_us(told)
                turn = _asked(ask, requests)
                dialect.counted.append((_success_us(told) - before_us) / sum(client for client, _ in turn))
                dialect.take(turn, _asked(ask_empty, requests))
    return found


def _clients(opened: ExitStack, ports: tuple[int, int]) -> list[Ask]:
    return [opened.enter_context(client(ports[door])) for client, door in DIALECTS.values()]


def _success_us(told: tritonclient.http.InferenceServerClient) -> float:
    """Return what the gateway counts as the time of all answers of MODEL."""
    (stats,) = told.get_inference_statistics(MODEL)["model_stats"]
    return float(stats["inference_stats"]["success"]["ns"]) / 1000


def _asked(ask: Ask, requests: int) -> list[Asked]:
    seen = []
    for _ in range(requests):
        began_ns = perf_counter_ns()
        timing = ask()
        client_us = (perf_counter_ns() - began_ns) / 1000
        seen.append((client_us, 1000 * sum(map(float, re.findall(r";dur=([\d.]+)", timing)))))
    return seen


def _answers(gateway: Gateway, hold_s: float) -> Made:
    """Return the gateway's."""
    rest = [ask_once(gateway, each()) for each in (json_request, binary_request)]
    with grpc.insecure_channel(f"127.0.0.1:{gateway.rpc_port}") as channel:
        answer, call = stub(channel).ModelInfer.with_call(message())
        metadata = [(key, value) for key, value in call.trailing_metadata() if key != "server-timing"]
    return Made(rest, answer.SerializeToString(), metadata, hold_s)


def main() -> None:
    """Print what was measured in each dialect."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=2000, help="one after the other, a turn")
    parser.add_argument("--turns", type=int, default=5)
    stated = parser.parse_args()
    with started([model_entry(MODEL, slo_ms=SLO_MS)]) as gateway:
        found = measure(gateway, stated.requests, stated.turns)
    print(
        f"{'medians':14}{'client us':>11}{'phases us':>11}{'floor us':>10}{'explained':>11}{'statistics':>12}"
    )
    for one in found:
        print(
            f"{one.name:14}{one.client_us:11.0f}{one.phases_us:11.0f}{one.floor_us:10.0f}"
            f"{one.explained:11.1%}{median(one.counted):12.1%}"
        )


if __name__ == "__main__":
    main()
