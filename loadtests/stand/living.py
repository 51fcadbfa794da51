"""A gateway that is changed while it serves, and killed."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from loadtests.harness.gateway import DOORS, DRAIN_S, READY_S, ROOT, Gateway, free_ports, port_options
from loadtests.harness.processes import command_line, workers_of

ACCEPTED = 202
POLL_S = 0.05
MOVE_S = 60.0  # within which a move has to end
READY = "penstock is ready"
IN_FORCE, REFUSED = "is in force", "is refused"  # what the gateway says of an edit of its settings


HOLDER = """\
import os, sys
sock, *command = sys.argv[1:]
os.dup2(int(sock), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "rest"}
os.execv(command[0], command)
"""
"""Starts a gateway as a service manager does that holds its REST port (sd_listen_fds(3))."""


class Living:
    """A gateway with settings of its own in a folder, on ports that stay the same from start to start.
    `hold`: the REST port is open also while no gateway runs."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], hold: bool = False) -> None:
        self.folder = folder
        self.config = folder / "penstock.yaml"
        self.settings = dict(settings)
        self.config.write_text(json.dumps(self.settings))  # YAML holds JSON
        self.ports = free_ports(len(DOORS))
        self._held = socket.create_server(("127.0.0.1", self.ports[0]), backlog=4096) if hold else None
        self._log = folder / "gateway.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def gateway(self) -> Gateway:
        """The one that runs; RuntimeError where none does."""
        return Gateway("127.0.0.1", self.ports[0], self._running().pid, self.ports[2])

    @property
    def output(self) -> str:
        """All that every gateway here has printed."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start one, and wait until it is ready; RuntimeError, with what it printed, where it is not."""
        command = [sys.executable, "-m", "router.cli", "serve", "--config", str(self.config)]
        command += port_options(self.ports)
        kept = []
        if self._held is not None:
            kept = [self._held.fileno()]
            command = [sys.executable, "-c", HOLDER, str(kept[0]), *command]
        before = len(self.output)
        with self._log.open("a") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, pass_fds=kept)
        self.until(lambda: READY in self.output[before:], "be ready", READY_S)

    def kill(self) -> None:
        """Kill it with -9; its workers wait for the next one."""
        process = self._running()
        process.kill()
        process.wait()

    async def upgrade(self) -> None:
        """Replace it by `penstock upgrade`; RuntimeError, with what it printed, where that fails."""
        command = [sys.executable, "-m", "router.cli", "upgrade", "--config", str(self.config)]
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.DEVNULL)
        if await process.wait():
            raise RuntimeError(self.output)

    def stop(self) -> None:
        """End it in order, where one runs."""
        if self._held is not None:
            self._held.close()
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(DRAIN_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def until(self, true: Callable[[], bool], what: str, seconds: float = MOVE_S) -> None:
        """Wait; RuntimeError, with what the gateway printed, where it ends or is too slow."""
        give_up_s = time.monotonic() + seconds
        while not true():
            if self._running().poll() is not None or time.monotonic() > give_up_s:
                raise RuntimeError(f"the gateway did not {what} within {seconds:g} s:\n{self.output}")
            time.sleep(POLL_S)

    def workers(self) -> dict[str, int]:
        """Return the process ids, by slice, of the workers that are there now."""
        found = {}
        for pid in workers_of(self._running().pid):
            words = command_line(pid).split()
            if "--slice" in words:  # else it has just ended
                found[words[words.index("--slice") + 1]] = pid
        return found

    # ways to order a change

    def edit(self, **sections: object) -> list[str]:
        """Write other sections into penstock.yaml, as an editor does, and wait until the gateway has said
        what became of it: [] where it is in force, else its reasons."""
        before = len(self.output)
        self.settings |= sections
        scratch = self.folder / "penstock.yaml~"
        scratch.write_text(json.dumps(self.settings))
        scratch.replace(self.config)

        def said() -> list[str]:
            lines = self.output[before:].splitlines()
            return [
                line for line in lines if str(self.config) in line and (IN_FORCE in line or REFUSED in line)
            ]

        self.until(lambda: bool(said()), "follow the edit of its settings")
        if IN_FORCE in said()[0]:
            return []
        lines = self.output[before:].splitlines()
        return [line.strip() for line in lines[lines.index(said()[0]) + 1 :] if line.startswith("  ")]

    def place(self, body: Mapping[str, object]) -> str:
        """Order a placement (`PUT /v2/placement`); the move's id. RuntimeError where it is not accepted."""
        status, told = self.ask("PUT", "/v2/placement", body)
        if status != ACCEPTED:
            raise RuntimeError(f"PUT /v2/placement answers {status}: {told}")
        return str(told["id"])

    def outcome(self, move: str) -> Mapping[str, Any] | None:
        """Return how a placement's move ended; None while it has not."""
        outcome = self.placement()["outcome"]
        return outcome if outcome is not None and outcome["id"] == move else None

    def placement(self) -> Mapping[str, Any]:
        """Return the current placement and the progress of a move. Raises ConnectionError if the gateway does
        not answer."""
        status, told = self.ask("GET", "/v2/placement")
        if status != 200:
            raise ConnectionError(f"GET /v2/placement answers {status}: {told}")
        said: Mapping[str, Any] = told
        return said

    def ask(self, method: str, path: str, body: object = None, timeout_s: float = MOVE_S) -> tuple[int, Any]:
        """Return status and JSON of an answer from the admin door, which serves all paths. Raises
        ConnectionError if no answer came. Any: JSON, read by key."""
        url = f"http://127.0.0.1:{self.ports[DOORS.index('admin')]}{path}"
        content = None if body is None else json.dumps(body).encode()
        request = Request(url, content, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=timeout_s) as answer:  # noqa: S310 (ours, http)
                return answer.status, _parsed(answer.read())
        except HTTPError as error:
            with error:
                return error.code, _parsed(error.read())
        except (URLError, OSError) as error:
            raise ConnectionError(f"no answer to {method} {url}: {error}") from error

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("no gateway was started")
        return self._process


@contextlib.contextmanager
def living(folder: Path, settings: Mapping[str, Any]) -> Iterator[Living]:
    """Yield a gateway that is ready, and end it afterwards."""
    there = Living(folder, settings)
    try:
        there.start()
        yield there
    finally:
        there.stop()


def kill(pid: int) -> None:
    """Kill a process with -9; nothing where it has just ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _parsed(content: bytes) -> Any:  # whatever JSON it is
    try:
        return json.loads(content or b"{}")
    except ValueError:
        return content.decode(errors="replace")
