"""Five minutes of everything: good traffic by real clients, bad input, aborts, scrapes, kills, attacks.

  python -m loadtests.failures.soak [--seconds 300] [--json FILE]

Good requests go on all the while, over REST, gRPC and through Triton's clients. Beside them, in turn:
broken requests (`loadtests.hostile.abuse`), a part of the costly attacks, fuzzed bytes and frames
(`loadtests.hostile.fuzz`), the kill of a worker. Exit status 1 where an answer is wrong or missing, where too
few were right, or where memory, descriptors or threads of the gateway grow: by the slope of the second half
of the samples.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.request import urlopen

import grpc
import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from loadtests.harness.gateway import ROOT, Gateway, model_entry, started
from loadtests.harness.processes import resident_bytes
from loadtests.harness.wire import post, read_answer
from loadtests.hostile.abuse.hostile import PATH, good_body, is_right

EVERY_S = 0.02  # between the requests of each of the five good clients
SAMPLE_S = 1.0
WARM_SHARE = 0.5  # of the samples, before growth is looked at
RIGHT_MIN = 0.9  # of the good requests; the others are refused while there is no worker
BACK_S = 60.0
SLO_MS = 1000.0  # the machine is shared by clients, attackers and gateway
GROWTH_MAX = {"resident MB": 16.0, "descriptors": 8.0, "threads": 2.0}
"""By the slope, over the samples that are looked at."""
ATTACKS = (
    "31 M empty inputs",
    "REST, gzip: 15 M empty texts as binary",
    "not UTF-8",
    "whole message",
    "upgrade",
)
FUZZ_S = 15.0
NEVER = ("wrong", "missing", "without a reason")
"""How no good request may end. `without a reason`: a gRPC call that the gateway gave no outcome, as those
that grpc itself ends as CANCELLED or UNAVAILABLE."""


class Tally:
    """How good requests ended, by client, and what was broken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.endings: dict[str, Counter[str]] = {}
        self.broken: list[str] = []
        self.latency_ms: list[float] = []

    def count(self, client: str, ending: str, took_ms: float = 0.0) -> None:
        with self._lock:
            self.endings.setdefault(client, Counter())[ending] += 1
            self.latency_ms.append(took_ms)

    def broke(self, what: str) -> None:
        with self._lock:
            self.broken.append(what)
            print(f"BROKEN: {what}", flush=True)

    def judged(self) -> list[str]:
        """Return the broken promises, including clients with too few right answers."""
        found = list(self.broken)
        for client, endings in self.endings.items():
            found += [f"{client}: {endings[each]} {each}" for each in NEVER if endings[each]]
            if endings["right"] < RIGHT_MIN * endings.total():
                found.append(f"{client}: {endings['right']} of {endings.total()} were right")
        return found


def slope(samples: Sequence[float]) -> float:
    """Return by how much the samples rise from the first to the last. It is the median of the slopes of all
    pairs (Theil, Sen), which a few high samples do not move."""
    values = np.asarray(samples, float)
    first, last = np.triu_indices(len(values), 1)
    if not len(first):
        return 0.0
    return float(np.median((values[last] - values[first]) / (last - first)) * (len(values) - 1))


def _reason(error: InferenceServerException) -> str:
    """Return why a request of Triton's clients failed: in HTTP the status, in gRPC the gateway's own word."""
    call = error.__context__  # where it came from gRPC
    if not isinstance(call, grpc.RpcError):
        return str(error.status() or "missing")
    fields = dict(call.trailing_metadata() or ())
    if "x-penstock-reason" not in fields:
        print(f"gRPC, without a reason: {call.code().name} {call.details()}", flush=True)
    return str(fields.get("x-penstock-reason", "without a reason"))


