"""`penstock serve` and `penstock node`, as a user starts them: both commands, on one machine."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.gateway import PATIENT_MS, ROOT, START_S, TALK_S, GatewayProcess
from tests.certificates import Authority

TOKEN = "0123456789abcdef"  # noqa: S105
SIMPLE = {"path": str(ROOT / "models" / "simple"), "slo_ms": PATIENT_MS}
"""A model whose workers import no torch, which takes one of them two seconds."""
ROWS = {
    "inputs": [
        {"name": name, "shape": [1, 16], "datatype": "INT32", "data": [*range(16)]}
        for name in ("INPUT0", "INPUT1")
    ]
}
DIGITS = {"path": str(ROOT / "models" / "digits"), "slo_ms": PATIENT_MS, "variants": ["linear"]}
PIXELS = {"inputs": [{"name": "PIXELS", "shape": [1, 64], "datatype": "FP32", "data": [0.5] * 64}]}


@contextmanager
def deployed(
    folder: Path, tls: Authority | None = None, port: int = 0, model: Mapping[str, object] = SIMPLE
) -> Iterator[GatewayProcess]:
    """A gateway whose model is on a slice here and on one of a node."""
    settings: dict[str, object] = {
        "nodes": {"port": port},
        "slices": [{"name": "near", "cores": 1}, {"name": "far", "node": "box", "cores": 1}],
        "models": [model],
    }
    if tls is not None:
        settings["server"] = {"tls": {"cert": str(tls.sign("server")), "key": str(tls.folder / "server.key")}}
    (folder / "penstock.yaml").write_text(json.dumps(settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_NODE_TOKEN", TOKEN)
        gateway = GatewayProcess(folder / "penstock.yaml", folder / "log")
        try:
            yield gateway
        finally:
            gateway.kill()
            gateway.process.wait()


@contextmanager
def joined(gateway: GatewayProcess, folder: Path, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The node, from its start on."""
    found = re.search(r"nodes +(\S+)", gateway.output)
    assert found is not None
    command = [sys.executable, "-m", "router.cli", "node", "--join", found.group(1), "--name", "box"]
    command += ["--cache", str(folder / "cache"), "--leave-s", "0.2", *options]
    environment = {**os.environ, "PENSTOCK_NODE_TOKEN": TOKEN}
    with (folder / "node.log").open("w") as log:
        node = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=environment)
    try:
        yield node
    finally:
        node.kill()
        node.wait()


def far_is(gateway: GatewayProcess, state: str) -> Any:
    """The status once the far slice is in this state."""
    end = time.monotonic() + START_S
    told: Any = {}
    while time.monotonic() < end:
        told = json.loads(gateway.get("/v2/status")[1])
        replicas = [each for model in told["models"] for each in model["replicas"]]
        if state in [each["state"] for each in replicas if each["slice"] == "far"]:
            return told
        time.sleep(0.1)
    raise AssertionError(f"the far slice is not {state}: {told}\n{gateway.output}")


def test_a_node_serves_is_killed_and_serves_again(tmp_path: Path) -> None:
    with deployed(tmp_path, model=DIGITS) as gateway:
        gateway.await_ready()  # the model is ready by its slice here
        assert "slice far waits for its node: node box has not joined" in gateway.output
        with joined(gateway, tmp_path) as node:
            (told,) = far_is(gateway, "ready")["nodes"]
            assert (told["name"], told["state"], told["slices"]) == ("box", "joined", ["far"])
            assert gateway.post("/v2/models/digits/infer", json.dumps(PIXELS).encode())[0] == 200
            assert 'penstock_node_up{node="box"} 1' in scraped(gateway)
            node.kill()
            node.wait()
            far_is(gateway, "absent")
            assert gateway.post("/v2/models/digits/infer", json.dumps(PIXELS).encode())[0] == 200
        with joined(gateway, tmp_path) as node:
            far_is(gateway, "ready")
            assert "was taken over" in (tmp_path / "node.log").read_text()
            node.send_signal(signal.SIGTERM)
            assert node.wait(TALK_S) == 0
        far_is(gateway, "absent")
        assert "node box is leaving" in gateway.output
        assert 'penstock_node_up{node="box"} 0' in scraped(gateway)


