"""Two gateways that share models, as a user starts them: any of them answers, and either may end."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from loadtests.stand.redis_server import RedisServer, redis_server
from tests.acceptance.gateway import PATIENT_MS, ROOT, START_S, GatewayProcess, await_true
from tests.certificates import Authority

pytestmark = [pytest.mark.live, pytest.mark.slow]

TOKEN = "0123456789abcdef"  # noqa: S105
NUMBERS = [*range(16)]
SIMPLE = {
    "inputs": [
        {"name": name, "shape": [1, 16], "datatype": "INT32", "data": NUMBERS}
        for name in ("INPUT0", "INPUT1")
    ]
}
MODELS = ("simple", "identity", "repeat")


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server() as started:
        yield started


def written(
    folder: Path, redis: RedisServer, name: str, tls: Authority | None, more: Mapping[str, object]
) -> Path:
    """The settings of a cell, with all models in them."""
    cells: dict[str, object] = {"name": name, "redis": redis.url, "port": 0}
    settings: dict[str, object] = {
        "cells": cells,
        "slices": [{"name": "s", "threads": 1}],
        "models": [{"path": f"{ROOT}/models/{each}", "slo_ms": PATIENT_MS} for each in MODELS],
        "profiles": {"folder": str(folder / "profiles")},
        **more,
    }
    if tls is not None:
        settings["server"] = {"tls": {"cert": str(tls.sign("server")), "key": str(tls.folder / "server.key")}}
        cells["ca"] = str(tls.ca)
    home = folder / name
    home.mkdir()
    (home / "penstock.yaml").write_text(json.dumps(settings))
    return home


@contextmanager
def two_cells(
    folder: Path,
    redis: RedisServer,
    tls: Authority | None = None,
    more: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
) -> Iterator[list[GatewayProcess]]:
    """Gateways a and b, started at once: so the first map deals the models to both. A cell that comes later
    is given models at the next round for evenness, half a minute after the map. `more`: of their settings, by
    name."""
    homes = [written(folder, redis, name, tls, more.get(name, {})) for name in ("a", "b")]
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setenv("PENSTOCK_CELL_TOKEN", TOKEN)
        gateways = [*pool.map(lambda home: GatewayProcess(home / "penstock.yaml", home / "log"), homes)]
    try:
        yield gateways
    finally:
        for gateway in gateways:
            gateway.kill()
            gateway.process.wait()


def models_of(gateway: GatewayProcess) -> dict[str, list[str]]:
    """Which cell has which models ready, as a gateway knows it."""
    told: Any = json.loads(gateway.get("/v2/cells")[1])
    return {each["name"]: each["models"] for each in told["cells"]}


def are_shared(gateway: GatewayProcess, count: int = 2) -> bool:
    """Whether so many cells have all models among them, and each has one."""
    found = models_of(gateway)
    return len(found) == count and all(found.values()) and sorted(chain(*found.values())) == sorted(MODELS)


def sums(gateway: GatewayProcess) -> object:
    status, body = gateway.post("/v2/models/simple/infer", json.dumps(SIMPLE).encode())
    return json.loads(body)["outputs"][0]["data"] if status == 200 else (status, body)


def test_either_gateway_answers_for_all_models(tmp_path: Path, redis: RedisServer) -> None:
    with two_cells(tmp_path, redis) as (a, b):
        await_true(lambda: are_shared(a) and are_shared(b), a, b)
        for gateway in (a, b):
            assert sums(gateway) == [2 * number for number in NUMBERS]
            assert sorted(json.loads(gateway.get("/v2/models")[1])["models"]) == sorted(MODELS)
            assert_grpc_answers(gateway)
            status, body = gateway.post("/v2/models/simple/infer", b'{"inputs": []}')
            assert status == 400
            assert b"INPUT0" in body
            assert gateway.get("/v2/models/simple/explain")[0] == 200  # perhaps by a redirect
            status, body = gateway.change("POST", "/v2/repository/models/simple/unload")
            assert status == 503
            assert b"models are dealt to cells" in body
        assert_shown(a)
        home, asked = ("b", a) if "simple" in models_of(a)["b"] else ("a", b)
        passed = rf'penstock_cell_requests_total\{{cell="{home}",outcome="completed"\}} [1-9]'
        assert re.search(passed, asked.read_metrics()), asked.read_metrics()
        assert b.stop() == 0  # it leaves once the other has its models
        assert sums(a) == [2 * number for number in NUMBERS]
        assert sorted(models_of(a)["a"]) == sorted(MODELS)
        assert "leaves before" not in b.output


def assert_grpc_answers(gateway: GatewayProcess) -> None:
    """A stream of a decoupled model and a single call, whichever gateway has the models."""
    with grpc_client.InferenceServerClient(gateway.grpc) as client:
        assert client.is_model_ready("identity")
        given = grpc_client.InferInput("INPUT0", [2, 1], "FP32")
        given.set_data_from_numpy(np.array([[1.5], [2.5]], np.float32))
        answer = client.infer("identity", [given]).as_numpy("OUTPUT0")
        assert answer is not None
        assert answer.tolist() == [[1.5], [2.5]]


def assert_shown(gateway: GatewayProcess) -> None:
    command = [sys.executable, "-m", "router.cli", "cells", "--url", f"http://{gateway.rest}"]
    table = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=START_S, check=True)
    assert re.search(r"a +http://\S+ .* here", table.stdout)
    assert re.search(r"b +http://\S+ .* connected", table.stdout)
    assert "of 3 models, decided by cell" in table.stdout
    envoy = subprocess.run(
        [*command, "--format", "envoy"], capture_output=True, text=True, cwd=ROOT, timeout=START_S, check=True
    )
    assert "cell-a" in json.dumps(json.loads(envoy.stdout))


def test_the_models_of_a_gateway_that_is_killed_are_taken_by_the_other(
    tmp_path: Path, redis: RedisServer
) -> None:
    with two_cells(tmp_path, redis) as (a, b):
        await_true(lambda: are_shared(a), a, b)
        b.kill()
        b.process.wait()
        await_true(lambda: sums(a) == [2 * number for number in NUMBERS], a)
        await_true(lambda: sorted(models_of(a)["a"]) == sorted(MODELS), a)
        redis.kill()
        assert sums(a) == [2 * number for number in NUMBERS]
        await_true(lambda: "cannot meet the other cells" in a.output, a)


@pytest.mark.in_turn(3)
def test_cells_call_each_other_over_tls(tmp_path: Path, redis: RedisServer) -> None:
    authority = Authority(tmp_path / "tls")
    with two_cells(tmp_path, redis, authority) as (a, b):
        await_true(lambda: "cell b at 127.0.0.1" in a.output and "cell a at 127.0.0.1" in b.output, a, b)
        assert "is connected" in a.output
