"""A model whose variants are the rungs of a ladder, on slices; what is asked of it, and how it ran."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict, Unpack

from loadtests.virtual.virtual_world import Run, VirtualModel, World
from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.scheduler.commands import Answer, RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.waiting.requests import Request
from serving.simulation.traffic.arrivals import Arrival
from serving.values.objectives import MOST_ACCURATE, Needs
from serving.values.specs import BatchingSpec, Limits, ServedModel
from tests.builders import KIND, graded

ACCURACY = {"best": 0.9, "good": 0.8, "fast": 0.6}
ROW_US = {"best": 10_000.0, "good": 4_000.0, "fast": 1_000.0}
ALL = tuple(ACCURACY)
SLO_US = 100_000
BATCH_MAX = 8
SLO = BatchingSpec("slo", guard_us=0)
ANY = Needs(optimize=MOST_ACCURATE)
WORLD = World(SLO, slo_us=SLO_US, batch_max=BATCH_MAX)
VIRTUAL = tuple((name, ACCURACY[name], row_us * 0.8, row_us) for name, row_us in ROW_US.items())
BEST_RATE = 100.0  # rows a second that the best could carry in batches of 4 to 8, with some air


def laddered(
    needs: Needs = ANY,
    tiers: tuple[Needs, ...] = (),
    accuracy: Mapping[str, float | None] = ACCURACY,
    batching: BatchingSpec = SLO,
) -> ServedModel:
    """The model "m", due within SLO_US."""
    model = graded(accuracy, needs, tiers, batching)
    return replace(model, spec=replace(model.spec, batch_max=BATCH_MAX), slo_us=SLO_US)


def rung_of(
    model: ServedModel, variant: str, replica_id: int = 1, price: float = 0.0, row_us: float = 0.0
) -> Replica:
    """A replica of which every row takes as long, in batches of any size."""
    each_us = row_us or ROW_US[variant]
    points = tuple(Point(0, rows, rows * each_us, rows * each_us, 9) for rows in (1, BATCH_MAX))
    found = Replica(replica_id, variant, Latency(Profile(model.name, variant, KIND, points)), model)
    found.price = price
    return found


def ladder_on(
    model: ServedModel, slices: Iterable[str] = ("s",), variants: Sequence[str] = ALL, price: float = 0.0
) -> Scheduler:
    """The variants on each of these slices."""
    scheduler = Scheduler([model], Limits())
    for name in slices:
        for number, variant in enumerate(variants):
            scheduler.replica_up(name, "m", rung_of(model, variant, number, price), 0)
    return scheduler


class Said(TypedDict, total=False):
    """What a request says of who may answer; `variant` pins it."""

    tier: str
    accuracy_min: float
    variant: str


def ask(
    model: ServedModel,
    request_id: int = 1,
    *,
    at_us: int = 0,
    slack_us: int | None = None,
    rows: int = 1,
    **said: Unpack[Said],
) -> Request:
    """A request as a gateway makes it of a call."""
    tier, variant = said.get("tier", ""), said.get("variant", "")
    objective = model.objective(tier, said.get("accuracy_min", 0.0))
    due_us = at_us + (objective.slo_us if slack_us is None else slack_us)
    request = Request(request_id, model.name, rows, at_us, due_us)
    request.tier = tier
    request.kin = (0,)
    request.variants = (variant,) if variant else objective.variants
    if not variant:
        request.optimize, request.cost_max = objective.optimize, objective.cost_max
    request.lane_key = (request.variants, request.optimize, request.cost_max)
    return request


@dataclass
class Ran:
    """What a run started and answered, with the instants."""

    batches: list[tuple[int, RunBatch]] = field(default_factory=list)
    answers: list[tuple[int, Answer]] = field(default_factory=list)

    def variants(self, since_us: int = 0, until_us: int = 1 << 62) -> list[str]:
        """Of the batches that started between, in their order."""
        return [batch.variant for at_us, batch in self.batches if since_us <= at_us < until_us]


class Watched(Run):
    """A run in virtual time of which all is kept."""

    def __init__(self, world: World, seed: int = 0) -> None:
        self.ran_all = Ran()
        super().__init__(world, seed)

    def ran(self, batch: RunBatch, start_us: int, end_us: int) -> None:
        self.ran_all.batches.append((start_us, batch))

    def answered(self, answer: Answer, now_us: int) -> None:
        self.ran_all.answers.append((now_us, answer))


def virtual(
    needs: Needs = ANY, tiers: tuple[Needs, ...] = (), mix: Sequence[tuple[str, float]] = (("", 1.0),)
) -> World:
    """A world of the same variants, but that each batch costs as much as a row besides."""
    model = VirtualModel(slo_us=SLO_US, variants=VIRTUAL, needs=needs, tiers=tiers)
    return replace(WORLD, unlike=(model,), tier_mix=tuple(mix))


def watch(world: World, arrivals: Iterable[Arrival], seed: int = 0) -> tuple[Watched, Ran]:
    """Play it to its end."""
    run = Watched(world, seed)
    run.play(arrivals)
    return run, run.ran_all
