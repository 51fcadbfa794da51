"""Two gateways over one Redis: each has the other's answers, and an operator's DELETE reaches both."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from loadtests.redis_server import RedisServer, redis_server
from tests.acceptance.gateway import ROOT, GatewayProcess
from tests.acceptance.test_kept_answers import add, ask, drop

pytestmark = pytest.mark.slow

SECRET = "s3cret"  # noqa: S105  of a server that lives for one test


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server("--requirepass", SECRET) as started:
        yield started


@pytest.fixture(scope="module")
def gateways(
    tmp_path_factory: pytest.TempPathFactory, server: RedisServer
) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("REDIS_PASSWORD", SECRET)
        started = []
        for name in ("first", "second"):
            config = folder / f"{name}.yaml"
            config.write_text(settings(server))
            started.append(GatewayProcess.start(config, folder / f"{name}.log"))
            stack.callback(end, started[-1])
        yield started[0], started[1]


def settings(server: RedisServer) -> str:
    return f"""
slices: [{{name: a}}]
models:
  - {{path: {ROOT}/models/simple, slo_ms: 2000}}
  - {{path: {ROOT}/models/identity, slo_ms: 5000}}
cache: {{redis: {{url: "{server.url}", password_env: REDIS_PASSWORD, budget_ms: 500}}}}
"""


def end(gateway: GatewayProcess) -> None:
    assert gateway.stop() == 0, gateway.output
    assert SECRET not in gateway.output


def metric(gateway: GatewayProcess, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", gateway.read_metrics(), re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def wait_for(gateway: GatewayProcess, name: str, value: float) -> None:
    """Writing is behind: until a metric has come to a value."""
    while metric(gateway, name) < value:
        pass


Gateways = tuple[GatewayProcess, GatewayProcess]


def test_one_gateways_answer_is_the_others_hit(gateways: Gateways) -> None:
    first, second = gateways
    assert add(first, 1)["x-cache"] == "miss"
    wait_for(first, "penstock_cache_redis_writes_total", 1)
    found = add(second, 1)
    assert (found["x-cache"], found["age"]) == ("hit", "0")
    assert metric(second, 'penstock_cache_redis_looks_total{model="simple",result="hit"}') == 1
    assert metric(second, "penstock_cache_redis_up") == 1


def test_equal_questions_to_both_at_once_are_computed_once(gateways: Gateways) -> None:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [7]}
    slow = {"inputs": [tensor], "parameters": {"execute_delay_ms": 300}}
    with ThreadPoolExecutor(16) as clients:
        answers = [clients.submit(ask, gateways[n % 2], "identity", slow) for n in range(16)]
        told = [answer.result()["x-cache"] for answer in answers]
    assert (told.count("miss"), told.count("hit"), told.count("join")) == (1, 1, 14)


def test_a_delete_at_one_reaches_the_other(gateways: Gateways) -> None:
    first, second = gateways
    for gateway in gateways:
        add(gateway, 2)
    heard = metric(second, "penstock_cache_redis_invalidations_total")
    assert drop(first, "/v2/cache/models/simple") >= 1
    wait_for(second, "penstock_cache_redis_invalidations_total", heard + 1)
    assert add(second, 2)["x-cache"] == "miss"


def test_without_redis_both_serve_on_and_say_so_once(gateways: Gateways, server: RedisServer) -> None:
    server.kill()
    for number in range(40):
        for gateway in gateways:
            assert add(gateway, 1000 + number)["x-cache"] == "miss"
    for gateway in gateways:
        while metric(gateway, "penstock_cache_redis_up"):
            pass
        assert gateway.output.count("is left alone, requests go on") == 1
        assert gateway.get("/v2/health/ready")[0] == 200
    server.start()
    for gateway in gateways:
        while not metric(gateway, "penstock_cache_redis_up"):
            pass
        assert gateway.output.count("answers are shared through Redis at unix://") == 1
        assert len(re.findall(r"Redis at unix://\S+ is back after [\d.]+ s", gateway.output)) == 1
    written = metric(gateways[0], "penstock_cache_redis_writes_total")
    add(gateways[0], 3)
    wait_for(gateways[0], "penstock_cache_redis_writes_total", written + 1)
    assert add(gateways[1], 3)["x-cache"] == "hit"
