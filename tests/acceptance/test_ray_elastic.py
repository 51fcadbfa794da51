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

from tests.acceptance.gateway import ROOT, TALK_S, GatewayProcess
from tests.acceptance.ray_elastic import await_nodes, elastic_cluster
from tests.acceptance.test_nodes import SIMPLE, TOKEN
from tests.acceptance.test_ray import answered, told_when

pytest.importorskip("ray", reason="Ray is not installed: pip install 'penstock[ray]'")

pytestmark = pytest.mark.timeout(300)


def write(folder: Path, least: int) -> Path:
    settings = {
        "nodes": {"port": 0},
        "slices": [{"name": "far", "node": "box", "node_count": 2, "cores": 1}],
        "models": [{**SIMPLE, "replicas": {"min": least, "max": 2}}],
    }
    (folder / "next.yaml").write_text(json.dumps(settings))
    return (folder / "next.yaml").rename(folder / "penstock.yaml")


@contextlib.contextmanager
def serving(folder: Path, least: int) -> Iterator[GatewayProcess]:
    """A gateway in a folder of its own; its model has so many replicas, on nodes alone."""
    folder.mkdir()
    running = GatewayProcess(write(folder, least), folder / "log")
    try:
        yield running
    finally:
        running.kill()
        running.process.wait()


def command(gateway: GatewayProcess, folder: Path) -> list[str]:
    found = re.search(r"nodes +(\S+)", gateway.output)
    assert found is not None
    command = [sys.executable, "-m", "router.cli", "node", "--join", found.group(1), "--as-needed"]
    command += ["--name", "box", "--idle-s", "1", "--leave-s", "0.2", "--cache", str(folder / "cache")]
    return command


@contextlib.contextmanager
def engine(gateway: GatewayProcess, folder: Path, address: str) -> Iterator["subprocess.Popen[bytes]"]:
    """What brings nodes of the cluster to the gateway; its log is in the folder."""
    with (folder / "engine").open("a") as log:
        running = subprocess.Popen(
            [*command(gateway, folder), "--ray", address, "--ray-cpus", "1", "--stay"],
            stdout=log, stderr=log, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        try:
            yield running
        finally:
            running.kill()
            running.wait()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with elastic_cluster(tmp_path_factory.mktemp("cluster"), 2) as found:
        yield found


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_NODE_TOKEN", TOKEN)


def test_nodes_come_and_go_with_the_need(address: str, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    with serving(folder, 1) as gateway:
        with engine(gateway, folder, address) as first:
            told_when(gateway, lambda nodes: nodes == {"box-1": "serving", "box-2": "absent"})
            gateway.await_ready()
            assert answered(gateway) == 200
            write(folder, 2)
            told_when(gateway, lambda nodes: nodes == {"box-1": "serving", "box-2": "serving"})
            write(folder, 1)
            told_when(gateway, lambda nodes: sorted(nodes.values()) == ["absent", "serving"])
            assert answered(gateway) == 200
            await_nodes(address, 2)  # the other one was ended by Ray
            first.send_signal(signal.SIGTERM)
            assert first.wait(TALK_S) == 0
        assert told_when(gateway, lambda nodes: "serving" in nodes.values())  # by an agent that stays
        write(folder, 2)
        with engine(gateway, folder, address) as second:  # it finds that agent, and brings another
            told_when(gateway, lambda nodes: nodes == {"box-1": "serving", "box-2": "serving"})
            second.send_signal(signal.SIGINT)
            assert second.wait(TALK_S) == 0
        told_when(gateway, lambda nodes: "serving" not in nodes.values())
    text = (folder / "engine").read_text()
    assert "Ray is asked for an agent on box-2" in text
    assert "the agent on box-2 ends: it is not needed" in text


def test_a_machine_goes_to_the_gateway_that_needs_it(address: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        rich = stack.enter_context(serving(tmp_path / "a", 2))
        stack.enter_context(engine(rich, tmp_path / "a", address))
        told_when(rich, lambda nodes: nodes == {"box-1": "serving", "box-2": "serving"})
        poor = stack.enter_context(serving(tmp_path / "b", 1))
        stack.enter_context(engine(poor, tmp_path / "b", address))
        told_when(poor, lambda nodes: nodes == {"box-1": "lost", "box-2": "absent"})  # there is no third
        write(tmp_path / "a", 1)
        told_when(poor, lambda nodes: nodes["box-1"] == "serving")
        assert told_when(rich, lambda nodes: nodes == {"box-1": "serving", "box-2": "absent"})


def refused(command: list[str], *more: str, token: str = TOKEN) -> str:
    given = {**os.environ, "PYTHONPATH": str(ROOT), "PENSTOCK_NODE_TOKEN": token}
    ended = subprocess.run(
        [*command, *more], capture_output=True, text=True, cwd=ROOT, env=given, timeout=TALK_S, check=False
    )
    assert ended.returncode == 1
    return ended.stderr


def test_an_agent_that_takes_nothing_brings_no_node() -> None:
    asked = [sys.executable, "-m", "router.cli", "node", "--join", "127.0.0.1:8005", "--as-needed"]
    expected = "--as-needed: Ray brings a node for what an agent takes; expected --ray-cpus or --ray-gpus"
    assert expected in refused(asked, "--ray", "auto")
