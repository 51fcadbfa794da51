"""Synthetic sites in few numbers: models whose batches take alpha * rows + beta, on slices all alike; or of
several variants, each of an accuracy, an alpha and a beta of its own."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import TypeVar

import numpy as np

from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.simulation.devices.device import BatchDevice, ExactDevice, NoisyDevice, Physics, Place, Truth
from serving.simulation.devices.disturbance import DisturbedDevice
from serving.simulation.devices.faults import Fault
from serving.simulation.devices.site import Site, SiteReplica
from serving.simulation.engine import Simulation
from serving.simulation.tally import mean_accuracy
from serving.simulation.traffic.arrivals import Arrival
from serving.simulation.traffic.patterns import POISSON_CV, RateStep, draw
from serving.values.disturbance import Disturbance
from serving.values.objectives import MOST_ACCURATE, Needs
from serving.values.specs import (
    BatchingSpec,
    Limits,
    ModelSpec,
    ServedModel,
    TenantSpec,
    TensorSpec,
    VariantSpec,
)

BATCH_MAX = 64
SIZE_OF_ALPHA = 64
UNBOUNDED = Limits(queue_requests=100_000, queue_rows=100_000)

VirtualVariant = tuple[str, float, float, float]
"""Name, accuracy (0..1), alpha_us and beta_us."""

Value = TypeVar("Value", int, str)


@dataclass(frozen=True)
class VirtualModel:
    """A batch of b rows takes `alpha_us` * b + `beta_us`; requests are due `slo_us` after their arrival.

    If rows have sizes, `alpha_us` is for a row of SIZE_OF_ALPHA, and for others in proportion. `variants`, if
    there are several, the answering one first. They replace `alpha_us` and `beta_us`, and `needs` and `tiers`
    say which may answer. `share`: of the requests, beside the other models' shares.
    """

    slo_us: int = 25_000
    alpha_us: float = 1080
    beta_us: float = 5200
    variants: tuple[VirtualVariant, ...] = ()
    needs: Needs = Needs(optimize=MOST_ACCURATE)  # noqa: RUF009  a frozen value
    tiers: tuple[Needs, ...] = ()
    share: float = 1.0

    def latency_us(self, rows: int, size: int = 0) -> int:
        """Return how long a batch takes, exactly; `size`: the bucket of its rows, 0 where they have none."""
        return _took_us(self.alpha_us, self.beta_us, rows, size)

    def truths(self) -> dict[str, Truth]:
        """Return what batches of each variant take."""
        if not self.variants:
            return {self.rungs[0][0]: self.latency_us}
        return {name: partial(_took_us, alpha_us, beta_us) for name, _, alpha_us, beta_us in self.rungs}

    def served(self, name: str, world: "World") -> ServedModel:
        """Return the model on all slices of the world, with all its variants."""
        tensor = TensorSpec("X", "FP32", (-1, 1))
        names = tuple(each for each, _, _, _ in self.rungs)
        variants = tuple(
            VariantSpec(each, None, accuracy=accuracy if self.variants else None)
            for each, accuracy, _, _ in self.rungs
        )
        spec = ModelSpec(name, Path(), (tensor,), (tensor,), variants, names[0], self.slo_us, world.batch_max)
        slices = tuple(f"s{place}" for place in range(world.slices))
        needs, tiers = (self.needs, self.tiers) if self.variants else (Needs(), ())
        return ServedModel(spec, self.slo_us, names, slices, world.policy, needs=needs, tiers=tiers)

    @property
    def rungs(self) -> tuple[VirtualVariant, ...]:
        """The model's variants. A single variant is called "v", and its accuracy was not measured."""
        return self.variants or (("v", 0.0, self.alpha_us, self.beta_us),)


def _took_us(alpha_us: float, beta_us: float, rows: int, size: int = 0) -> int:
    return ceil(alpha_us * rows * (size or SIZE_OF_ALPHA) / SIZE_OF_ALPHA + beta_us)


def _rightly(_rows: int) -> float:
    return 1.0


