"""A good gRPC client beside an attack, in a process of its own: how its calls end, and how long they take.

Run by itself it asks until its standard input ends, and prints what it found as JSON.
Run: python -m loadtests.hostile.abuse.rpc_probe HOST PORT
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any  # grpc carries no types

import grpc
import numpy as np

from loadtests.harness.gateway import ROOT, Gateway
from loadtests.hostile.abuse.bombs import INFER

EVERY_S = 0.02
PATIENCE_S = 20.0
OPENING_S = 60.0
"""For its start, on a machine that does other work."""
REASON = "x-penstock-reason"


@dataclass(slots=True)
class Seen:
    """The calls of the client: how many ended how, by their status, and how long each took (ms)."""

    endings: Counter[str] = field(default_factory=Counter)
    unexplained: Counter[str] = field(default_factory=Counter)  # of those: the gateway gave no reason
    took_ms: list[float] = field(default_factory=list)

    @property
    def good(self) -> int:
        return self.endings["OK"]

    @property
    def cancelled(self) -> int:
        return self.endings["CANCELLED"]

    @property
    def other(self) -> int:
        return self.endings.total() - self.good - self.cancelled

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.took_ms, share)) if self.took_ms else float("nan")


@contextlib.contextmanager
def asking(gateway: Gateway) -> Iterator[Seen]:
    """Run a client that asks meanwhile; what it found is there afterwards. Nothing is asked without a gRPC
    port."""
    seen = Seen()
    if not gateway.rpc_port:
        yield seen
        return
    command = [sys.executable, "-m", __name__, gateway.host, str(gateway.rpc_port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        if process.stdout is None or not process.stdout.readline():
            raise RuntimeError("the gRPC client beside the attack has not begun")
        try:
            yield seen
        finally:
            said, _ = process.communicate(timeout=PATIENCE_S + OPENING_S)
            found = json.loads(said)
            seen.endings.update(found["endings"])
            seen.unexplained.update(found["unexplained"])
            seen.took_ms += found["took_ms"]


def question() -> bytes:
    """Return a handmade ModelInferRequest for `simple`, with two inputs of zeros."""
    message = b"\x0a\x06simple"
    for name in (b"INPUT0", b"INPUT1"):
        tensor = b"\x0a\x06" + name + b"\x12\x05INT32\x1a\x02\x01\x10"
        message += b"\x2a" + bytes((len(tensor),)) + tensor
    return message + (b"\x3a\x40" + bytes(64)) * 2


def ask(host: str, port: int, ended: threading.Event) -> Seen:
    """Return a call each EVERY_S, timed from when it was due."""
    seen, message = Seen(), question()
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        infer = channel.unary_unary(INFER, bytes, bytes)
        infer(message, timeout=OPENING_S, wait_for_ready=True)
        print("asks", flush=True)
        due_s = time.monotonic()
        while not ended.is_set():
            _ask_once(infer, message, seen)
            now_s = time.monotonic()
            seen.took_ms.append((now_s - due_s) * 1e3)
            due_s += EVERY_S
            time.sleep(max(0.0, due_s - now_s))
    return seen


def _ask_once(infer: Any, message: bytes, seen: Seen) -> None:
    try:
        infer(message, timeout=PATIENCE_S)
    except grpc.RpcError as error:
        seen.endings[error.code().name] += 1
        if REASON not in dict(error.trailing_metadata() or ()):
            seen.unexplained[error.code().name] += 1
    else:
        seen.endings["OK"] += 1


def _until_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def main() -> None:
    """Ask until the standard input ends."""
    host, port = sys.argv[1:]
    ended = threading.Event()
    threading.Thread(target=_until_end, args=(ended,), daemon=True).start()
    seen = ask(host, int(port), ended)
    print(json.dumps({name: getattr(seen, name) for name in ("endings", "unexplained", "took_ms")}))


if __name__ == "__main__":
    main()
