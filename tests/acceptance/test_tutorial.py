"""docs/tutorial.md: its commands, in its order, as a reader types them."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.gateway import ROOT, START_S

PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
BLOCKS = re.findall(r"^```sh( serve)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
GATEWAY = ("explain", "infer", "status")
"""Commands that ask a gateway."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


class Reader:
    """A reader with two terminals, and an own port in place of 8000, which others may have."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._port = free_port()
        self._server: subprocess.Popen[bytes] | None = None
        self.folder = home
        self._environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def type(self, block: str) -> str:
        """Return what the block prints. It begins where the last one ended, and none of it may fail."""
        text = block.replace("127.0.0.1:8000", f"127.0.0.1:{self._port}")
        for command in GATEWAY:
            text = text.replace(
                f"penstock {command}", f"penstock {command} --url http://127.0.0.1:{self._port}"
            )
        where = self._home / "where"
        script = f"set -e\n{text}\npwd > {where}\n"
        ended = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self._environment, capture_output=True, text=True,
            timeout=START_S, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{block}\n{ended.stdout}\n{ended.stderr}"
        self.folder = Path(where.read_text().strip())
        for file in self.folder.glob("load.py"):
            file.write_text(file.read_text().replace("127.0.0.1:8000", f"127.0.0.1:{self._port}"))
        return ended.stdout

    def serve(self, block: str) -> None:
        """Start the gateway in the first terminal; return when it is ready."""
        log = self._home / "log"
        ports = f"--rest-port {self._port} --grpc-port 0 --metrics-port 0 --admin-port 0"
        with log.open("w") as output:
            self._server = subprocess.Popen(
                ["bash", "-c", f"exec {block.strip()} {ports}"],
                cwd=self.folder, env=self._environment, stdout=output, stderr=output,
            )  # fmt: skip
        end = time.monotonic() + START_S
        while "penstock is ready" not in log.read_text():
            assert self._server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)

    def end(self) -> int:
        """Press Ctrl-C in the first terminal."""
        assert self._server is not None
        self._server.send_signal(signal.SIGINT)
        return self._server.wait(START_S)

    def close(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    found = Reader(tmp_path)
    yield found
    found.close()


def test_each_command_of_the_page_works(reader: Reader) -> None:
    printed = []
    for kind, block in BLOCKS:
        if kind:
            reader.serve(block)
        else:
            printed.append(reader.type(block))
    told = "\n".join(printed)
    assert reader.end() == 0
    assert "of the flowers are named right" in told
    assert 'label  BYTES [1]: "setosa"' in told
    assert '"data":["setosa","virginica"]' in told
    assert "150 requests, 50 a second" in told
    assert "what a slice carries" in told
    assert "refused, as it should be" in told
