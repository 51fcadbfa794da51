"""`penstock upgrade` as a user runs it: the next gateway takes everything over, and no request is lost."""

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from loadtests.stand.living import HOLDER
from tests.acceptance.gateway import PATIENT_MS, ROOT, START_S, TALK_S, GatewayProcess, await_true, serving
from tests.acceptance.holding import held, identity_to_hold
from tests.acceptance.test_lifecycle import await_gone
from tests.acceptance.test_streams import Stream, is_last
from tests.certificates import Authority

pytestmark = [pytest.mark.live, pytest.mark.slow]

NUMBERS = [*range(16)]
SIMPLE = {
    "inputs": [
        {"name": name, "shape": [1, 16], "datatype": "INT32", "data": NUMBERS}
        for name in ("INPUT0", "INPUT1")
    ]
}
SUMS = [2 * number for number in NUMBERS]
MADE_WAY = "penstock has made way for the next gateway"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.yaml"
    settings = {
        "slices": [{"name": "a"}, {"name": "b", "threads": 1}],
        "models": [
            {"path": f"{ROOT}/models/simple", "slo_ms": PATIENT_MS, "slices": ["a"]},
            {"path": f"{ROOT}/models/repeat", "slo_ms": PATIENT_MS, "slices": ["b"]},
        ],
        "cache": False,
        "profiles": {"folder": str(tmp_path / "profiles")},
    }
    path.write_text(json.dumps(settings))
    return path


def upgrade(config: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "router.cli", "upgrade", "--config", str(config), *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=START_S, check=False)


def status(gateway: GatewayProcess) -> dict[str, object]:
    found: dict[str, object] = json.loads(gateway.get("/v2/status")[1])
    return found


def workers(gateway: GatewayProcess) -> dict[str, int]:
    slices = status(gateway)["slices"]
    assert isinstance(slices, list)
    return {each["name"]: each["pid"] for each in slices}


