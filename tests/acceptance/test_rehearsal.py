"""A gateway that rehearses GPUs says so wherever it answers, and lives on when their host is lost."""

import json
import os
import signal
import urllib.request
from collections.abc import Iterator

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.acceptance.gateway import PATIENT_MS, ROOT, TALK_S, GatewayProcess, await_true
from tests.router.settings.rehearsed import REHEARSED, write_profiles

pytestmark = pytest.mark.slow

SHARE = "mig:1g.18gb"
SETTINGS = f"""\
{REHEARSED}slices: [{{name: g, device: h, share: "{SHARE}", count: 7}}]
models: [{{path: {ROOT}/models/simple, slo_ms: {PATIENT_MS}, cache: true}}]
cache: {{}}
profiles: profiles
"""
ROW = {"datatype": "INT32", "shape": [1, 16], "data": [*range(16)]}
ASKED = json.dumps({"inputs": [{"name": "INPUT0"} | ROW, {"name": "INPUT1"} | ROW]}).encode()
REHEARSED_FIELD = "x-penstock-rehearsed"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("rehearsal")
    (folder / "penstock.yaml").write_text(SETTINGS)
    write_profiles(folder / "profiles", [SHARE], ("simple", "default"))
    started = GatewayProcess.start(folder / "penstock.yaml", folder / "log")
    yield started
    assert started.stop() == 0, started.output


def ask(door: str) -> tuple[str | None, str | None, list[int]]:
    """What an answer says of itself: rehearsed, from the cache; and its first output."""
    request = urllib.request.Request(f"http://{door}/v2/models/simple/infer", ASKED)
    with urllib.request.urlopen(request, timeout=TALK_S) as answer:  # noqa: S310
        found = json.loads(answer.read())["outputs"][0]["data"]
        return answer.headers.get(REHEARSED_FIELD), answer.headers.get("x-cache"), found


def slices(gateway: GatewayProcess) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(gateway.get("/v2/status")[1])["slices"]
    return found


def test_answers_say_over_rest_and_grpc_that_they_are_rehearsed(gateway: GatewayProcess) -> None:
    for door in (gateway.rest, gateway.admin):  # the fast path, and the one of ASGI
        rehearsed, _, outputs = ask(door)
        assert (rehearsed, outputs) == ("true", [0] * 16)
    assert ask(gateway.rest)[:2] == ("true", "hit"), "a kept answer is as rehearsed as it was"
    asked = service_pb2.ModelInferRequest(model_name="simple")
    for name in ("INPUT0", "INPUT1"):
        tensor = asked.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        tensor.contents.int_contents.extend(range(1, 17))
    with grpc.insecure_channel(gateway.grpc) as channel:
        _, call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer.with_call(
            asked, timeout=TALK_S
        )
    assert dict(call.trailing_metadata())[REHEARSED_FIELD] == "true"


def test_start_status_and_metrics_say_what_is_rehearsed(gateway: GatewayProcess) -> None:
    assert "REHEARSAL: 14 of 14 slices, on 2 devices, load no model" in gateway.output
    assert all(each["rehearsed"] for each in slices(gateway))
    gpus = json.loads(gateway.get("/v2/status")[1])["gpus"]
    assert [(each["uuid"], each["rehearsed"]) for each in gpus] == [("h-1", True), ("h-2", True)]
    for gpu in gpus:
        assert [each["start"] for each in gpu["mig"]["instances"]] == [*range(7)]
        assert gpu["mig"]["room"] == {}
    assert 'penstock_slice_rehearsed{slice="g-1"} 1' in gateway.read_metrics()


def test_a_host_that_is_killed_is_started_again_with_all_its_slices(gateway: GatewayProcess) -> None:
    pids = {each["pid"] for each in slices(gateway)}
    (pid,) = pids
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)

    def is_back() -> bool:
        there = slices(gateway)
        return all(each["pid"] not in (pid, None) and each["state"] == "ready" for each in there)

    await_true(is_back, gateway)
    assert {each["restarts"] for each in slices(gateway)} == {1}
    assert ask(gateway.rest)[0] == "true"
