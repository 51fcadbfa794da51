"""What others have of the gateway while an attack runs: latency from the due time, memory, descriptors."""

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from urllib.request import urlopen

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from loadtests.harness.gateway import Gateway
from loadtests.harness.processes import children, command_line, resident_bytes
from loadtests.harness.wire import post, read_answer
from loadtests.hostile.abuse.hostile import PATH, good_body, is_right
from loadtests.hostile.abuse.rpc_probe import Seen, asking

EVERY_S = 0.005
AROUND_S = 0.5  # watched before the attack, and after it
LAG = "penstock_event_loop_lag_seconds"
BOUNDS_S = ("0.005", "0.02", "0.1")
_LIVE = b"GET /livez HTTP/1.1\r\nHost: penstock\r\n\r\n"


class Broken(Exception):  # noqa: N818  # a finding
    """A promise was not kept; the text says which."""


@dataclass(slots=True)
class Watched:
    """Latencies in milliseconds; memory in MB at its highest, of the gateway, of its bulk processes, and of
    all its processes (what they share counts once for each). `refused`: good requests that got a clear 503;
    `bad_answers`: wrong or missing ones, and lost connections. `rpc`: the calls of a good gRPC client.
    `broken`: `said` tells a promise that was not kept."""

    said: str = ""
    broken: bool = False
    took_s: float = 0.0
    live_ms: list[float] = field(default_factory=list)
    good_ms: list[float] = field(default_factory=list)
    refused: int = 0
    bad_answers: int = 0
    resident_mb: float = 0.0
    bulk_mb: float = 0.0
    tree_mb: float = 0.0
    descriptors: int = 0
    rpc: Seen = field(default_factory=Seen)

    def live(self, share: float) -> float:
        return float(np.quantile(self.live_ms, share)) if self.live_ms else float("nan")

    def good(self, share: float) -> float:
        return float(np.quantile(self.good_ms, share)) if self.good_ms else float("nan")


def watch(gateway: Gateway, attack: Callable[[Gateway], str]) -> Watched:
    """Play the attack in a process of its own, and ask for health and for answers all the while."""
    found = Watched()
    ended = threading.Event()
    probes = [
        threading.Thread(target=_probe, args=(gateway, request, check, found, kept, ended))
        for request, check, kept in (
            (_LIVE, lambda answer: answer is not None and answer.status == 200, found.live_ms),
            (post(PATH, good_body()), is_right, found.good_ms),
        )
    ]
    probes.append(threading.Thread(target=_measure, args=(gateway, found, ended)))
    with asking(gateway) as found.rpc:
        for each in probes:
            each.start()
        try:
            time.sleep(AROUND_S)
            began_s = time.monotonic()
            found.said, found.broken = _played(gateway, attack)
            found.took_s = time.monotonic() - began_s
            time.sleep(AROUND_S)
        finally:
            ended.set()
            for each in probes:
                each.join()
    return found


def lag_of(gateway: Gateway) -> str:
    """Return the gateway's own samples of its event loop's lag, ten a second: shares below some bounds."""
    try:
        with urlopen(f"http://{gateway.host}:{gateway.metrics_port}/metrics", timeout=60) as answer:
            families = text_string_to_metric_families(answer.read().decode())
    except OSError:
        return "not known: the gateway does not answer"
    samples = [each for family in families if family.name == LAG for each in family.samples]
    counts = {each.labels["le"]: each.value for each in samples if each.name.endswith("_bucket")}
    total = max(counts["+Inf"], 1.0)
    shares = [f"{counts[bound] / total:.2%} of {float(bound) * 1e3:g} ms or less" for bound in BOUNDS_S]
    return f"{', '.join(shares)}, of {total:.0f} samples"


def _played(gateway: Gateway, attack: Callable[[Gateway], str]) -> tuple[str, bool]:
    """Play the attack in a process of its own, so that its work holds no lock of the probes'. It forks, as
    the attack may hold much."""
    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_play, args=(gateway, attack, theirs))
    process.start()
    theirs.close()
    try:
        said, broken = ours.recv()
    except EOFError:
        said, broken = "the attacker died", True
    process.join()
    return str(said), bool(broken)


def _play(gateway: Gateway, attack: Callable[[Gateway], str], answer: Connection) -> None:
    os.nice(5)
    try:
        answer.send((attack(gateway), False))
    except Broken as broken:
        answer.send((str(broken), True))
    except OSError as error:
        answer.send((f"closed: {error!r}", False))


def _probe(
    gateway: Gateway,
    request: bytes,
    check: Callable[..., bool],
    found: Watched,
    kept: list[float],
    ended: threading.Event,
) -> None:
    """Send a request every EVERY_S on one connection, each timed from when it was due."""
    address = (gateway.host, gateway.rest_port)
    try:
        with socket.create_connection(address, 60) as connection, connection.makefile("rb") as stream:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            due_s = time.monotonic()
            while not ended.is_set():
                connection.sendall(request)
                answer = read_answer(stream)
                refused = answer is not None and answer.status == 503 and answer.reason != ""
                found.refused += refused
                found.bad_answers += not (refused or check(answer))
                now_s = time.monotonic()
                kept.append((now_s - due_s) * 1e3)
                due_s += EVERY_S
                time.sleep(max(0.0, due_s - now_s))
    except OSError:
        found.bad_answers += 1


def _measure(gateway: Gateway, found: Watched, ended: threading.Event) -> None:
    if not gateway.pid:
        return
    while not ended.wait(0.05):
        all_children = children(gateway.pid)
        bulk = [pid for pid in all_children if "router.payloads.bulk" in command_line(pid)]
        found.resident_mb = max(found.resident_mb, _resident(gateway.pid) / 1e6)
        found.bulk_mb = max(found.bulk_mb, sum(map(_resident, bulk)) / 1e6)
        found.tree_mb = max(found.tree_mb, sum(map(_resident, (gateway.pid, *all_children))) / 1e6)
        with suppress(OSError):  # it may have died
            found.descriptors = max(found.descriptors, len(os.listdir(f"/proc/{gateway.pid}/fd")))


def _resident(pid: int) -> int:
    try:
        return resident_bytes(pid)
    except OSError:  # it ended meanwhile
        return 0
