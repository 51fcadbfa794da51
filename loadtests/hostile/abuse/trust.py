"""What is believed: workers that die, feedback on answers of others, values that others put into Redis."""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from urllib.request import urlopen

from redis import Redis

from loadtests.harness.gateway import Gateway, model_entry, started
from loadtests.harness.wire import ask, digits_question, post
from loadtests.hostile.abuse.bombs import Attack
from loadtests.hostile.abuse.hostile import PATH, PATIENCE_S, good_body, is_right
from loadtests.hostile.abuse.others import Broken
from loadtests.hostile.abuse.storm import Storm
from loadtests.stand.redis_server import RedisServer, redis_server
from serving.cache.entries import entry_of
from serving.cache.values import encode, seal_of
from serving.values.tensor import Tensor

STORM_S, STORM_RATE = 40.0, 100.0
RIGHT_MIN = 0.8  # of the requests, while the only worker is killed or stopped every 6 to 14 s
GUESSES = 300
ROWS = 3  # questions: of one row, of two, of three
TTL_S = 0.2  # of an answer in memory: then Redis is asked again
KEY_ENV = "PENSTOCK_ABUSE_KEY"
KEY_BYTES = 32  # of a question's digest, with which a key in Redis ends


def attacks() -> Iterator[Attack]:
    yield Attack("workers: the only one is killed or stopped", 0, _storm, own=_simple, refuses=True)
    yield Attack(f"feedback: {GUESSES} guesses at others' answers", GUESSES * 200, _guesses, own=_learning)
    shared = _Shared()
    yield Attack("Redis: values that no gateway signed", 0, shared.poison, own=shared.start)


@contextlib.contextmanager
def _simple() -> Iterator[Gateway]:
    with started([model_entry("simple", slo_ms=5000)]) as gateway:
        yield gateway


def _storm(gateway: Gateway) -> str:
    storm = Storm(gateway, 1)
    storm.play(STORM_S, STORM_RATE)
    count = storm.endings.total()
    said = ", ".join(f"{each / count:.1%} {ending}" for ending, each in storm.endings.most_common())
    if storm.endings["right"] < RIGHT_MIN * count:
        raise Broken(said)
    return f"{storm.faults} faults, {count} requests: {said}"


@contextlib.contextmanager
def _learning() -> Iterator[Gateway]:
    selection = {"policy": "exp3", "members": ["linear", "mlp"], "output": "SCORES"}
    digits = model_entry(
        "digits", slo_ms=200, variants=["linear", "mlp"], default_variant="linear", selection=selection
    )
    tenants = [{"name": "another"}]
    with started([model_entry("simple", slo_ms=5000), digits], tenants=tenants) as gateway:
        yield gateway


def _guesses(gateway: Gateway) -> str:
    """Guess query names, at random and near the client's own name, and try that name as another tenant."""
    answer = ask(gateway, digits_question().request)
    name = answer.headers["x-penstock-query"]
    names = [f"{int(name, 16) + step:0{len(name)}x}" for step in range(-GUESSES // 4, GUESSES // 4) if step]
    names += [secrets.token_hex(len(name) // 2) for _ in range(GUESSES // 2)]
    taken = sum(_taken(gateway, each, "default") for each in names) + _taken(gateway, name, "another")
    if taken or not _taken(gateway, name, "default"):
        raise Broken(f"{taken} guesses of {len(names)} are taken; or one's own is not")
    return f"none of {len(names)} is taken, one's own is"


def _taken(gateway: Gateway, query: str, tenant: str) -> bool:
    body = json.dumps({"query": query, "loss": 1.0}).encode()
    return ask(gateway, post("/v2/models/digits/feedback", body, {"x-tenant": tenant})).status == 200


class _Shared:
    """A gateway that keeps its answers in Redis: without a password, but signed."""

    def __init__(self) -> None:
        self._server: RedisServer | None = None

    @contextlib.contextmanager
    def start(self) -> Iterator[Gateway]:
        os.environ[KEY_ENV] = secrets.token_hex(16)
        with redis_server() as self._server:
            cache = {"ttl_s": TTL_S, "redis": {"url": self._server.url, "key_env": KEY_ENV}}
            with started([model_entry("simple", slo_ms=5000)], cache=cache) as gateway:
                yield gateway

    def poison(self, gateway: Gateway) -> str:
        """Write wrong numbers, a cut value, no value and zeros into Redis. Asked again, each question has its
        right answer."""
        if self._server is None:
            raise ValueError("there is no Redis: start first")
        redis = self._server.client()
        written = 0
        for rows in range(1, ROWS + 1):
            _ask(gateway, rows)
            for name in _values(redis):
                good = bytes(redis.get(name) or b"")  # type: ignore[arg-type]  # this client does not wait
                noughts = good[:40] + bytes(max(0, len(good) - 40))
                for value in (_wrong(name, rows), good[:-3], noughts, b"", b"PNST\x02"):
                    redis.set(name, value)
                    written += 1
                    time.sleep(TTL_S * 1.5)
                    _ask(gateway, rows)
                redis.delete(name)
        if not written:
            raise Broken("nothing was written to Redis")
        return f"{written} values, every answer right; {_refused(gateway)}"


def _refused(gateway: Gateway) -> str:
    with urlopen(
        f"http://{gateway.host}:{gateway.metrics_port}/metrics", timeout=PATIENCE_S
    ) as answer:  # ours
        lines = answer.read().decode().splitlines()
    return "; ".join(line for line in lines if line.startswith("penstock_cache_redis_refused"))


def _ask(gateway: Gateway, rows: int) -> None:
    if not is_right(ask(gateway, post(PATH, good_body(rows)))):
        raise Broken(f"a wrong answer to {rows} rows")


def _values(redis: Redis) -> list[bytes]:
    """Return the names of answers; they are written behind, so they may come a moment later."""
    until_s = time.monotonic() + 5
    while time.monotonic() < until_s:
        names = map(bytes, redis.scan_iter("*:simple:*"))
        found = [name for name in names if not name.endswith(b":lease")]
        if found:
            return found
        time.sleep(0.05)
    return []


def _wrong(name: bytes, rows: int) -> bytes:
    """Return a wrong answer to the right question, signed as gateways without a key sign."""
    outputs = [Tensor(each, "INT32", (rows, 16), bytes(64 * rows)) for each in ("OUTPUT0", "OUTPUT1")]
    now_us = time.time_ns() // 1000
    return encode(name[-KEY_BYTES:], entry_of("simple", "default", outputs, now_us), 0, seal_of(""))
