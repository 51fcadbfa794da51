"""A gateway for a measurement: started on free ports with a configuration of its own, ended afterwards."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from loadtests.harness.processes import workers_of

ROOT = Path(__file__).resolve().parents[2]
READY_S = 180.0  # the first start on a machine measures every variant
DRAIN_S = 40.0
DOORS = ("rest", "grpc", "metrics", "admin")


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway that answers; `pid` is 0 where it is not ours and its process cannot be watched."""

    host: str
    rest_port: int
    pid: int
    metrics_port: int = 0
    rpc_port: int = 0
    admin_port: int = 0

    def workers(self) -> list[int]:
        """Return the processes of its slices."""
        return workers_of(self.pid)


def model_entry(name: str, **served: object) -> dict[str, object]:
    """Return an entry of `models:` for one of the samples."""
    return {"path": str(ROOT / "models" / name), "slices": ["measured"], **served}


def copied_model(name: str, folder: Path, batch_max: int) -> Path:
    """Return a copy of a sample in `folder`, with batches of up to that many rows."""
    model = shutil.copytree(ROOT / "models" / name, folder / name)
    file = model / "model.yaml"
    file.write_text(re.sub(r"(?m)^batch_max: .*$", f"batch_max: {batch_max}", file.read_text()))
    return model


@contextlib.contextmanager
def started(
    models: Sequence[dict[str, object]],
    cores: Sequence[int] = (),
    profiles: Path = ROOT / "profiles",
    **settings: object,
) -> Iterator[Gateway]:
    """Yield a ready gateway with those models on one slice, named `measured`, on the cores given.

    `profiles`: the folder of their profiles; `settings`: sections of penstock.yaml, which replace or add to
    those made here. Raises RuntimeError, with what it printed, if it ends or is not ready in time.
    """
    with served(settings_of(models, cores, profiles) | settings) as gateway:
        yield gateway


@contextlib.contextmanager
def served(settings: Mapping[str, object], log: int | None = None) -> Iterator[Gateway]:
    """Yield a ready gateway with these settings. `log`: a descriptor for what it prints. Errors as in
    `started`."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        config = Path(folder, "penstock.yaml")
        config.write_text(json.dumps(settings))  # YAML holds JSON
        ports = free_ports(len(DOORS))
        command = [sys.executable, "-m", "router.cli", "serve", "--config", str(config)]
        command += port_options(ports)
        with _running(command, f"http://127.0.0.1:{ports[0]}/v2/health/ready", {}, log) as pid:
            yield Gateway("127.0.0.1", ports[0], pid, ports[2], ports[1], ports[3])


@contextlib.contextmanager
def running(command: Sequence[str], ready_url: str, **environment: str) -> Iterator[int]:
    """Yield the process id of a server once `ready_url` answers 200, and end it by SIGTERM."""
    with _running(command, ready_url, environment, None) as pid:
        yield pid


@contextlib.contextmanager
def _running(
    command: Sequence[str], ready_url: str, environment: Mapping[str, str], log: int | None
) -> Iterator[int]:
    with tempfile.TemporaryFile("w+") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=file if log is None else log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
        try:
            if not _comes_up(process, ready_url):
                file.seek(0)
                raise RuntimeError(f"{' '.join(command)} did not become ready:\n{file.read()}")
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(DRAIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def port_options(ports: Sequence[int]) -> list[str]:
    """Return the options that make `penstock serve` listen on these ports, one for each of DOORS."""
    return [f"--{name}-port={port}" for name, port in zip(DOORS, ports, strict=True)]


def free_ports(count: int) -> list[int]:
    """Return ports that no process listens on now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(listener.getsockname()[1]) for listener in sockets]


def settings_of(
    models: Sequence[dict[str, object]], cores: Sequence[int], profiles: Path
) -> dict[str, object]:
    """Return the sections of a penstock.yaml with those models on one slice, named `measured`.

    No answers are kept: load runs repeat their questions, and measure what it takes to compute the answers.
    """
    measured = {"name": "measured"} | ({"cores": list(cores)} if cores else {})
    return {
        "server": {"host": "127.0.0.1"},
        "slices": [measured],
        "models": [{"required": True, **each} for each in models],  # ready is when all are
        "profiles": str(profiles),
        "cache": False,
    }


def _comes_up(process: subprocess.Popen[bytes], url: str) -> bool:
    deadline = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(URLError, OSError), urlopen(url, timeout=5) as answer:  # noqa: S310 (ours, http)
            if answer.status == 200:
                return True
        time.sleep(0.1)
    return False