class Asking:
    """Clients that ask without a pause, each on one connection, and read every answer."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self._over = threading.Event()
        self.faults: list[str] = []
        self.count = 0
        self._threads = [threading.Thread(target=each) for each in (self._rest, self._rest, self._grpc)]

    def __enter__(self) -> "Asking":
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        for each in self._threads:
            each.join()

    def _rest(self) -> None:
        connection = http.client.HTTPConnection(self._gateway.rest, timeout=TALK_S)
        with closing(connection):
            self._ask(connection)

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        connection.connect()
        port = connection.sock.getsockname()
        try:
            while not self._over.is_set():
                connection.request("POST", "/v2/models/simple/infer", json.dumps(SIMPLE))
                answer = json.loads(connection.getresponse().read())
                assert answer["outputs"][0]["data"] == SUMS, answer
                assert connection.sock.getsockname() == port  # it is the same connection all the time
                self.count += 1
        except Exception as error:
            self.faults.append(f"REST: {error!r}")

    def _grpc(self) -> None:
        with grpc_client.InferenceServerClient(self._gateway.grpc) as client:
            self._infer(client)

    def _infer(self, client: grpc_client.InferenceServerClient) -> None:
        inputs = [grpc_client.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
        for each in inputs:
            each.set_data_from_numpy(np.array([NUMBERS], np.int32))
        try:
            while not self._over.is_set():
                found = client.infer("simple", inputs).as_numpy("OUTPUT0")
                assert found is not None
                assert found.tolist() == [SUMS]
                self.count += 1
        except Exception as error:
            self.faults.append(f"gRPC: {error!r}")


def test_no_request_is_lost_and_no_model_is_loaded_again(config: Path) -> None:
    with serving(config, orderly=True) as gateway, Asking(gateway) as asking:
        before, uptime = workers(gateway), status(gateway)["uptime_s"]
        for number in (1, 2):
            await_true(lambda: asking.count > 50, gateway)
            done = upgrade(config)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.endswith(f"serves {config} now\n")
            await_true(lambda: gateway.output.count(MADE_WAY) >= number, gateway)  # noqa: B023  at once
            assert gateway.output.count(MADE_WAY) == number
            asking.count = 0
        await_true(lambda: asking.count > 50, gateway)
        assert asking.faults == []
        assert workers(gateway) == before
        assert float(str(status(gateway)["uptime_s"])) < float(str(uptime)) + TALK_S
        metrics = gateway.read_metrics()
        assert 'penstock_model_loads_total{model="simple"} 0\n' in metrics
        assert 'penstock_model_takeovers_total{model="simple"} 1\n' in metrics
        left = gateway.process
        assert left.poll() is None  # what has started the first gateway sees no end
    assert left.returncode == 0
    for pid in before.values():
        await_gone(pid)


def test_a_stream_goes_on_to_its_end_while_others_are_served_by_the_next_gateway(config: Path) -> None:
    with serving(config, orderly=True) as gateway:
        stream = Stream(gateway)
        numbers = [*range(60)]
        stream.ask(numbers, delay_ms=100)
        stream.next()
        asked = threading.Thread(target=upgrade, args=(config,))
        asked.start()
        await_true(lambda: gateway.output.count("penstock serves") == 2, gateway)
        assert gateway.post("/v2/models/simple/infer", json.dumps(SIMPLE).encode())[0] == 200
        came, last = 1, False
        while not last:
            result, error = stream.next()
            assert error is None
            last = is_last(result)
            came += not last
        assert came == len(numbers)
        stream.close()
        asked.join()
        again = Stream(gateway)
        again.ask([7])
        assert again.next()[1] is None
        again.close()


def test_settings_that_are_wrong_leave_the_gateway_as_it_is(config: Path) -> None:
    with serving(config, orderly=True) as gateway:
        whole = config.read_text()
        config.write_text(whole.replace('"cache": false', '"cash": false'))
        done = upgrade(config)
        assert done.returncode == 1
        assert done.stderr == "penstock upgrade: the next gateway has ended with 1; its output says why\n"
        assert "cash: unknown key" in gateway.output
        config.write_text(whole)
        assert gateway.post("/v2/models/simple/infer", json.dumps(SIMPLE).encode())[0] == 200
        assert upgrade(config, "--python", str(config.parent / "python")).stderr.endswith(
            "python cannot be started: No such file or directory\n"
        )
        assert gateway.post("/v2/models/simple/infer", json.dumps(SIMPLE).encode())[0] == 200


def test_the_gateway_begins_again_if_the_next_one_fails_once_it_has_begun_to_take_over(config: Path) -> None:
    broken = config.parent / "python"
    broken.write_text(
        f"#!{sys.executable}\n"
        "import os, socket\n"
        "sock = socket.socket(fileno=int(os.environ['PENSTOCK_UPGRADE_FD']))\n"
        """sock.send(b'{"what": "ready"}')\n"""
        "sock.recv(1000)\n"
    )
    broken.chmod(0o755)
    with serving(config, orderly=True) as gateway:
        before = workers(gateway)
        done = upgrade(config, "--python", str(broken))
        assert done.returncode == 1
        assert "the next gateway did not begin" in done.stderr
        gateway._await(r"(this process begins again)")
        await_true(lambda: gateway.output.count("penstock is ready") == 2, gateway)
        assert gateway.post("/v2/models/simple/infer", json.dumps(SIMPLE).encode())[0] == 200
        assert workers(gateway) == before


def test_without_a_gateway_the_command_says_so(config: Path) -> None:
    done = upgrade(config)
    assert done.returncode == 1
    assert done.stderr.endswith(f"serves {config} on this machine\n")


def test_a_signal_in_the_middle_of_an_upgrade_ends_both_gateways(config: Path) -> None:
    slow = config.parent / "python"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    with serving(config, orderly=True) as gateway:
        asked = threading.Thread(target=upgrade, args=(config, "--python", str(slow)))
        asked.start()
        found: list[str] = []
        end = time.monotonic() + TALK_S
        while not found and time.monotonic() < end:
            found = [line for line in lines_below(gateway.process.pid) if "sleep" in line]
        assert "under way already" in upgrade(config).stderr
        assert gateway.stop(signal.SIGTERM) == 0
        asked.join()
        assert not [line for line in lines_below(os.getpid()) if "sleep\x00600" in line]


def lines_below(pid: int) -> list[str]:
    found = subprocess.run(
        ["ps", "-o", "args=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return found.stdout.splitlines()


def test_clients_with_tls_are_served_by_the_next_gateway_on_new_connections(
    config: Path, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "tls")
    settings = json.loads(config.read_text())
    settings["server"] = {
        "tls": {"cert": str(authority.sign("server")), "key": str(authority.folder / "server.key")}
    }
    config.write_text(json.dumps(settings))
    gateway = GatewayProcess(config, config.parent / "log")
    try:
        gateway._await(r"penstock is (ready)")
        assert upgrade(config).returncode == 0
        command = [
            "curl",
            "-s",
            "--cacert",
            str(authority.ca),
            f"https://{gateway.rest}/v2/models/simple/infer",
        ]
        asked = subprocess.run([*command, "-d", json.dumps(SIMPLE)], capture_output=True, check=True)
        assert json.loads(asked.stdout)["outputs"][0]["data"] == SUMS
    finally:
        assert gateway.stop() == 0


def test_what_was_accepted_is_answered_before_the_workers_go(config: Path, tmp_path: Path) -> None:
    identity_to_hold(tmp_path / "identity")
    settings = json.loads(config.read_text())
    settings["models"].append({"path": str(tmp_path / "identity"), "slo_ms": PATIENT_MS, "slices": ["a"]})
    settings["limits"] = {"stall_s": 100}
    config.write_text(json.dumps(settings))
    body = {"inputs": [{"name": "INPUT0", "shape": [1, 2], "datatype": "INT32", "data": [4, 2]}]}
    answers: list[int] = []
    with serving(config, orderly=True) as gateway:
        with held(tmp_path / "identity"):
            asking = threading.Thread(
                target=lambda: answers.append(
                    gateway.post("/v2/models/identity/infer", json.dumps(body).encode())[0]
                )
            )
            asking.start()
            await_true(lambda: gateway.open_requests() == 1, gateway)
            asked = threading.Thread(target=upgrade, args=(config,))
            asked.start()
            time.sleep(3)  # longer than other requests wait for
        asking.join()
        asked.join()
        assert answers == [200]
        assert gateway.output.count("penstock serves") == 2


def test_a_service_manager_hears_which_process_serves(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0penstock-test-{os.getpid()}")
        manager.settimeout(TALK_S)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@penstock-test-{os.getpid()}")
        gateway = GatewayProcess.start(config, config.parent / "log")
        assert manager.recv(100) == b"READY=1"
        assert upgrade(config).returncode == 0
        heard = {manager.recv(100), manager.recv(100)}
        (main,) = (each for each in heard if each != b"READY=1")
        assert main.startswith(b"MAINPID=")
        assert gateway.process.wait(TALK_S) == 0  # no process keeps its place
        assert gateway.post("/v2/models/simple/infer", json.dumps(SIMPLE).encode())[0] == 200
        pidfd = os.pidfd_open(int(main.partition(b"=")[2]))
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        assert select.select([pidfd], [], [], TALK_S)[0]
        os.close(pidfd)


def test_clients_of_a_gateway_that_crashes_wait_where_the_port_is_held(config: Path) -> None:
    answers: list[object] = []

    def ask() -> None:
        host, number = port.getsockname()
        with closing(http.client.HTTPConnection(host, number, timeout=TALK_S)) as connection:
            connection.request("POST", "/v2/models/simple/infer", json.dumps(SIMPLE))
            answers.append(json.loads(connection.getresponse().read())["outputs"][0]["data"])

    with socket.create_server(("127.0.0.1", 0)) as port:
        command = [
            sys.executable,
            "-c",
            HOLDER,
            str(port.fileno()),
            sys.executable,
            "-m",
            "router.cli",
            "serve",
        ]
        command += ["--config", str(config), "--grpc-port", "0", "--metrics-port", "0", "--admin-port", "0"]

        def started(log: str) -> "subprocess.Popen[bytes]":
            with (config.parent / log).open("w") as output:
                return subprocess.Popen(
                    command, stdout=output, stderr=output, cwd=ROOT, pass_fds=(port.fileno(),)
                )

        with started("first") as gateway:
            ask()
            gateway.kill()
        asking = threading.Thread(target=ask)
        asking.start()
        with started("second") as gateway:
            asking.join()
            gateway.terminate()
            assert gateway.wait(TALK_S) == 0
        assert answers == [SUMS, SUMS]
        assert (config.parent / "second").read_text().count("was taken over") == 2


def test_a_signal_that_comes_while_a_gateway_makes_way_ends_the_next_one_too(config: Path) -> None:
    gateway = GatewayProcess.start(config, config.parent / "log")
    worker = workers(gateway)["a"]
    asked = threading.Thread(target=upgrade, args=(config,))
    asked.start()
    gateway._await(r"(was taken over)")
    assert gateway.stop(signal.SIGTERM) in (0, 1)
    asked.join()
    await_gone(worker)
    with pytest.raises(OSError, match="refused"):
        gateway.get("/v2/health/live")
