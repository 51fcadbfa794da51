"""What open pages cost a gateway: its CPU with 0, 1 and 20 pages, and what each page is sent.

    python -m loadtests.core.page_cost [--models 200] [--pages 0 1 20] [--rounds 3] [--seconds 10]

Most models are idle; ten of them are asked 20 times a second each, so that figures change. The gateway has
one core to itself; its worker, the client and the pages' readers share another.
"""

import argparse
import os
import socket
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from loadtests.harness.gateway import Gateway, served, settings_of
from loadtests.harness.processes import cpu_us, pin

MODELS, PAGES = 200, (0, 1, 20)
ASKED, RATE = 10, 20
READ_BYTES = 1 << 16
SPEC = """\
name: {name}
inputs: [{{name: x, datatype: FP32, shape: [-1, 4]}}]
outputs: [{{name: y, datatype: FP32, shape: [-1, 4]}}]
batch_max: 4
slo_ms: 100
default_variant: default
variants: [{{name: default}}]
"""
CODE = """\
import numpy as np


class Model:
    def predict(self, inputs, parameters):
        return {"y": inputs["x"]}

    def sample(self, rows, size):
        return {"x": np.zeros((rows, 4), np.float32)}
"""
BODY = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'


class Watcher(threading.Thread):
    """An open page: reads the stream, and counts its bytes."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_connection((gateway.host, gateway.rest_port))
        self._socket.sendall(b"GET /v2/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.read_bytes = 0
        self.start()

    def run(self) -> None:
        while part := self._read():
            self.read_bytes += len(part)

    def _read(self) -> bytes:
        try:
            return self._socket.recv(READ_BYTES)
        except OSError:
            return b""

    def end(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self.join()
        self._socket.close()


class Asker(threading.Thread):
    """Asks the first models in turn, at a rate, until it is ended."""

    def __init__(self, gateway: Gateway, models: int) -> None:
        super().__init__(daemon=True)
        self._gateway, self._models = gateway, min(models, ASKED)
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        with socket.create_connection((self._gateway.host, self._gateway.rest_port)) as connection:
            due, number = time.monotonic(), 0
            while not self._ended.is_set():
                due += 1 / (self._models * RATE)
                time.sleep(max(0.0, due - time.monotonic()))
                path = f"/v2/models/m{number % self._models}/infer"
                head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n\r\n"
                connection.sendall(head.encode() + BODY)
                connection.recv(READ_BYTES)
                number += 1

    def end(self) -> None:
        self._ended.set()
        self.join()


def write_models(folder: Path, count: int) -> list[dict[str, object]]:
    """Write so many models, and return their entries in the settings."""
    entries: list[dict[str, object]] = []
    for number in range(count):
        there = folder / f"m{number}"
        there.mkdir()
        (there / "model.yaml").write_text(SPEC.format(name=there.name))
        (there / "model.py").write_text(CODE)
        entries.append({"path": str(there)})
    return entries


def measure(gateway: Gateway, pages: int, seconds: float) -> tuple[float, float]:
    """Return the gateway's CPU as a share of a core, and the bytes a second of a page."""
    watchers = [Watcher(gateway) for _ in range(pages)]
    time.sleep(2.0)  # the whole status is sent first
    before, read = cpu_us(gateway.pid), [each.read_bytes for each in watchers]
    time.sleep(seconds)
    spent = (cpu_us(gateway.pid) - before) / 1e6 / seconds
    sent = [(each.read_bytes - was) / seconds for each, was in zip(watchers, read, strict=True)]
    for each in watchers:
        each.end()
    time.sleep(2.0)  # what runs for pages has ended
    return spent, median(sent) if sent else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU of a gateway by open pages.")
    parser.add_argument("--models", type=int, default=MODELS)
    parser.add_argument("--pages", type=int, nargs="+", default=list(PAGES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    own, other = cores[0], cores[-1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = settings_of(write_models(folder, given.models), [other], folder / "profiles")
        settings["limits"] = {"sweep_s": 0.2}
        with served(settings) as gateway:
            pin(gateway.pid, [own])
            os.sched_setaffinity(0, {other})
            asker = Asker(gateway, given.models)
            measure(gateway, 1, 2.0)  # warm
            found: dict[int, list[tuple[float, float]]] = {pages: [] for pages in given.pages}
            for _ in range(given.rounds):
                for pages in given.pages:
                    found[pages].append(measure(gateway, pages, given.seconds))
            asker.end()
    print(f"{given.models} models, {ASKED * RATE} requests/s; median of {given.rounds} rounds")
    for pages, rounds in found.items():
        spent, sent = (median(column) for column in zip(*rounds, strict=True))
        print(f"  {pages:3} pages: {spent:6.1%} of a core, {sent / 1024:6.1f} KiB/s to each page")


if __name__ == "__main__":
    main()
