"""`penstock up`: a file with nodes, tried on one machine by one command."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loadtests.harness.gateway import free_ports
from serving.worker.process.tree import children
from tests.acceptance.gateway import ROOT, START_S, TALK_S
from tests.acceptance.test_nodes import SIMPLE

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


def write(folder: Path, nodes: object, slices: object) -> Path:
    ports = dict.fromkeys(("rest_port", "grpc_port", "metrics_port"), 0)
    settings = {"server": ports, "admin": {"port": 0}, "slices": slices, "models": [SIMPLE]}
    file = folder / "penstock.yaml"
    file.write_text(json.dumps(settings | ({"nodes": nodes} if nodes is not None else {})))
    return file


def command(file: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "router.cli", "up", "--config", str(file), *more]


def environment() -> dict[str, str]:
    given = {**os.environ, "PYTHONPATH": str(ROOT)}
    given.pop("PENSTOCK_NODE_TOKEN", None)
    return given


def await_line(log: Path, pattern: str) -> str:
    end = time.monotonic() + START_S
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)
    return found[0]


def agent(of: "subprocess.Popen[bytes]", node: str) -> int:
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(of.pid)}
    return next(pid for pid, line in lines.items() if node.encode() in line.split(b"\0"))


def test_the_gateway_and_its_nodes_begin_and_end_together(tmp_path: Path) -> None:
    file = write(tmp_path, {"port": free_ports(1)[0]}, [{"name": "far", "node": "box", "node_count": 2}])
    log = tmp_path / "log"
    with log.open("w") as output:
        running = subprocess.Popen(command(file), stdout=output, stderr=output, cwd=ROOT, env=environment())
    try:
        await_line(log, "penstock is ready")
        await_line(log, "node box-1 has joined")
        await_line(log, "node box-2 has joined")
        os.kill(agent(running, "box-2"), signal.SIGKILL)
        await_line(log, "(?s)node box-2 has joined.*node box-2 has joined")  # it was started again
        running.send_signal(signal.SIGTERM)
        assert running.wait(TALK_S) == 0
    finally:
        running.kill()
        running.wait()
    assert "PENSTOCK_NODE_TOKEN is made up for this run" in log.read_text()
    assert "the node has ended" in log.read_text()


@pytest.mark.parametrize(
    ("nodes", "slices", "sentence"),
    [
        (None, [{"name": "near"}], "the file has no node to play; expected `node:` in an entry of `slices:`"),
        ({"port": 0}, [{"name": "far", "node": "box"}], "nodes.port: nodes cannot call at port 0; expected"),
        ({}, [{"name": "far", "node_count": 2}], "expected `node:` beside `node_count`"),
    ],
)
def test_a_file_that_cannot_be_tried_so_is_refused(
    tmp_path: Path, nodes: object, slices: object, sentence: str
) -> None:
    ended = subprocess.run(
        command(write(tmp_path, nodes, slices)),
        capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=TALK_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert sentence in ended.stderr
