"""`penstock serve` goes on whatever becomes of those that read what it prints."""

import http.client
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.gateway import PORTS, ROOT, TALK_S

pytestmark = pytest.mark.slow

CONFIG = f"""
slices: [{{name: a}}]
models: [{{path: {ROOT}/models/simple}}]
logging: {{access: true}}
"""
MORE_THAN_WAITS = 30_000
"""Access lines of some 90 bytes: more than a pipe of 64 KiB and the gateway's queue hold."""


class Piped:
    """A gateway that prints into a pipe, of which only the test reads."""

    def __init__(self, config: Path) -> None:
        command = [sys.executable, "-m", "router.cli", "serve", "--config", str(config)]
        for option in PORTS:
            command += [option, "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT)
        assert self.process.stdout is not None
        self.reader = self.process.stdout.fileno()
        self.said = ""
        while "penstock is ready" not in self.said:
            self.said += self.read()

    def read(self) -> str:
        """Something that it has printed."""
        found = os.read(self.reader, 1 << 16).decode()
        assert found, self.said
        return found

    def address(self, what: str) -> str:
        """Of a port, as it was printed."""
        found = re.search(rf"{what} +http://([\d.:]+)", self.said)
        assert found is not None, self.said
        return found.group(1)

    def ask(self, times: int) -> None:
        """So many requests, all answered by 200, with a line in the access log each."""
        connection = http.client.HTTPConnection(self.address("REST"), timeout=TALK_S)
        for _ in range(times):
            connection.request("GET", "/livez")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b'{"live":true}')
        connection.close()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Piped]:
    (tmp_path / "penstock.yaml").write_text(CONFIG)
    piped = Piped(tmp_path / "penstock.yaml")
    yield piped
    with piped.process as process:
        process.kill()


def test_a_reader_that_stalls_holds_up_no_request_and_learns_what_it_missed(gateway: Piped) -> None:
    gateway.ask(MORE_THAN_WAITS)
    with urllib.request.urlopen(f"http://{gateway.address('metrics')}/metrics", timeout=TALK_S) as answer:
        dropped = re.search(r"^penstock_log_lines_dropped_total (\d+)$", answer.read().decode(), re.MULTILINE)
    assert dropped is not None
    assert int(dropped.group(1)) > 0
    said = ""
    while "lines were dropped" not in said:
        said += gateway.read()
    gateway.process.send_signal(signal.SIGTERM)
    while "penstock has ended" not in said:
        said += gateway.read()
    assert gateway.process.wait(TALK_S) == 0


def test_a_reader_that_goes_ends_nothing(gateway: Piped) -> None:
    assert gateway.process.stdout is not None
    gateway.process.stdout.close()
    gateway.ask(100)
    (worker,) = children(gateway.process.pid, "serving.worker")
    os.kill(worker, signal.SIGKILL)  # its end is a line as well
    while children(gateway.process.pid, "serving.worker") in ([worker], []):
        gateway.ask(1)
    gateway.ask(100)
    gateway.process.send_signal(signal.SIGTERM)
    assert gateway.process.wait(TALK_S) == 0


def children(pid: int, of: str) -> list[int]:
    """The living children of a process with that word in their command line."""
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [each for each in found if of in _command_line(each)]


def _command_line(pid: int) -> str:
    """The command line of a process; "" of one that has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
