"""`penstock node --ray` on a real cluster of two nodes and a head, all on this machine.

Ray places an agent on each node and starts it again. It sees no request, so its losses lose none.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.gateway import ROOT, START_S, TALK_S, GatewayProcess
from tests.acceptance.test_nodes import ROWS, SIMPLE, TOKEN

pytest.importorskip("ray", reason="Ray is not installed: pip install 'penstock[ray]'")

pytestmark = pytest.mark.timeout(300)

NAMES = ("box-a", "box-b")


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    given = {**os.environ, "PENSTOCK_NODE_TOKEN": TOKEN, "RAY_USAGE_STATS_ENABLED": "0"}
    return given | {"PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def cluster(environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.acceptance.ray_cluster", *NAMES]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
    yield process
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate("quit\n", timeout=TALK_S)
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def address(cluster: "subprocess.Popen[str]") -> str:
    assert cluster.stdout is not None
    for line in cluster.stdout:
        if line.startswith("{"):
            return str(json.loads(line)["address"])
    raise AssertionError("the cluster did not begin")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    settings = {
        "nodes": {"port": 0},
        "slices": [{"name": name[-1], "node": name, "cores": 1} for name in NAMES],
        "models": [SIMPLE],
    }
    (folder / "penstock.yaml").write_text(json.dumps(settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_NODE_TOKEN", TOKEN)
        running = GatewayProcess(folder / "penstock.yaml", folder / "log")
    yield running
    running.kill()
    running.process.wait()


def told_when(gateway: GatewayProcess, true: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    """The states of nodes by name, once it is so of them: "serving" where a slice of it takes batches."""
    end = time.monotonic() + START_S
    nodes: dict[str, str] = {}
    while time.monotonic() < end:
        told = json.loads(gateway.get("/v2/status")[1])
        ready = {each["slice"] for each in told["models"][0]["replicas"] if each["state"] == "ready"}
        nodes = {
            each["name"]: "serving" if ready & {*each["slices"]} else each["state"] for each in told["nodes"]
        }
        if true(nodes):
            return nodes
        time.sleep(0.2)
    raise AssertionError(f"{nodes}\n{gateway.output}")


def serving(*names: str) -> Callable[[dict[str, str]], bool]:
    return lambda nodes: all(nodes[name] == "serving" for name in names)


def answered(gateway: GatewayProcess) -> int:
    return gateway.post("/v2/models/simple/infer", json.dumps(ROWS).encode())[0]


def agent_of(name: str) -> int:
    found = subprocess.run(
        ["pgrep", "-f", f"node --join .*--name {name} --follow"], capture_output=True, text=True, check=True
    )
    return int(found.stdout.split()[0])


def test_ray_places_agents_and_places_them_again(
    gateway: GatewayProcess,
    cluster: "subprocess.Popen[str]",
    address: str,
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    found = re.search(r"nodes +(\S+)", gateway.output)
    assert found is not None
    command = [sys.executable, "-m", "router.cli", "node", "--join", found.group(1), "--ray", address]
    command += ["--cache", str(tmp_path / "cache"), "--leave-s", "0.2"]
    with (tmp_path / "log").open("w") as log:
        watcher = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=environment)
    try:
        told_when(gateway, serving(*NAMES))
        gateway.await_ready()
        assert answered(gateway) == 200

        os.kill(agent_of("box-a"), signal.SIGKILL)
        told_when(gateway, lambda nodes: nodes["box-a"] == "lost")
        assert answered(gateway) == 200  # by the other
        told_when(gateway, serving(*NAMES))  # Ray has started it again

        watcher.kill()  # the agents go on without it
        watcher.wait()
        assert cluster.stdin is not None
        cluster.stdin.write("kill box-b\n")
        cluster.stdin.flush()
        told_when(gateway, lambda nodes: nodes["box-b"] == "lost")
        assert told_when(gateway, serving("box-a"))
        assert answered(gateway) == 200
    finally:
        watcher.kill()
        watcher.wait()
