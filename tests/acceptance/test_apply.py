"""A placement is carried out on a running gateway: no request is lost, and it ends well whoever is killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as http_client

from tests.acceptance.gateway import PATIENT_MS, ROOT, TALK_S, GatewayProcess, await_true
from tests.acceptance.holding import simple_to_hold, write_core_profiles

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="takes two cores to move between"),
]

CONFIG = f"""
slices: [{{name: cpu-a, cores: 1}}]
models:
  - {{path: {ROOT}/models/simple, slo_ms: {PATIENT_MS}, slices: [cpu-a]}}
  - {{path: held, slo_ms: {PATIENT_MS}, slices: [cpu-a]}}
profiles: {{folder: profiles, remeasure: false}}
cache: false
"""
MOVED = {
    "slices": [{"name": "cpu-a", "cores": 1}, {"name": "cpu-1", "cores": 1}],
    "models": {"simple": {"slices": ["cpu-a"]}, "held": {"slices": ["cpu-1"]}},
}
FOLLOWED = """
import json, sys
from router.verbs.place.live.following import PlacementClient, carry_out
sys.exit(carry_out(PlacementClient(sys.argv[1]), json.loads(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, of which one loads only while nobody holds it up. By its profile a row takes 4 ms: one core
    does not carry both."""
    home = tmp_path_factory.mktemp("home")
    simple_to_hold(home / "held")
    (home / "penstock.yaml").write_text(CONFIG)
    write_core_profiles(home / "profiles", "simple", "held")
    return home


@pytest.fixture(scope="module")
def gateway(home: Path) -> Iterator[GatewayProcess]:
    started = GatewayProcess.start(home / "penstock.yaml", home / "log")
    yield started
    assert started.stop() == 0, started.output


@pytest.fixture
def filed(gateway: GatewayProcess) -> Iterator[GatewayProcess]:
    """A gateway that has what the file says, and is to have it again."""
    yield gateway
    if placement(gateway)["by"] == "apply":
        request(gateway, "DELETE")
    until(gateway, lambda found: not found["moving"] and found["by"] == "file")


def request(gateway: GatewayProcess, method: str, body: object = None, more: str = "") -> tuple[int, Any]:
    """Status and answer of a request about the placement."""
    content = None if body is None else json.dumps(body).encode()
    url = f"http://{gateway.admin}/v2/placement{more}"
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, content, method=method), timeout=TALK_S
        ) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def placement(gateway: GatewayProcess) -> dict[str, Any]:
    found: dict[str, Any] = request(gateway, "GET")[1]
    return found


def until(gateway: GatewayProcess, so: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The placement, once it is so."""
    found: list[dict[str, Any]] = []

    def holds() -> object:
        found.append(placement(gateway))
        return so(found[-1])

    await_true(holds, gateway)
    return found[-1]


def slices(found: dict[str, Any]) -> dict[str, list[str]]:
    """The models on each slice."""
    return {
        each["name"]: [name for name, model in found["models"].items() if each["name"] in model["slices"]]
        for each in found["slices"]
    }


def workers(gateway: GatewayProcess) -> list[str]:
    """The slices that have a worker."""
    return [each["name"] for each in json.loads(gateway.get("/v2/status")[1])["slices"]]


def turns_back(found: dict[str, Any]) -> bool:
    """Or has, where nobody looked in time."""
    return not found["moving"] or bool(found["progress"]["state"] == "rolling back")


FILED, APPLIED = {"cpu-a": ["simple", "held"]}, {"cpu-a": ["simple"], "cpu-1": ["held"]}


@contextmanager
def asked(gateway: GatewayProcess) -> Iterator[list[str]]:
    """Both models are asked, one request after the other, by three clients each; what has gone wrong."""
    wrong: list[str] = []
    answered = {"simple": 0, "held": 0}
    stop = threading.Event()

    def ask(model: str) -> None:
        client = http_client.InferenceServerClient(gateway.rest)
        numbers = np.arange(16, dtype=np.int32).reshape(1, 16)
        inputs = [http_client.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
        for each in inputs:
            each.set_data_from_numpy(numbers)
        while not stop.wait(0.02):
            try:
                found = client.infer(model, inputs).as_numpy("OUTPUT0")
                answered[model] += 1
                if not np.array_equal(found, numbers * (2 if model == "simple" else 1)):
                    wrong.append(f"{model}: {found}")
            except Exception as error:  # whatever it is, it is a lost request
                wrong.append(f"{model}: {error!r}")
        client.close()

    threads = [threading.Thread(target=ask, args=(model,)) for model in ("simple", "held") for _ in range(3)]
    for each in threads:
        each.start()
    try:
        yield wrong
        enough = {model: count + 25 for model, count in answered.items()}
        while not wrong and any(answered[model] < count for model, count in enough.items()):
            time.sleep(0.02)
    finally:
        stop.set()
        for each in threads:
            each.join()


@contextmanager
def held(home: Path, name: str = "hold") -> Iterator[None]:
    """No worker gets on with loading `held`; or, "broken", each fails."""
    hold = home / "held" / name
    hold.touch()
    try:
        yield
    finally:
        hold.unlink()


def follower(gateway: GatewayProcess) -> "subprocess.Popen[str]":
    """What `penstock place --apply` does once it has a plan."""
    command = [sys.executable, "-c", FOLLOWED, f"http://{gateway.admin}", json.dumps(MOVED)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def test_a_plan_is_applied_and_taken_back_under_load_and_no_request_is_lost(
    filed: GatewayProcess, home: Path
) -> None:
    command = [sys.executable, "-m", "router.cli", "place", str(home / "penstock.yaml"), "--apply"]
    command += ["--rates", "simple=180,held=180", "--url", f"http://{filed.admin}"]
    command += ["--limit-s", "1", "--seconds", "2"]
    with asked(filed) as wrong:
        ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=TALK_S, check=False)
        assert ended.returncode == 0, f"{ended}\n{filed.output}"
        assert ended.stderr.splitlines()[-1].startswith("applied in ")
        found = placement(filed)
        assert found["by"] == "apply"
        assert sorted(slices(found).values()) == [["held"], ["simple"]]
        assert found["models"]["held"]["load"]["requests"] == 180
        assert sorted(workers(filed)) == sorted(slices(found))
        status, _ = request(filed, "DELETE")
        assert status == 202
        found = until(filed, lambda found: not found["moving"])
        assert (slices(found), found["by"], found["outcome"]["result"]) == (FILED, "file", "done")
        assert workers(filed) == ["cpu-a"]
    assert wrong == []


def test_cores_that_are_not_there_are_refused_and_nothing_is_changed(filed: GatewayProcess) -> None:
    status, told = request(filed, "PUT", MOVED | {"slices": [{"name": "cpu-1", "cores": 4096}]})
    assert status == 400
    assert told["reasons"][0].startswith("models.simple.slices[0]: unknown slice; got 'cpu-a'")
    assert told["reasons"][-1].startswith("slices: no such cores here; got 4096, expected at most ")
    assert slices(placement(filed)) == FILED


def test_ctrl_c_turns_back_and_all_is_as_before(filed: GatewayProcess, home: Path) -> None:
    with asked(filed) as wrong:
        with held(home):
            process = follower(filed)
            until(filed, lambda found: "held default is loading on cpu-1" in found["progress"]["waiting"])
            process.send_signal(signal.SIGINT)
            until(filed, turns_back)
        _, said = process.communicate(timeout=TALK_S)
        assert process.returncode == 130, said
        assert "what was in place is in place again" in said
        found = placement(filed)
        assert (slices(found), found["by"], workers(filed)) == (FILED, "file", ["cpu-a"])
    assert wrong == []
    assert not (home / ".penstock" / "penstock.placement.json").exists()


def test_a_plan_that_cannot_be_is_taken_back_with_the_reason(filed: GatewayProcess, home: Path) -> None:
    with asked(filed) as wrong, held(home, "broken"):
        process = follower(filed)
        _, said = process.communicate(timeout=TALK_S)
        assert process.returncode == 1, said
        assert "its weights are not there" in said.splitlines()[-1]
        found = placement(filed)
        assert (slices(found), found["by"], workers(filed)) == (FILED, "file", ["cpu-a"])
    assert wrong == []


def test_a_command_that_is_killed_in_mid_move_harms_nothing(filed: GatewayProcess, home: Path) -> None:
    with held(home):
        process = follower(filed)
        until(filed, lambda found: "held default is loading on cpu-1" in found["progress"]["waiting"])
        process.kill()
        process.communicate()
    found = until(filed, lambda found: not found["moving"])
    assert (slices(found), found["by"], found["outcome"]["result"]) == (APPLIED, "apply", "done")


def test_a_gateway_that_is_killed_in_mid_move_comes_up_with_what_was_wanted(
    home: Path, tmp_path: Path
) -> None:
    path = home / "other.yaml"
    path.write_text(CONFIG)
    gateway = GatewayProcess.start(path, tmp_path / "log")
    with held(home):
        process = follower(gateway)
        until(gateway, lambda found: "held default is loading on cpu-1" in found["progress"]["waiting"])
        process.kill()
        process.communicate()
        gateway.process.kill()
        gateway.process.wait()
    gateway = GatewayProcess.start(path, tmp_path / "again")
    try:
        found = placement(gateway)
        assert (slices(found), found["by"]) == (APPLIED, "apply")
        assert sorted(workers(gateway)) == ["cpu-1", "cpu-a"]
        assert "slices are as a placement has them that was applied" in gateway.output
        status, _ = request(gateway, "DELETE")
        assert status == 202
        assert slices(until(gateway, lambda found: not found["moving"])) == FILED
    finally:
        assert gateway.stop() == 0, gateway.output
