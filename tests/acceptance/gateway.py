"""A real `penstock serve` for tests: the command itself, in a process of its own, on free ports."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from serving.worker.process.tree import children

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "penstock.yaml"
START_S = 200.0
TALK_S = 100.0
PATIENT_MS = 20_000
"""An SLO for tests that are about no deadline: no stall of the machine uses it up."""


PORTS = ("--rest-port", "--grpc-port", "--metrics-port", "--admin-port")


class GatewayProcess:
    """Started by `start`; its addresses are those that it printed."""

    def __init__(
        self, config: Path, log: Path, module: str = "router.cli", free: Sequence[str] = PORTS
    ) -> None:
        """`free`: the options of ports that are to be any free ones."""
        self._log = log
        command = [sys.executable, "-m", module, "serve", "--config", str(config)]
        for option in free:
            command += [option, "0"]
        self._start(command, ROOT)

    def _start(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        with self._log.open("w") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, cwd=folder, env=environment
            )
        self.rest = self._await(r"REST +https?://(\S+)")
        self.grpc = self._await(r"gRPC +(\S+)")
        self.admin = self._await(r"\badmin +(?:https?://)?(\S+)")
        self.metrics = self._await(r"metrics +(https?://\S+)")

    @classmethod
    def start(cls, config: Path, log: Path, module: str = "router.cli") -> "GatewayProcess":
        """A gateway that is ready; `module` starts it."""
        gateway = cls(config, log, module)
        gateway.await_ready()
        return gateway

    @classmethod
    def of_target(
        cls,
        target: str,
        folder: Path,
        slo: str,
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> "GatewayProcess":
        """A gateway of one model without settings, started in `folder`. `environment`: None for this
        process's own."""
        gateway = cls.__new__(cls)
        gateway._log = folder / "log"
        command = [sys.executable, "-m", "router.cli", "serve", target, "--slo", slo, *options]
        command += [word for option in PORTS for word in (option, "0")]
        gateway._start(command, folder, environment)
        return gateway

    @staticmethod
    def refused(config: Path, free: Sequence[str] = PORTS) -> str:
        """What one prints that ends with exit code 1 as it starts."""
        command = [sys.executable, "-m", "router.cli", "serve", "--config", str(config)]
        command += [word for option in free for word in (option, "0")]
        ended = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, timeout=START_S, check=False
        )
        assert ended.returncode == 1, ended
        return ended.stdout + ended.stderr

    def await_ready(self) -> None:
        """Until every model is ready and measured."""
        self._await(r"penstock is (ready)")

    @property
    def output(self) -> str:
        """All that it has printed."""
        return self._log.read_text()

    def _await(self, pattern: str) -> str:
        end = time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(pattern, self.output)
            if found:
                return found.group(1)
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} in the gateway's output:\n{self.output}")

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET on the REST port."""
        try:
            with urllib.request.urlopen(f"http://{self.rest}{path}", timeout=TALK_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def post(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Status and body of a POST on the REST port."""
        request = urllib.request.Request(f"http://{self.rest}{path}", body, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=TALK_S) as answer:  # noqa: S310
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def change(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body of an answer of the admin door."""
        url = f"http://{self.admin}{path}"
        request = urllib.request.Request(url, body, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TALK_S) as answer:  # noqa: S310
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def open_requests(self) -> int:
        """How many it has accepted and not answered."""
        return int(json.loads(self.get("/v2/status")[1])["open_requests"])

    def read_metrics(self) -> str:
        """What a scraper would read."""
        with urllib.request.urlopen(self.metrics, timeout=TALK_S) as answer:  # noqa: S310
            return str(answer.read().decode())

    def kill(self) -> None:
        """End it and the workers that it has started, without a word."""
        keepers = children(self.process.pid)
        self.process.kill()
        for keeper in keepers:
            with suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGTERM)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(TALK_S)


def await_true(holds: Callable[[], object], *gateways: GatewayProcess) -> None:
    """Until it is so; where it is not in time, what these gateways have printed is shown."""
    end = time.monotonic() + TALK_S
    while not holds():
        assert time.monotonic() < end, "\n".join(each.output for each in gateways)
        time.sleep(0.02)


@contextmanager
def serving(config: Path, *, orderly: bool = False) -> Iterator[GatewayProcess]:
    """A gateway with these settings; killed at the end, or stopped if that is to be `orderly`."""
    gateway = GatewayProcess.start(config, config.parent / "log")
    try:
        yield gateway
    finally:
        if orderly:
            gateway.stop()
        else:
            gateway.kill()
            gateway.process.wait()


@contextmanager
def orderly(config: Path) -> Iterator[GatewayProcess]:
    """A gateway for all tests of a file: it ends in order after them, and nothing in it has raised."""
    gateway = GatewayProcess.start(config, config.parent / "log")
    yield gateway
    assert gateway.stop() == 0, gateway.output
    assert "Traceback" not in gateway.output


@contextmanager
def serving_one(
    folder: Path,
    target: str,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Iterator[GatewayProcess]:
    """A gateway of one model without settings, started in `folder` and ready; its SLO is PATIENT_MS."""
    gateway = GatewayProcess.of_target(target, folder, f"{PATIENT_MS}ms", environment, options)
    try:
        gateway.await_ready()
        yield gateway
    finally:
        gateway.kill()
        gateway.process.wait()