@pytest.mark.parametrize("encrypted", [False, True])
def test_the_next_gateway_goes_on_with_the_workers_of_nodes(tmp_path: Path, encrypted: bool) -> None:
    authority = Authority(tmp_path / "tls") if encrypted else None
    options = () if authority is None else ("--ca", str(authority.ca))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with deployed(tmp_path, authority, port) as gateway, joined(gateway, tmp_path, *options) as node:
        gateway._await(r"(node box has joined)")
        far = far_worker(gateway, authority)
        gateway.process.kill()
        gateway.process.wait()
        with deployed(tmp_path, authority, port) as again:
            assert far_worker(again, authority) == far
            assert (
                "slice far: the worker of an earlier gateway was taken over"
                in (tmp_path / "node.log").read_text()
            )
            again.stop()
        node.send_signal(signal.SIGTERM)
        assert node.wait(TALK_S) == 0
        assert not Path(f"/proc/{far}").exists()


def far_worker(gateway: GatewayProcess, authority: Authority | None) -> int:
    """The process of the far slice, once its replica is ready."""
    scheme, options = ("http", []) if authority is None else ("https", ["--cacert", str(authority.ca)])
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        command = ["curl", "-s", *options, f"{scheme}://{gateway.rest}/v2/status"]
        told = json.loads(subprocess.run(command, capture_output=True, timeout=TALK_S, check=True).stdout)
        replicas = [each for model in told["models"] for each in model["replicas"]]
        if "ready" in [each["state"] for each in replicas if each["slice"] == "far"]:
            (pid,) = [int(each["pid"]) for each in told["slices"] if each["name"] == "far"]
            return pid
        time.sleep(0.1)
    raise AssertionError(gateway.output)


def scraped(gateway: GatewayProcess) -> str:
    return subprocess.run(
        ["curl", "-sk", gateway.metrics], capture_output=True, text=True, timeout=TALK_S, check=True
    ).stdout


def test_notes_and_batches_are_encrypted_with_the_gateways_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    with deployed(tmp_path, authority) as gateway:
        gateway._await(r"penstock is (ready)")
        with joined(gateway, tmp_path, "--ca", str(authority.ca)):
            gateway._await(r"(node box has joined)")
            body = json.dumps(ROWS)
            end, states = time.monotonic() + START_S, set[str]()
            url = f"https://{gateway.rest}"
            while time.monotonic() < end and states != {"ready"}:
                told = json.loads(asked(f"{url}/v2/status"))
                states = {each["state"] for each in told["models"][0]["replicas"]}
                time.sleep(0.1)
            assert states == {"ready"}, gateway.output
            answer = json.loads(asked(f"{url}/v2/models/simple/infer", "-d", body))
            assert answer["outputs"][0]["data"] == [2 * number for number in range(16)]
        with joined(gateway, tmp_path):  # without TLS it is not let in
            log, end = tmp_path / "node.log", time.monotonic() + TALK_S
            while "is it TLS (--tls, --ca) that it expects?" not in log.read_text():
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.1)


def asked(*words: str) -> str:
    return subprocess.run(
        ["curl", "-sk", *words], capture_output=True, text=True, timeout=TALK_S, check=True
    ).stdout


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--join", "here"], "--join: expected HOST:PORT such as gateway.example:8005, got 'here'"),
        (
            ["--join", "h:1", "--token-env", "NO"],
            "NO is not set; expected the token of the gateway's `nodes:`",
        ),
        (["--join", "h:1", "--ca", "/no.pem"], "--ca, --cert: "),
        (["--join", "h:1", "--cache", "/proc/x"], "--cache /proc/x: "),
    ],
)
def test_a_node_that_cannot_begin_says_what_would_be_right(options: list[str], why: str) -> None:
    command = [sys.executable, "-m", "router.cli", "node", *options]
    environment = {**os.environ, "PENSTOCK_NODE_TOKEN": TOKEN}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=TALK_S, check=False, env=environment
    )
    assert ended.returncode == 1
    assert why in ended.stderr
