"""What a REST request costs the gateway, and how many it answers a second, by the number of slices.

    python -m loadtests.core.slices_rest [--slices 1 8 32] [--rounds 5] [--seconds 3]

Closed loop on 64 connections, the linear variant of digits, binary tensors. The gateway has one core to
itself; its workers and the client share another, which may limit the requests a second.
"""

import argparse
import os
import selectors
import socket
import time
from statistics import median

from loadtests.harness.gateway import ROOT, Gateway, model_entry, served, settings_of
from loadtests.harness.processes import cpu_us, pin
from loadtests.harness.wire import digits_question
from serving.compiled import is_compiled

SLICES = (1, 8, 32)
CONNECTIONS = 64
READ_BYTES = 1 << 16


def ask_for(gateway: Gateway, request: bytes, seconds: float) -> int:
    """Return how many requests were answered with 200 in so many seconds. Raises RuntimeError for another."""
    chosen = selectors.DefaultSelector()
    connections = [socket.create_connection((gateway.host, gateway.rest_port)) for _ in range(CONNECTIONS)]
    for each in connections:
        chosen.register(each, selectors.EVENT_READ, each)
        each.sendall(request)
    answered, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for key, _ in chosen.select(1.0):
            connection: socket.socket = key.data
            answer = connection.recv(READ_BYTES)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(answer[:300].decode(errors="replace"))
            answered += 1
            connection.sendall(request)
    for each in connections:
        each.close()
    return answered


def measure(slices: int, rounds: int, seconds: float, cores: tuple[int, int]) -> tuple[float, float]:
    """Return the medians of requests a second, and of the gateway's CPU (us) a request."""
    question = digits_question()
    entry = model_entry("digits", variants=["linear"], default_variant="linear", slo_ms=1000)
    settings = settings_of([entry], [cores[1]], ROOT / "profiles")
    settings["slices"] = [{"name": "measured", "count": slices}]
    rates, costs = [], []
    with served(settings) as gateway:
        pin(gateway.pid, [cores[0]])
        for worker in gateway.workers():
            pin(worker, [cores[1]])
        ask_for(gateway, question.request, 1.0)
        for _ in range(rounds):
            before = cpu_us(gateway.pid)
            answered = ask_for(gateway, question.request, seconds)
            rates.append(answered / seconds)
            costs.append((cpu_us(gateway.pid) - before) / answered)
    return median(rates), median(costs)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slices", type=int, nargs="+", default=SLICES)
    parser.add_argument("--rounds", type=int, default=5, help="rounds whose median is printed")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")
    asked = parser.parse_args()
    mine = sorted(os.sched_getaffinity(0))
    cores = (mine[0], mine[1 % len(mine)])
    os.sched_setaffinity(0, {cores[1]})
    print(
        f"{'compiled' if is_compiled() else 'interpreted'}, medians of {asked.rounds} x {asked.seconds:g} s"
    )
    print(f"{'slices':>7}{'requests/s':>13}{'us of CPU a request':>22}")
    for count in asked.slices:
        rate, cost = measure(count, asked.rounds, asked.seconds, cores)
        print(f"{count:7}{rate:13.0f}{cost:22.1f}", flush=True)


if __name__ == "__main__":
    main()