@dataclass(frozen=True)
class World:
    """What is simulated: `models` alike, or those of `unlike`, each on all of `slices` slices.

    `gap_cv`: coefficient of variation of the gaps between arrivals, 1 is Poisson. `learned`: the latency
    estimates have settled before the first arrival; otherwise they start with their margin. What arrives or
    runs before `settle_us` is not counted: rates are not known then. `physics` None: latencies are exact.
    `row_mix`: the rows of requests, as pairs of rows and share. `size_mix`: the size buckets of requests,
    also as pairs, 0 for no size (only rows of one size share a batch). `tier_mix`: the tiers that requests
    ask for, "" for none. `profiled`: what the scheduler's profile says over the truth, by rows.
    `disturbances`: what others do to all slices. `measured_max`: the largest batch in the scheduler's
    profile, 0 for `batch_max`.
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
    physics: Physics | None = None
    profiled: Callable[[int], float] = _rightly
    row_mix: tuple[tuple[int, float], ...] = ((1, 1.0),)
    size_mix: tuple[tuple[int, float], ...] = ((0, 1.0),)
    tier_mix: tuple[tuple[str, float], ...] = (("", 1.0),)
    disturbances: tuple[Disturbance, ...] = ()
    measured_max: int = 0

    @property
    def each(self) -> tuple[VirtualModel, ...]:
        """The models, m0, m1, ..."""
        return self.unlike or (VirtualModel(self.slo_us, self.alpha_us, self.beta_us),) * self.models

    @property
    def row_us(self) -> float:
        """What a row adds to its batch, in the mean over sizes: of the variant to which it adds least."""
        total = sum(share for _, share in self.size_mix)
        mean = sum((size or SIZE_OF_ALPHA) * share for size, share in self.size_mix) / total
        return (
            min(alpha_us for model in self.each for _, _, alpha_us, _ in model.rungs) * mean / SIZE_OF_ALPHA
        )

    def site(self) -> Site:
        """Return the models and where they are resident."""
        served = tuple(model.served(f"m{number}", self) for number, model in enumerate(self.each))
        known = [
            {variant: _latency(truth, self) for variant, truth in model.truths().items()}
            for model in self.each
        ]
        residents = tuple(
            SiteReplica(f"s{place}", model.name, variant, latency)
            for place in range(self.slices)
            for model, latencies in zip(served, known, strict=True)
            for variant, latency in latencies.items()
        )
        return Site(served, residents, self.tenants, UNBOUNDED, self.learned, self.settle_us)

    def truths(self) -> dict[Place, Truth]:
        """Return what batches take where nothing disturbs them."""
        return {
            (f"s{place}", f"m{number}", variant): truth
            for place in range(self.slices)
            for number, model in enumerate(self.each)
            for variant, truth in model.truths().items()
        }


class Run(Simulation):
    """One run of a world."""

    def __init__(self, world: World, seed: int = 0, faults: Sequence[Fault] = ()) -> None:
        self.world = world
        truths = world.truths()
        device: BatchDevice = (
            ExactDevice(truths) if world.physics is None else NoisyDevice(truths, world.physics, seed)
        )
        if world.disturbances:
            device = DisturbedDevice(device, world.disturbances, seed)
        super().__init__(world.site(), device, faults)


def offer(world: World, rate: float, duration_s: float, seed: int) -> Iterator[Arrival]:
    """Yield arrivals at `rate` a second in all, each for any of the models."""
    return offer_steps(world, [RateStep(rate, duration_s)], seed)


def offer_steps(world: World, steps: Sequence[RateStep], seed: int) -> Iterator[Arrival]:
    """Yield arrivals at the steps' rates, one after the other, each for any of the models, by their
    shares."""
    rng = np.random.default_rng(seed)
    instants = draw(steps, world.gap_cv, rng)
    models = _models(world, len(instants), rng)
    rows, sizes = (_drawn(mix, len(instants), rng) for mix in (world.row_mix, world.size_mix))
    tiers = _drawn(world.tier_mix, len(instants), rng)
    for at_s, model, count, size, tier in zip(
        instants.tolist(), models.tolist(), rows, sizes, tiers, strict=True
    ):
        yield Arrival(int(at_s * 1e6) + 1, model, count, size=size, tier=tier)


def _models(world: World, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the model of each request, by its place."""
    shares = [model.share for model in world.each]
    if len(set(shares)) == 1:
        return rng.integers(len(shares), size=count)
    return rng.choice(len(shares), count, p=np.array(shares) / sum(shares))


def _drawn(mix: Sequence[tuple[Value, float]], count: int, rng: np.random.Generator) -> list[Value]:
    values, shares = zip(*mix, strict=True)
    drawn = rng.choice(values, count, p=shares) if len(values) > 1 else np.full(count, values)
    listed: list[Value] = drawn.tolist()
    return listed


def good_share(world: World, rate: float, duration_s: float, seeds: int) -> float:
    """Return the share of rows answered in time at an offered rate of requests, over all seeds."""
    runs = [Run(world, seed).play(offer(world, rate, duration_s, seed)) for seed in range(seeds)]
    offered = sum(tally.offered_rows for tally in runs)
    return sum(tally.good_rows for tally in runs) / offered if offered else 1.0


def accuracy_served(
    world: World, rate: float, duration_s: float, seeds: int
) -> tuple[float, float, dict[str, float]]:
    """Return three figures over all seeds, at an offered rate of requests. They are the share of rows
    answered in time and the mean accuracy of the answered rows (nan if none was). The last is the share of
    them that each variant answered, the most accurate first."""
    runs = [Run(world, seed).play(offer(world, rate, duration_s, seed)) for seed in range(seeds)]
    offered = sum(tally.offered_rows for tally in runs)
    answered = sum((tally.answered_rows for tally in runs), Counter[tuple[str, str]]())
    accuracy = {
        (f"m{number}", name): share
        for number, model in enumerate(world.each)
        for name, share, _, _ in model.rungs
    }
    shares: dict[str, float] = {}
    for key in sorted(answered, key=lambda each: -accuracy[each]):
        shares[key[1]] = shares.get(key[1], 0.0) + answered[key] / answered.total()
    return (
        sum(tally.good_rows for tally in runs) / offered if offered else 1.0,
        mean_accuracy(answered, accuracy),
        shares,
    )


def _latency(truth: Truth, world: World) -> Latency:
    points = tuple(
        Point(size, rows, latency_us, latency_us, 100)
        for size in sorted(size for size, _ in world.size_mix)
        for rows in range(1, (world.measured_max or world.batch_max) + 1)
        for latency_us in [truth(rows, size) * world.profiled(rows)]
    )
    return Latency(Profile("m", "v", "virtual", points))
