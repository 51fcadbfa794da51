"""`penstock node --ray --as-needed`: what the load needs becomes agents, and Ray's autoscaler their nodes.

The cluster is Ray's own, with its autoscaler, on this machine. It begins with a head that has no room.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.gateway import PATIENT_MS, ROOT, TALK_S, GatewayProcess
from tests.acceptance.ray_elastic import await_nodes, elastic_cluster
from tests.acceptance.test_nodes import TOKEN
from tests.acceptance.test_ray import answered, told_when

pytest.importorskip("ray", reason="Ray is not installed: pip install 'penstock[ray]'")

pytestmark = pytest.mark.timeout(300)


def write(folder: Path, least: int) -> Path:
    model = {"path": str(ROOT / "models" / "digits"), "slo_ms": PATIENT_MS, "variants": ["linear"]}
    settings = {
        "nodes": {"port": 0},
        "slices": [{"name": "far", "node": "box", "node_count": 2, "cores": 1}],
        "models": [{**model, "replicas": {"min": least, "max": 2}}],
    }
    (folder / "next.yaml").write_text(json.dumps(settings))
    return (folder / "next.yaml").rename(folder / "penstock.yaml")


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GatewayProcess]:
    monkeypatch.setenv("PENSTOCK_NODE_TOKEN", TOKEN)
    running = GatewayProcess(write(tmp_path, 1), tmp_path / "log")
    yield running
    running.kill()
    running.process.wait()


@pytest.fixture
def command(gateway: GatewayProcess, tmp_path: Path) -> list[str]:
    found = re.search(r"nodes +(\S+)", gateway.output)
    assert found is not None
    command = [sys.executable, "-m", "router.cli", "node", "--join", found.group(1), "--as-needed"]
    command += ["--name", "box", "--idle-s", "1", "--leave-s", "0.2", "--cache", str(tmp_path / "cache")]
    return command


def test_nodes_come_and_go_with_the_need(gateway: GatewayProcess, command: list[str], tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(elastic_cluster(tmp_path, 2))
        log = stack.enter_context((tmp_path / "engine").open("w"))

        def start() -> "subprocess.Popen[bytes]":
            running = subprocess.Popen(
                [*command, "--ray", address, "--ray-cpus", "1", "--stay"],
                stdout=log, stderr=log, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
            stack.callback(running.wait)
            stack.callback(running.kill)
            return running

        engine = start()
        told_when(gateway, lambda nodes: nodes == {"box-1": "serving", "box-2": "absent"})
        gateway.await_ready()
        assert answered(gateway) == 200

        write(tmp_path, 2)
        told_when(gateway, lambda nodes: nodes == {"box-1": "serving", "box-2": "serving"})
        write(tmp_path, 1)
        told_when(gateway, lambda nodes: sorted(nodes.values()) == ["absent", "serving"])
        assert answered(gateway) == 200
        await_nodes(address, 2)  # the other one was ended by Ray

        engine.send_signal(signal.SIGTERM)
        assert engine.wait(TALK_S) == 0
        assert told_when(gateway, lambda nodes: "serving" in nodes.values())  # by an agent that stays
        write(tmp_path, 2)
        engine = start()  # it finds that agent, and brings another
        told_when(gateway, lambda nodes: nodes == {"box-1": "serving", "box-2": "serving"})
        engine.send_signal(signal.SIGINT)
        assert engine.wait(TALK_S) == 0
        told_when(gateway, lambda nodes: "serving" not in nodes.values())
    text = (tmp_path / "engine").read_text()
    assert "Ray is asked for an agent on box-2" in text
    assert "the agent on box-2 ends: it is not needed" in text


def refused(command: list[str], *more: str, token: str = TOKEN) -> str:
    given = {**os.environ, "PYTHONPATH": str(ROOT), "PENSTOCK_NODE_TOKEN": token}
    ended = subprocess.run(
        [*command, *more], capture_output=True, text=True, cwd=ROOT, env=given, timeout=TALK_S, check=False
    )
    assert ended.returncode == 1
    return ended.stderr


def test_an_agent_that_takes_nothing_brings_no_node(command: list[str]) -> None:
    expected = "--as-needed: Ray brings a node for what an agent takes; expected --ray-cpus or --ray-gpus"
    assert expected in refused(command, "--ray", "auto")