class Soak:
    """A gateway, its clients and its disturbances, for so long."""

    def __init__(self, gateway: Gateway, seconds: float) -> None:
        self.gateway = gateway
        self.tally = Tally()
        self.samples: dict[str, list[float]] = {name: [] for name in GROWTH_MAX}
        self.done: Counter[str] = Counter()
        self._until_s = time.monotonic() + seconds

    def run(self) -> None:
        """Run all of it, until the time is up and the disturbance that is under way has ended."""
        ended = threading.Event()
        roles = [
            self._rest, self._rest, self._binary, self._rpc, self._http, self._aborts, self._scrapes,
            self._sample,
        ]  # fmt: skip
        threads = [threading.Thread(target=role, args=(ended,)) for role in roles]
        for each in threads:
            each.start()
        try:
            while time.monotonic() < self._until_s:
                for disturb in (self._broken_requests, self._attacks, self._fuzz, self._kill):
                    if time.monotonic() < self._until_s:
                        disturb()
        finally:
            ended.set()
            for each in threads:
                each.join()

    # good clients

    def _rest(self, ended: threading.Event) -> None:
        self._ask("REST, JSON", post(PATH, good_body(2)), ended)

    def _binary(self, ended: threading.Event) -> None:
        entry = {"datatype": "INT32", "shape": [1, 16], "parameters": {"binary_data_size": 64}}
        text = json.dumps({"inputs": [{"name": name, **entry} for name in ("INPUT0", "INPUT1")]}).encode()
        numbers = struct.pack("<16i", *range(16))
        request = post(PATH, text + numbers * 2, {"Inference-Header-Content-Length": len(text)})
        self._ask("REST, binary", request, ended)

    def _ask(self, client: str, request: bytes, ended: threading.Event) -> None:
        """Ask on one connection, made again if it was closed."""
        while not ended.is_set():
            try:
                self._ask_on_one(client, request, ended)
            except OSError:
                self.tally.count(client, "missing")

    def _ask_on_one(self, client: str, request: bytes, ended: threading.Event) -> None:
        """Ask until the connection is closed without an answer. Raises ConnectionError then."""
        with (
            socket.create_connection((self.gateway.host, self.gateway.rest_port), BACK_S) as connection,
            connection.makefile("rb") as stream,
        ):
            while not ended.wait(EVERY_S):
                began_s = time.monotonic()
                connection.sendall(request)
                answer = read_answer(stream)
                if answer is None:
                    raise ConnectionError("closed")
                right = "right" if is_right(answer) else "wrong"
                ending = right if answer.status == 200 else answer.reason or f"status {answer.status}"
                self.tally.count(client, ending, (time.monotonic() - began_s) * 1e3)

    def _rpc(self, ended: threading.Event) -> None:
        with tritonclient.grpc.InferenceServerClient(
            f"{self.gateway.host}:{self.gateway.rpc_port}"
        ) as client:
            self._infer("tritonclient gRPC", tritonclient.grpc, client, ended)

    def _http(self, ended: threading.Event) -> None:
        with tritonclient.http.InferenceServerClient(
            f"{self.gateway.host}:{self.gateway.rest_port}"
        ) as client:
            self._infer("tritonclient HTTP", tritonclient.http, client, ended)

    def _infer(self, name: str, module: object, client: object, ended: threading.Event) -> None:
        """Ask through one of Triton's clients, which carry no types."""
        ones = np.ones((1, 16), np.int32)
        inputs = [module.InferInput(each, [1, 16], "INT32") for each in ("INPUT0", "INPUT1")]  # type: ignore[attr-defined]
        for each in inputs:
            each.set_data_from_numpy(ones)
        while not ended.wait(EVERY_S):
            began_s = time.monotonic()
            try:
                found = client.infer("simple", inputs).as_numpy("OUTPUT0")  # type: ignore[attr-defined]
                ending = "right" if np.array_equal(found, 2 * ones) else "wrong"
            except InferenceServerException as error:
                ending = _reason(error)
            except OSError as error:
                ending = type(error).__name__
            self.tally.count(name, ending, (time.monotonic() - began_s) * 1e3)

    # who comes and goes

    def _aborts(self, ended: threading.Event) -> None:
        request = post(PATH, good_body())
        size = len(request)
        while not ended.wait(EVERY_S):
            for port in (self.gateway.rest_port, self.gateway.rpc_port):
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection((self.gateway.host, port), 5) as one,
                ):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    one.sendall(request[: 1 + self.done["aborts"] * 37 % size])
            self.done["aborts"] += 1

    def _scrapes(self, ended: threading.Event) -> None:
        host, rest = self.gateway.host, f"{self.gateway.host}:{self.gateway.rest_port}"
        pages = f"{host}:{self.gateway.metrics_port}/metrics", f"{rest}/v2/status", f"{rest}/v2/models/stats"
        while not ended.wait(SAMPLE_S):
            for url in pages:
                try:
                    with urlopen(f"http://{url}", timeout=BACK_S) as answer:  # ours
                        self.done["scrapes"] += len(answer.read()) > 0
                except OSError as error:
                    self.tally.broke(f"{url}: {error!r}")

    def _sample(self, ended: threading.Event) -> None:
        place = Path(f"/proc/{self.gateway.pid}")
        while not ended.wait(SAMPLE_S):
            self.samples["resident MB"].append(resident_bytes(self.gateway.pid) / 1e6)
            self.samples["descriptors"].append(len(os.listdir(place / "fd")))
            self.samples["threads"].append(len(os.listdir(place / "task")))

    # disturbances, one after the other

    def _broken_requests(self) -> None:
        self._command("broken requests", "loadtests.hostile.abuse", "--rounds", "1", "--failures-only")

    def _attacks(self) -> None:
        only = [word for attack in ATTACKS for word in ("--only", attack)]
        self._command("attacks", "loadtests.hostile.abuse", "--all", *only)

    def _fuzz(self) -> None:
        seed = str(self.done["fuzzed"])
        self._command(
            "fuzzed", "loadtests.hostile.fuzz", "--server", "--seconds", str(FUZZ_S), "--seed", seed
        )

    def _command(self, what: str, *words: str) -> None:
        gateway = self.gateway
        ports = ("--port", gateway.rest_port, "--grpc-port", gateway.rpc_port, "--pid", gateway.pid)
        command = [sys.executable, "-m", *words, *map(str, ports)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        self.done[what] += 1
        print(f"{what}: {'as promised' if not ended.returncode else 'BROKEN'}", flush=True)
        if ended.returncode:
            self.tally.broke(f"{what}:\n{ended.stdout[-3000:]}{ended.stderr[-2000:]}")

    def _kill(self) -> None:
        """Kill one of the workers, and wait until all are there again, and answer."""
        workers = self.gateway.workers()
        with contextlib.suppress(ProcessLookupError):
            os.kill(workers[self.done["kills"] % len(workers)], signal.SIGKILL)
        self.done["kills"] += 1
        until_s = time.monotonic() + BACK_S
        while self.gateway.workers() == workers or not self._answers():
            if time.monotonic() > until_s:
                self.tally.broke(f"no right answer within {BACK_S:.0f} s of a kill")
                return
            time.sleep(0.1)
        print("a worker was killed and is back", flush=True)

    def _answers(self) -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((self.gateway.host, self.gateway.rest_port), BACK_S) as connection,
            connection.makefile("rb") as stream,
        ):
            connection.sendall(post(PATH, good_body()))
            return is_right(read_answer(stream))
        return False


