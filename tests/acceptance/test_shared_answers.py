"""Two gateways over one Redis: each has the other's answers, and an operator's DELETE reaches both."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from loadtests.stand.redis_server import RedisServer, redis_server
from tests.acceptance.gateway import PATIENT_MS, ROOT, TALK_S, GatewayProcess, await_true
from tests.acceptance.holding import LIMITS, held, identity_to_hold
from tests.acceptance.test_kept_answers import add, ask, drop

pytestmark = pytest.mark.slow

SECRET = "s3cret"  # noqa: S105  of a server that lives for one test


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server("--requirepass", SECRET) as started:
        yield started


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def gateways(home: Path, server: RedisServer) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("REDIS_PASSWORD", SECRET)
        started = []
        identity_to_hold(home / "identity")
        for name in ("first", "second"):
            config = home / f"{name}.yaml"
            config.write_text(settings(server))
            started.append(GatewayProcess.start(config, home / f"{name}.log"))
            stack.callback(end, started[-1])
        yield started[0], started[1]


def settings(server: RedisServer) -> str:
    return f"""
slices: [{{name: a}}]
models:
  - {{path: {ROOT}/models/simple, slo_ms: {PATIENT_MS}}}
  - {{path: identity, slo_ms: {PATIENT_MS}}}
cache: {{redis: {{url: "{server.url}", password_env: REDIS_PASSWORD, budget_ms: 1000}}}}
{LIMITS}
"""


def end(gateway: GatewayProcess) -> None:
    assert gateway.stop() == 0, gateway.output
    assert SECRET not in gateway.output


def metric(gateway: GatewayProcess, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", gateway.read_metrics(), re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def wait_for(gateway: GatewayProcess, name: str, value: float) -> None:
    """Writing is behind: until a metric has come to a value."""
    await_true(lambda: metric(gateway, name) >= value, gateway)


WRITTEN = "penstock_cache_redis_writes_total"
UP = "penstock_cache_redis_up"
HITS = 'penstock_cache_redis_looks_total{model="simple",result="hit"}'
LEFT = "is left alone, requests go on"
SAID = re.compile(
    r"answers (are shared) through Redis at unix://"
    r"|Redis at unix://\S+ (is left alone|is back after)"
)
Gateways = tuple[GatewayProcess, GatewayProcess]


def overslept(gateways: Gateways, model: str) -> float:
    """Looks and writes that were given up. No fault where the machine stood still for as long as Redis is
    given: it is told by asking another question."""
    look = f'penstock_cache_redis_looks_total{{model="{model}",result="%s"}}'
    names = ["penstock_cache_redis_dropped_total", "penstock_cache_redis_trips_total"]
    names += [look % "timeout", look % "skipped"]
    return sum(metric(gateway, name) for gateway in gateways for name in names)


def in_touch(gateways: Gateways) -> float:
    """Once both ask Redis: what was overslept so far, of all models."""
    for gateway in gateways:
        wait_for(gateway, UP, 1)
    return overslept(gateways, "simple") + overslept(gateways, "identity")


def found_by_second(gateways: Gateways, start: int) -> dict[str, str]:
    """What the second is answered to a question, from `start` on, that the first has just answered."""
    for number in numbers(start):
        if (found := passed_on(gateways, number)) is not None:
            return found
    raise AssertionError


def numbers(start: int) -> Iterator[int]:
    """As many as there is time for."""
    end = time.monotonic() + TALK_S
    for number in count(start):
        assert time.monotonic() < end
        yield number


def passed_on(gateways: Gateways, number: int) -> dict[str, str] | None:
    """What the second is answered; None where something was overslept."""
    first, second = gateways
    before, written = in_touch(gateways), metric(first, WRITTEN)
    assert add(first, number)["x-cache"] == "miss"
    await_true(lambda: metric(first, WRITTEN) > written or in_touch(gateways) > before, *gateways)
    hits = metric(second, HITS)
    found = add(second, number)
    if in_touch(gateways) > before:
        return None
    assert metric(second, HITS) == hits + 1
    return found


def test_one_gateways_answer_is_the_others_hit(gateways: Gateways) -> None:
    second, began = gateways[1], time.monotonic()
    found = found_by_second(gateways, 10_000)
    assert found["x-cache"] == "hit"
    assert 0 <= int(found["age"]) <= time.monotonic() - began
    assert metric(second, UP) == 1


def ask_both(gateways: Gateways, home: Path, number: int) -> list[str]:
    """What is said of the answers to sixteen equal questions, of which none is answered before all came."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [number]}
    with ThreadPoolExecutor(16) as clients:
        with held(home / "identity"):
            asked = {"inputs": [tensor]}
            answers = [clients.submit(ask, gateways[n % 2], "identity", asked) for n in range(16)]
            await_true(lambda: sum(each.open_requests() for each in gateways) == 16, *gateways)
        return [answer.result()["x-cache"] for answer in answers]


def test_equal_questions_to_both_at_once_are_computed_once(gateways: Gateways, home: Path) -> None:
    for number in numbers(7):
        before = in_touch(gateways)
        told = ask_both(gateways, home, number)
        if in_touch(gateways) == before:
            break
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
    in_touch(gateways)
    outages = [gateway.output.count(LEFT) for gateway in gateways]
    server.kill()
    for number in range(40):
        for gateway in gateways:
            assert add(gateway, 1000 + number)["x-cache"] == "miss"
    await_true(lambda: not any(metric(gateway, UP) for gateway in gateways), *gateways)
    for gateway, before in zip(gateways, outages, strict=True):
        assert gateway.output.count(LEFT) == before + 1
        assert gateway.get("/v2/health/ready")[0] == 200
    server.start()
    in_touch(gateways)
    for gateway, before in zip(gateways, outages, strict=True):
        said = ["".join(each) for each in SAID.findall(gateway.output)]
        turns = ["is left alone", "is back after"] * said.count("is left alone")
        if not before or "are shared" in said:  # it is not, where even to connect once took too long
            turns.insert(0, "are shared")
        assert said == turns
    assert found_by_second(gateways, 20_000)["x-cache"] == "hit"
