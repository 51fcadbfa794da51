"""What the result cache costs: CPU of a call that it answers, of one that it does not, and of one past it.

    python -m loadtests.memory.cache_cost [--rounds 9] [--rest]

First in this process, from `submit` to the answer, without edge or sockets: the gateway is the real one, its
worker answers at once and costs nothing. A miss is digested, looked up, computed and kept; `passed by` is a
call of a model whose cache is off, as it does not pay; `no cache` is the gateway alone.

Then, with --rest, over REST: the linear digits variant behind a gateway with a cache and one without, wrk at
saturation, CPU of the gateway process by /proc. Unique questions switch the cache off after some hundred.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from time import thread_time_ns

from loadtests.harness import wrk
from loadtests.harness.gateway import Gateway as RunningGateway
from loadtests.harness.gateway import model_entry, started
from loadtests.harness.processes import cpu_us, pin
from loadtests.harness.wire import digits_question
from loadtests.stand.observed import Watch
from serving.cache.benefit import CacheBenefit
from serving.cache.spec import CacheSpec
from serving.ports import Call, Reply
from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.runtime.caching.caching import CachedServing
from serving.runtime.calls.gateway import Gateway
from serving.values.specs import BatchingSpec, Limits, ModelSpec, ServedModel, TensorSpec, VariantSpec
from serving.values.tensor import Tensor
from serving.worker.frames.batches import BatchOutput, BatchResult

CALLS = 2_000  # a round
AT_ONCE = 16  # calls of one instant, which share a batch; a divisor of CALLS
SLO_US = 10_000_000
Submit = Callable[[Call, Callable[[Reply], None]], int]
REST_CONNECTIONS = 64
REST_SECONDS = 3


@dataclass(frozen=True, slots=True)
class Kind:
    """A model's questions and answers of one row: `asked` and `answered` are bytes of them."""

    name: str
    datatype: str
    asked: int
    answered: int


KINDS = (Kind("digits-like", "FP32", 256, 40), Kind("minilm-like", "BYTES", 200, 1536))


class Quiet(Watch):
    """An observer that keeps nothing."""

    def cache_asked(self, model: str, result: str, took_us: int) -> None:
        """Do nothing: the client counts it."""

    def cache_looked(self, model: str, result: str, took_us: int) -> None:
        """Do nothing: nothing is shared here."""

    def batch_done(self, batch: object, compute_us: int, elapsed_us: int, output_us: int = 0) -> None:
        """Do nothing: no client asks for it."""


class Steadfast(CacheBenefit):
    """It is on, or off, whatever that is worth."""

    __slots__ = ()

    def asked(self, took_us: float, answered: bool) -> None:
        """Do nothing: nothing is weighed."""

    def computed(self, device_us: float, kept_us: float) -> None:
        """Do nothing: nothing is weighed."""


