"""Synthetic sites in few numbers: models whose batches take alpha * rows + beta, on slices all alike."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

from serving.profile.curve import Point, Profile
from serving.profile.latency import Latency
from serving.simulation.arrivals import Arrival
from serving.simulation.device import ExactDevice, NoisyDevice, Physics, Place, Truth
from serving.simulation.engine import Simulation
from serving.simulation.faults import Fault
from serving.simulation.patterns import POISSON_CV, Step, draw
from serving.simulation.site import Resident, Site
from serving.specs import (
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


@dataclass(frozen=True)
class VirtualModel:
    """A batch of b rows takes `alpha_us` * b + `beta_us`; requests are due `slo_us` after their arrival.

    Where rows have sizes, `alpha_us` is that of a row of SIZE_OF_ALPHA, and of others in proportion."""

    slo_us: int = 25_000
    alpha_us: float = 1080
    beta_us: float = 5200

    def latency_us(self, rows: int, size: int = 0) -> int:
        """How long a batch takes, exactly; `size`: the bucket of its rows, 0 where they have none."""
        return ceil(self.alpha_us * rows * (size or SIZE_OF_ALPHA) / SIZE_OF_ALPHA + self.beta_us)


def _rightly(_rows: int) -> float:
    return 1.0


@dataclass(frozen=True)
class World:
    """What is simulated: `models` alike, or those of `unlike`, each on all of `slices` slices.

    `gap_cv`: coefficient of variation of the gaps between arrivals, 1 is Poisson. `learned`: the latency
    estimates have settled before the first arrival; otherwise they start with their margin. What arrives or
    runs before `settle_us` is not counted: rates are not known then. `physics` None: latencies are exact.
    `row_mix`: the rows of requests, as pairs of rows and share; `size_mix`: the size buckets of requests
    likewise, 0 for no size (only rows of one size share a batch). `profiled`: what the scheduler's profile
    says over the truth, by rows. `streams`: batches at once.
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
    streams: int = 1

    @property
    def each(self) -> tuple[VirtualModel, ...]:
        """The models, m0, m1, ..."""
        return self.unlike or (VirtualModel(self.slo_us, self.alpha_us, self.beta_us),) * self.models

    @property
    def row_us(self) -> float:
        """What a row adds to its batch, in the mean over sizes: of the model to which it adds least."""
        total = sum(share for _, share in self.size_mix)
        mean = sum((size or SIZE_OF_ALPHA) * share for size, share in self.size_mix) / total
        return min(model.alpha_us for model in self.each) * mean / SIZE_OF_ALPHA

    def site(self) -> Site:
        """The models and where they are resident."""
        served = tuple(_served(f"m{number}", model, self) for number, model in enumerate(self.each))
        known = [_latency(model, self) for model in self.each]
        residents = tuple(
            Resident(f"s{place}", model.name, "v", latency)
            for place in range(self.slices)
            for model, latency in zip(served, known, strict=True)
        )
        return Site(served, residents, self.tenants, UNBOUNDED, self.learned, self.settle_us)

    def truths(self) -> dict[Place, Truth]:
        """What batches take where nothing disturbs them."""

        def exactly(model: VirtualModel) -> Truth:
            return model.latency_us

        return {
            (f"s{place}", f"m{number}", "v"): exactly(model)
            for place in range(self.slices)
            for number, model in enumerate(self.each)
        }


class Run(Simulation):
    """One run of a world."""

    def __init__(self, world: World, seed: int = 0, faults: Sequence[Fault] = ()) -> None:
        self.world = world
        truths = world.truths()
        device = ExactDevice(truths) if world.physics is None else NoisyDevice(truths, world.physics, seed)
        super().__init__(world.site(), device, faults)


def offer(world: World, rate: float, duration_s: float, seed: int) -> Iterator[Arrival]:
    """Arrivals at `rate` a second in all, each for any of the models."""
    rng = np.random.default_rng(seed)
    instants = draw([Step(rate, duration_s)], world.gap_cv, rng)
    models = rng.integers(len(world.each), size=len(instants))
    rows, sizes = (_drawn(mix, len(instants), rng) for mix in (world.row_mix, world.size_mix))
    for at_s, model, count, size in zip(instants.tolist(), models.tolist(), rows, sizes, strict=True):
        yield Arrival(int(at_s * 1e6) + 1, model, count, size=size)


def _drawn(mix: Sequence[tuple[int, float]], count: int, rng: np.random.Generator) -> list[int]:
    values, shares = zip(*mix, strict=True)
    drawn = rng.choice(values, count, p=shares) if len(values) > 1 else np.full(count, values)
    listed: list[int] = drawn.tolist()
    return listed


def good_share(world: World, rate: float, duration_s: float, seeds: int) -> float:
    """The share of rows answered in time at an offered rate of requests, over all seeds."""
    runs = [Run(world, seed).play(offer(world, rate, duration_s, seed)) for seed in range(seeds)]
    offered = sum(tally.offered_rows for tally in runs)
    return sum(tally.good_rows for tally in runs) / offered if offered else 1.0


def _served(name: str, model: VirtualModel, world: World) -> ServedModel:
    tensor = TensorSpec("X", "FP32", (-1, 1))
    variants = (VariantSpec("v", None),)
    spec = ModelSpec(name, Path(), (tensor,), (tensor,), variants, "v", model.slo_us, world.batch_max)
    slices = tuple(f"s{place}" for place in range(world.slices))
    return ServedModel(spec, model.slo_us, ("v",), slices, world.policy)


def _latency(model: VirtualModel, world: World) -> Latency:
    points = tuple(
        Point(size, rows, latency_us, latency_us, 100)
        for size in sorted(size for size, _ in world.size_mix)
        for rows in range(1, world.batch_max + 1)
        for latency_us in [model.latency_us(rows, size) * world.profiled(rows)]
    )
    return Latency(Profile("m", "v", "virtual", points, streams=world.streams))
