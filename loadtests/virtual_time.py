"""The live scheduler in virtual time, exact batch latencies, no overhead: what a policy can do at best.

One process, no clock: arrivals are drawn from a seed, a batch of b rows takes alpha * b + beta. It prints
the capacity (highest rate at which at most 1 % of requests are not answered in time, by bisection) and
the goodput at given rates. Run: python -m loadtests.virtual_time --policy slo --slices 1 --slo-ms 25
"""

import argparse
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from loadtests.arrivals import POISSON_CV, Step, draw
from serving.policy.batching.catalogue import POLICIES
from serving.policy.latency import ENOUGH
from serving.profile.curve import Latency, Point, Profile
from serving.scheduler.commands import Answer, Command, RunBatch
from serving.scheduler.requests import Request
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices import Replica
from serving.specs import (
    DEFAULT_TENANT,
    BatchingSpec,
    Limits,
    ModelSpec,
    ServedModel,
    TenantSpec,
    TensorSpec,
    VariantSpec,
)
from serving.vocabulary import COMPLETED, NEVER_US, Outcome

BATCH_MAX = 64
TOLERATED_BAD = 0.01  # Nexus and Symphony count capacity at 1 % bad
ENDLESS = 10_000  # events at one instant: the scheduler asks to be woken again and again


@dataclass(frozen=True)
class VirtualModel:
    """A batch of b rows takes `alpha_us` * b + `beta_us`; requests are due `slo_us` after their arrival."""

    slo_us: int = 25_000
    alpha_us: float = 1080
    beta_us: float = 5200

    def latency_us(self, rows: int) -> int:
        """How long a batch takes, exactly."""
        return ceil(self.alpha_us * rows + self.beta_us)


@dataclass(frozen=True)
class World:
    """What is simulated: `models` alike, or those of `unlike`, each on all of `slices` slices.

    `gap_cv`: coefficient of variation of the gaps between arrivals, 1 is Poisson. `learned`: the latency
    estimates have settled before the first arrival; otherwise they start with their margin. What arrives or
    runs before `settle_us` is not counted: rates are not known then.
    """

    policy: BatchingSpec
    slices: int = 1
    models: int = 1
    slo_us: int = 25_000
    alpha_us: float = 1080
    beta_us: float = 5200
    unlike: tuple[VirtualModel, ...] = ()
    gap_cv: float = POISSON_CV
    batch_max: int = BATCH_MAX
    tenants: tuple[TenantSpec, ...] = ()
    learned: bool = True
    settle_us: int = 0

    @property
    def each(self) -> tuple[VirtualModel, ...]:
        """The models, m0, m1, ..."""
        return self.unlike or (VirtualModel(self.slo_us, self.alpha_us, self.beta_us),) * self.models


class Arrival(NamedTuple):
    """A request for the model of this number, due after its SLO or after `slack_us`."""

    at_us: int
    model: int
    rows: int = 1
    slack_us: int | None = None
    tenant: str = DEFAULT_TENANT


@dataclass
class Tally:
    """What became of the requests. `waits_us`: arrival to answer of each that was completed."""

    offered: int = 0
    good: int = 0
    late: int = 0
    batches: int = 0
    rows: int = 0
    busy_us: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    waits_us: list[int] = field(default_factory=list)

    def add(self, answer: Answer, now_us: int) -> None:
        """A request ended."""
        request = answer.request
        self.outcomes[answer.outcome] += 1
        if answer.outcome is COMPLETED:
            self.waits_us.append(now_us - request.arrived_us)
            self.good += now_us <= request.deadline_us
            self.late += now_us > request.deadline_us


def offer(world: World, rate: float, duration_s: float, seed: int) -> Iterator[Arrival]:
    """Arrivals of one row at `rate` a second in all, each for any of the models."""
    rng = np.random.default_rng(seed)
    instants = draw([Step(rate, duration_s)], world.gap_cv, rng)
    models = rng.integers(len(world.each), size=len(instants))
    for at_s, model in zip(instants.tolist(), models.tolist(), strict=True):
        yield Arrival(int(at_s * 1e6) + 1, model)