class Bench:
    """A link to a worker that answers in the next tick."""

    slice = "s"

    def __init__(self, gateway: Gateway, kind: Kind) -> None:
        self._gateway = gateway
        self._kind = kind
        self._loop = asyncio.get_running_loop()

    def run(self, batch_id: int, _replica: int, rows: int, *_: object) -> None:
        """Answer with zeros."""
        output = BatchOutput("FP32", (self._kind.answered // 4,), bytes(self._kind.answered * rows), rows)
        result = BatchResult(batch_id, 100, 0, rows, [output])
        self._loop.call_soon(self._gateway.batch_done, result)

    def leave(self, batch_id: int, row: int) -> None:
        """Do nothing: no model here is decoupled."""


class House:
    """A gateway with its cache over that worker."""

    def __init__(self, kind: Kind) -> None:
        columns = kind.asked // 4 if kind.datatype == "FP32" else 1
        inputs = (TensorSpec("IN", kind.datatype, (-1, columns)),)
        outputs = (TensorSpec("OUT", "FP32", (-1, kind.answered // 4)),)
        spec = ModelSpec(
            "m", Path(), inputs, outputs, (VariantSpec("a", None, deterministic=True),), "a", SLO_US, 64
        )
        batching = BatchingSpec("static", size=AT_ONCE)
        self.model = ServedModel(spec, SLO_US, ("a",), ("s",), batching, cache=True)
        self.gateway = Gateway([self.model], Limits(), Quiet())
        self.cached = CachedServing(self.gateway, CacheSpec(), Quiet())
        self._columns = columns
        self._kind = kind
        points = tuple(Point(0, rows, 100.0, 120.0, 30) for rows in (1, 64))
        latency = Latency(Profile("m", "a", "none", points))
        self.gateway.replica_up(Bench(self.gateway, kind), "m", "a", 1, latency)

    def call(self, number: int) -> Call:
        """Return a question of its own for each number."""
        data = number.to_bytes(8, "little") + bytes(self._kind.asked - 8)
        return Call(self.model, [Tensor("IN", self._kind.datatype, (1, self._columns), data)], 1)

    def steady(self, enabled: bool) -> None:
        """Let the cache be on, or off, for good."""
        worth = Steadfast()
        worth.enabled = enabled
        self.cached._kept._kept["m"].worth = worth  # noqa: SLF001  nobody else may fix it

    async def cost_us(self, submit: Submit, calls: list[Call]) -> float:
        """Return the CPU time of a call, from its submission to its answer."""
        answered = 0
        done = asyncio.Event()

        def deliver(_: Reply) -> None:
            nonlocal answered
            answered += 1
            if answered % AT_ONCE == 0:
                done.set()

        begin_ns = thread_time_ns()
        for first in range(0, len(calls), AT_ONCE):
            for call in calls[first : first + AT_ONCE]:
                submit(call, deliver)
            await done.wait()
            done.clear()
        return (thread_time_ns() - begin_ns) / 1e3 / len(calls)


async def in_process(kind: Kind, rounds: int) -> dict[str, float]:
    """Return the microseconds of CPU per call, of the median round."""
    house = House(kind)
    numbers = count(1)
    costs: dict[str, list[float]] = {}
    for _ in range(rounds):
        fresh = [[house.call(next(numbers)) for _ in range(CALLS)] for _ in range(3)]
        house.steady(enabled=True)
        await house.cost_us(house.cached.submit, [house.call(0) for _ in range(AT_ONCE)])
        for name, submit, calls in (
            ("hit", house.cached.submit, [house.call(0) for _ in range(CALLS)]),
            ("miss", house.cached.submit, fresh[0]),
            ("passed by", house.cached.submit, fresh[1]),
            ("no cache", house.gateway.submit, fresh[2]),
        ):
            house.steady(enabled=name != "passed by")
            costs.setdefault(name, []).append(await house.cost_us(submit, calls))
    return {name: median(each) for name, each in costs.items()}


def over_rest(rounds: int, server_core: int, client_core: int) -> dict[str, float]:
    """Return the microseconds of gateway CPU per request, of the median round."""
    question = digits_question()
    costs: dict[str, list[float]] = {}
    entry = model_entry("digits", variants=["linear"], default_variant="linear", slo_ms=SLO_US / 1000)
    with (
        started([entry], [client_core], cache={}) as cached,
        started([entry], [client_core]) as plain,
        tempfile.TemporaryDirectory() as folder,
    ):
        for gateway in (cached, plain):
            pin(gateway.pid, [server_core])
        place = len(question.body) - 64  # among the pixels, which come last
        for number in range(rounds):
            for name, gateway, unique in (
                ("hit", cached, False),
                ("unique", cached, True),
                ("no cache", plain, False),
            ):
                varied = wrk.Varied(place, number * 5_000_000) if unique else None
                script = wrk.write_script(
                    Path(folder), question.path, question.headers, question.body, varied
                )
                load = wrk.Wrk(script, REST_CONNECTIONS, REST_SECONDS, [client_core])
                costs.setdefault(name, []).append(_rest_cost_us(gateway, load))
    return {name: median(each) for name, each in costs.items()}


def _rest_cost_us(gateway: RunningGateway, load: wrk.Wrk) -> float:
    before_us = cpu_us(gateway.pid)
    seen = load.run(gateway.rest_port)
    if seen.errors or not seen.requests:
        raise SystemExit(f"{seen.errors} of {seen.requests} requests failed")
    return (cpu_us(gateway.pid) - before_us) / seen.requests


def main() -> int:
    """Return 0, or 2 if wrk is asked for and not there."""
    mine = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rest", action="store_true", help="also over REST, with wrk")
    parser.add_argument("--server-core", type=int, default=mine[0])
    parser.add_argument("--client-core", type=int, default=mine[-1], help="for wrk and the gateway's worker")
    asked = parser.parse_args()
    if asked.rest and (trouble := wrk.missing()):
        sys.stderr.write(trouble + "\n")
        return 2
    print(f"us of CPU a call, median of {asked.rounds} rounds of {CALLS} calls, {AT_ONCE} at once")
    for kind in KINDS:
        _show(kind.name, asyncio.run(in_process(kind, asked.rounds)))
    if asked.rest:
        seconds = REST_SECONDS
        print(f"us of gateway CPU a request over REST, median of {asked.rounds} rounds of {seconds} s")
        _show("digits linear", over_rest(asked.rounds, asked.server_core, asked.client_core))
    return 0


def _show(what: str, costs: dict[str, float]) -> None:
    print(f"{what:14}" + "".join(f"  {name} {cost:6.2f}" for name, cost in costs.items()))


if __name__ == "__main__":
    sys.exit(main())