def judge(soak: Soak) -> list[str]:
    """Return the broken promises, including growth."""
    found = soak.tally.judged()
    for name, samples in soak.samples.items():
        late = samples[int(len(samples) * WARM_SHARE) :]
        growth = slope(late)
        print(f"{name}: {late[0]:.0f} to {late[-1]:.0f}, at most {max(late):.0f}, by its slope {growth:+.1f}")
        if growth > GROWTH_MAX[name]:
            found.append(f"{name} grew by {growth:.1f}, over {GROWTH_MAX[name]:.0f}")
    return found


def main() -> int:
    """Return 0 if every promise was kept, else 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=270.0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    began_s = time.monotonic()
    with started([model_entry("simple", slo_ms=SLO_MS), model_entry("identity")]) as gateway:
        soak = Soak(gateway, asked.seconds)
        soak.run()
    for client, endings in soak.tally.endings.items():
        print(f"{client:18} {', '.join(f'{count} {ending}' for ending, count in endings.most_common())}")
    latency = np.quantile(soak.tally.latency_ms, [0.5, 0.99, 0.999])
    print("p50, p99, p99.9 of all: " + ", ".join(f"{each:.1f}" for each in latency) + " ms")
    print(", ".join(f"{count} {name}" for name, count in soak.done.items()))
    broken = judge(soak)
    for each in broken:
        print(f"BROKEN: {each}")
    if asked.json:
        asked.json.write_text(json.dumps({"samples": soak.samples, "broken": broken}) + "\n")
    print(f"{len(broken)} promises broken, in {time.monotonic() - began_s:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