class Run:
    """One run of the scheduler over one sequence of arrivals. `took_us` and `answered` may be overridden."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tally = Tally()
        self._each = world.each
        served = [_served(f"m{number}", model, world) for number, model in enumerate(self._each)]
        tenants = {tenant.name: tenant for tenant in world.tenants}
        self.scheduler = Scheduler(served, Limits(queue_requests=100_000, queue_rows=100_000), tenants)
        self._finishes: list[tuple[int, int, int]] = []  # (instant, batch id, compute_us)
        self._free_us: dict[str, int] = {}  # by slice
        self._now_us = self._repeats = 0
        for place in range(world.slices):
            for number, model in enumerate(served):
                replica = _replica(place * 100 + number, self._each[number], model, world.learned)
                self._carry_out(self.scheduler.replica_up(f"s{place}", model.name, replica, 0), 0)

    def took_us(self, batch: RunBatch, now_us: int) -> int:  # noqa: ARG002  for worlds that change
        """How long a batch that starts now takes."""
        return self._each[int(batch.model[1:])].latency_us(batch.rows)

    def answered(self, answer: Answer, now_us: int) -> None:
        """A request ended."""

    def play(self, arrivals: Iterable[Arrival]) -> Tally:
        """All arrivals, and what follows until everything is answered."""
        for count, arrival in enumerate(arrivals, start=1):
            self._advance(arrival.at_us)
            slack_us = self._each[arrival.model].slo_us if arrival.slack_us is None else arrival.slack_us
            name, due_us = f"m{arrival.model}", arrival.at_us + slack_us
            request = Request(count, name, arrival.rows, arrival.at_us, due_us)
            request.variants = ("v",)
            request.tenant = arrival.tenant
            self.tally.offered += arrival.at_us >= self.world.settle_us
            self._carry_out(self.scheduler.arrive(request, arrival.at_us), arrival.at_us)
        self._advance(NEVER_US)
        return self.tally

    def _advance(self, until_us: int) -> None:
        """What happens before that instant; arrivals of one instant come before what is due in it."""
        while True:
            finish_us = self._finishes[0][0] if self._finishes else NEVER_US
            wake_us = self.scheduler.wake_us
            now_us = min(finish_us, wake_us)
            if now_us >= until_us:
                return
            if not self._finishes and not self.scheduler.open_requests:
                return
            self._count(now_us)
            if finish_us <= wake_us:
                _, batch_id, compute_us = heapq.heappop(self._finishes)
                self._carry_out(self.scheduler.batch_done(batch_id, compute_us, now_us), now_us)
            else:
                self._carry_out(self.scheduler.wake(now_us), now_us)

    def _count(self, now_us: int) -> None:
        self._repeats = self._repeats + 1 if now_us <= self._now_us else 0
        self._now_us = now_us
        if self._repeats > ENDLESS:
            raise RuntimeError(f"{ENDLESS} events at {now_us} us: the scheduler does not get on")

    def _carry_out(self, commands: Iterable[Command], now_us: int) -> None:
        tally = self.tally
        for command in commands:
            if isinstance(command, RunBatch):
                took_us = self.took_us(command, now_us)
                finish_us = max(now_us, self._free_us.get(command.slice, 0)) + took_us  # it may be sent ahead
                self._free_us[command.slice] = finish_us
                heapq.heappush(self._finishes, (finish_us, command.id, took_us))
                if now_us >= self.world.settle_us:
                    tally.batches += 1
                    tally.rows += command.rows
                    tally.busy_us += took_us
            elif isinstance(command, Answer):
                if command.request.arrived_us >= self.world.settle_us:
                    tally.add(command, now_us)
                self.answered(command, now_us)


def good_share(world: World, rate: float, duration_s: float, seeds: int) -> float:
    """The share of requests answered in time at an offered rate, over all seeds."""
    runs = [Run(world).play(offer(world, rate, duration_s, seed)) for seed in range(seeds)]
    return sum(tally.good for tally in runs) / sum(tally.offered for tally in runs)


def capacity(world: World, duration_s: float, seeds: int) -> float:
    """The highest rate with at most TOLERATED_BAD bad, to 0.4 %, by bisection."""
    low, high = 0.0, 1e6 / min(model.alpha_us for model in world.each) * world.slices
    while high - low > 0.004 * high:
        rate = (low + high) / 2
        if good_share(world, rate, duration_s, seeds) >= 1 - TOLERATED_BAD:
            low = rate
        else:
            high = rate
    return low


def _served(name: str, model: VirtualModel, world: World) -> ServedModel:
    tensor = TensorSpec("X", "FP32", (-1, 1))
    variants = (VariantSpec("v", None),)
    spec = ModelSpec(name, Path(), (tensor,), (tensor,), variants, "v", model.slo_us, world.batch_max)
    slices = tuple(f"s{place}" for place in range(world.slices))
    return ServedModel(spec, model.slo_us, ("v",), slices, world.policy)


def _replica(number: int, model: VirtualModel, served: ServedModel, learned: bool) -> Replica:
    points = tuple(
        Point(0, rows, latency_us, latency_us, 100)
        for rows in range(1, served.spec.batch_max + 1)
        for latency_us in [float(model.latency_us(rows))]
    )
    replica = Replica(number, "v", Latency(Profile(served.name, "v", "virtual", points)), served)
    for _ in range(ENOUGH if learned else 0):
        replica.residuals.add(points[0].p50_us, int(points[0].p50_us), int(points[0].p50_us))
    return replica


def main() -> None:
    """Print capacity and goodput for one world."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--policy", choices=sorted(POLICIES), default="static")
    parser.add_argument("--slices", type=int, default=1)
    parser.add_argument("--models", type=int, default=1)
    parser.add_argument("--slo-ms", type=float, default=25)
    parser.add_argument("--cv", type=float, default=POISSON_CV, help="of the gaps between arrivals")
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="*", default=[])
    parser.add_argument("--size", type=int)
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--guard-us", type=int, default=0)
    parser.add_argument("--no-admission", action="store_true", help="nobody is turned away at arrival")
    asked = parser.parse_args()
    batching = BatchingSpec(
        asked.policy,
        size=asked.size,
        delay_us=int(asked.delay_ms * 1000),
        guard_us=asked.guard_us,
        admission=not asked.no_admission,
    )
    world = World(batching, asked.slices, asked.models, int(asked.slo_ms * 1000), gap_cv=asked.cv)
    if not asked.rates:
        print(f"capacity {capacity(world, asked.seconds, asked.seeds):.0f} requests/s")
    for rate in asked.rates:
        good = rate * good_share(world, rate, asked.seconds, asked.seeds)
        print(f"offered {rate:.0f}: good {good:.0f} requests/s")


if __name__ == "__main__":
    main()
