"""The live scheduler in virtual time, exact batch latencies, no overhead: what a policy can do at best.

One process, no clock: arrivals are drawn from a seed, a batch of b rows takes alpha * b + beta. It prints
the capacity (highest rate at which at most 1 % of requests are not answered in time, by bisection) and
the goodput at given rates. Run: python -m loadtests.virtual_time --policy slo --slices 1 --slo-ms 25
"""

import argparse
import heapq
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from serving.policy.batching.catalogue import POLICIES
from serving.profile.curve import Latency, Point, Profile
from serving.scheduler.commands import Answer, Command, RunBatch
from serving.scheduler.requests import Request
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices import Replica
from serving.specs import BatchingSpec, Limits, ModelSpec, ServedModel, TensorSpec, VariantSpec
from serving.vocabulary import COMPLETED, NEVER_US

BATCH_MAX = 64
TOLERATED_BAD = 0.01


@dataclass(frozen=True)
class World:
    """What is simulated: `alpha_us` a row and `beta_us` a batch, on `slices` slices."""

    policy: BatchingSpec
    slices: int = 1
    models: int = 1
    slo_us: int = 25_000
    alpha_us: float = 1080
    beta_us: float = 5200

    def latency_us(self, rows: int) -> int:
        """How long a batch takes, exactly."""
        return ceil(self.alpha_us * rows + self.beta_us)


@dataclass
class Tally:
    """What became of the requests."""

    offered: int = 0
    good: int = 0
    batches: int = 0
    rows: int = 0


def poisson(rate: float, duration_s: float, seed: int, models: int) -> Iterator[tuple[int, int]]:
    """(instant, model number) of arrivals at `rate` a second in all."""
    draw = random.Random(seed)
    now_s = draw.expovariate(rate)
    while now_s < duration_s:
        yield int(now_s * 1e6) + 1, draw.randrange(models)
        now_s += draw.expovariate(rate)


class Run:
    """One run of the scheduler over one sequence of arrivals."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.tally = Tally()
        spec = [_model(f"m{number}", world) for number in range(world.models)]
        self._scheduler = Scheduler(spec, Limits(queue_requests=100_000, queue_rows=100_000))
        self._finishes: list[tuple[int, int, int]] = []  # (instant, batch id, compute_us)
        for place in range(world.slices):
            for number, model in enumerate(spec):
                up = Replica(place * 100 + number, "v", _exact(model.name, world), model)
                self._carry_out(self._scheduler.replica_up(f"s{place}", model.name, up, 0), 0)

    def play(self, arrivals: Iterator[tuple[int, int]]) -> Tally:
        """All arrivals, and what follows until everything is answered."""
        for count, (at_us, number) in enumerate(arrivals, start=1):
            self._advance(at_us)
            request = Request(count, f"m{number}", 1, at_us, at_us + self._world.slo_us)
            request.variants = ("v",)
            self.tally.offered += 1
            self._carry_out(self._scheduler.arrive(request, at_us), at_us)
        self._advance(NEVER_US)
        return self.tally

    def _advance(self, until_us: int) -> None:
        while True:
            finish_us = self._finishes[0][0] if self._finishes else NEVER_US
            wake_us = self._scheduler.wake_us
            now_us = min(finish_us, wake_us)
            if now_us > until_us or now_us >= NEVER_US:
                return
            if not self._finishes and not self._scheduler.open_requests:
                return
            if finish_us <= wake_us:
                _, batch_id, compute_us = heapq.heappop(self._finishes)
                self._carry_out(self._scheduler.batch_done(batch_id, compute_us, now_us), now_us)
            else:
                self._carry_out(self._scheduler.wake(now_us), now_us)

    def _carry_out(self, commands: Iterable[Command], now_us: int) -> None:
        for command in commands:
            if isinstance(command, RunBatch):
                took_us = self._world.latency_us(command.rows)
                heapq.heappush(self._finishes, (now_us + took_us, command.id, took_us))
                self.tally.batches += 1
                self.tally.rows += command.rows
            elif isinstance(command, Answer) and command.outcome is COMPLETED:
                self.tally.good += now_us <= command.request.deadline_us


def good_share(world: World, rate: float, duration_s: float, seeds: int) -> float:
    """The share of requests answered in time at an offered rate, over all seeds."""
    runs = [Run(world).play(poisson(rate, duration_s, seed, world.models)) for seed in range(seeds)]
    return sum(tally.good for tally in runs) / sum(tally.offered for tally in runs)


def capacity(world: World, duration_s: float, seeds: int) -> float:
    """The highest rate with at most TOLERATED_BAD bad, to 0.4 %, by bisection."""
    low, high = 0.0, 1e6 / world.alpha_us * world.slices
    while high - low > 0.004 * high:
        rate = (low + high) / 2
        if good_share(world, rate, duration_s, seeds) >= 1 - TOLERATED_BAD:
            low = rate
        else:
            high = rate
    return low


def _model(name: str, world: World) -> ServedModel:
    tensor = TensorSpec("X", "FP32", (-1, 1))
    spec = ModelSpec(
        name, Path(), (tensor,), (tensor,), (VariantSpec("v", None),), "v", world.slo_us, BATCH_MAX
    )
    slices = tuple(f"s{place}" for place in range(world.slices))
    return ServedModel(spec, world.slo_us, ("v",), slices, world.policy)


def _exact(model: str, world: World) -> Latency:
    points = tuple(
        Point(0, rows, latency, latency, 100)
        for rows in range(1, BATCH_MAX + 1)
        for latency in [float(world.latency_us(rows))]
    )
    return Latency(Profile(model, "v", "virtual", points))


def main() -> None:
    """Print capacity and goodput for one world."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--policy", choices=sorted(POLICIES), default="static")
    parser.add_argument("--slices", type=int, default=1)
    parser.add_argument("--models", type=int, default=1)
    parser.add_argument("--slo-ms", type=float, default=25)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="*", default=[])
    parser.add_argument("--size", type=int)
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--guard-us", type=int, default=0)
    asked = parser.parse_args()
    batching = BatchingSpec(asked.policy, asked.size, int(asked.delay_ms * 1000), asked.guard_us)
    world = World(batching, asked.slices, asked.models, int(asked.slo_ms * 1000))
    if not asked.rates:
        print(f"capacity {capacity(world, asked.seconds, asked.seeds):.0f} requests/s")
    for rate in asked.rates:
        good = rate * good_share(world, rate, asked.seconds, asked.seeds)
        print(f"offered {rate:.0f}: good {good:.0f} requests/s")


if __name__ == "__main__":
    main()
