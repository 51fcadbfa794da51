"""Sequences by Triton's clients: the sample adds up, a killed worker loses its own, a reload waits."""

import json
import threading
from collections.abc import Callable, Iterator
from os import kill
from pathlib import Path
from shutil import copytree
from signal import SIGKILL
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess, await_true, serving

pytestmark = pytest.mark.slow

Ask = Callable[..., int]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample on two slices, with text and time that suit a test."""
    folder = tmp_path_factory.mktemp("sequences")
    copytree(ROOT / "models" / "accumulate", folder / "accumulate")
    (folder / "penstock.yaml").write_text(
        f"slices: [{{name: a, cores: 1}}, {{name: b, cores: 1}}]\n"
        f"admin: {{on_inference_ports: true}}\n"
        f"models: [{{path: accumulate, slo_ms: {PATIENT_MS}}}]\n"
    )
    return folder


@pytest.fixture(scope="module")
def gateway(home: Path) -> Iterator[GatewayProcess]:
    with serving(home / "penstock.yaml") as process:
        yield process


@pytest.fixture(params=[http_client, grpc_client], ids=["http", "grpc"])
def ask(request: pytest.FixtureRequest, gateway: GatewayProcess) -> Ask:
    return asking(request.param, gateway)


def asking(library: ModuleType, gateway: GatewayProcess) -> Ask:
    url = gateway.rest if library is http_client else gateway.grpc
    client = library.InferenceServerClient(url)

    def ask(value: int, **said: Any) -> int:
        tensor = library.InferInput("INPUT", [1, 1], "INT32")
        tensor.set_data_from_numpy(np.array([[value]], np.int32))
        return int(client.infer("accumulate", [tensor], **said).as_numpy("OUTPUT")[0, 0])

    return ask


def slices_of(gateway: GatewayProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gateway.get("/v2/status")[1])["slices"]
    return found


def said(ask: Ask, value: int, **asked: Any) -> str:
    """An answer, or an error in words."""
    try:
        return str(ask(value, **asked))
    except InferenceServerException as error:
        return str(error)


@pytest.mark.parametrize("name", [1001, "a name"])
def test_a_sequence_adds_up_from_start_to_end(ask: Ask, name: int | str) -> None:
    flags = [{"sequence_start": True}, {}, {}, {"sequence_end": True}]
    assert [ask(value, sequence_id=name, **said) for value, said in enumerate(flags, 1)] == [1, 3, 6, 10]
    with pytest.raises(InferenceServerException) as raised:
        ask(1, sequence_id=name)
    assert f"inference request for sequence {name} to model 'accumulate' must specify the START flag" in str(
        raised.value
    )


def test_a_killed_worker_loses_its_sequences_and_no_others(gateway: GatewayProcess) -> None:
    ask = asking(http_client, gateway)
    for name in range(1, 7):
        assert ask(10, sequence_id=name, sequence_start=True) == 10
    (pid, *_) = [each["pid"] for each in slices_of(gateway)]
    restarts = sum(each["restarts"] for each in slices_of(gateway))
    kill(pid, SIGKILL)
    await_true(lambda: sum(each["restarts"] for each in slices_of(gateway)) > restarts, gateway)
    found = {name: said(ask, 1, sequence_id=name) for name in range(1, 7)}
    lost = [name for name, answer in found.items() if answer != "11"]
    assert 0 < len(lost) < 6
    for name in lost:
        assert found[name].startswith(
            f"[409] sequence {name} of model 'accumulate' is lost: the worker of slice"
        )
    for name in lost:
        assert ask(3, sequence_id=name, sequence_start=True) == 3


def test_a_new_revision_takes_over_when_the_sequences_have_ended(gateway: GatewayProcess, home: Path) -> None:
    ask = asking(grpc_client, gateway)
    assert ask(5, sequence_id="kept", sequence_start=True) == 5
    for name in range(1, 7):
        ask(0, sequence_id=name, sequence_start=True, sequence_end=True)
    code = home / "accumulate" / "model.py"
    code.write_text(code.read_text().replace('return {"OUTPUT": total,', 'return {"OUTPUT": -total,'))
    client = grpc_client.InferenceServerClient(gateway.grpc)
    loading = threading.Thread(target=client.load_model, args=["accumulate"])
    loading.start()
    await_true(lambda: ask(1, sequence_id="new", sequence_start=True, sequence_end=True) == -1, gateway)
    assert ask(1, sequence_id="kept") == 6
    assert ask(1, sequence_id="kept", sequence_end=True) == 7
    loading.join()
    assert ask(1, sequence_id="kept", sequence_start=True, sequence_end=True) == -1
