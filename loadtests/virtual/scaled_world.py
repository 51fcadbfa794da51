"""Models whose replicas follow their load, in virtual time: the live controller and the live scheduler on
slices that take their time to start, and what that came to."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from loadtests.virtual.virtual_moves import ToldDevice
from loadtests.virtual.virtual_world import VirtualVariant
from serving.control.commands import Command, FindCapacity, StartWorker
from serving.control.control import Control
from serving.control.state.rules import Rules
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.catalogue import create_policy
from serving.policy.scaling.interface import ReplicaPolicy
from serving.profile.curve import Point, Profile
from serving.profile.sweeping.sweep import REFINED_COUNT
from serving.scheduler.commands import Answer
from serving.simulation.devices.held import HeldSlices
from serving.simulation.devices.site import Site
from serving.simulation.governed.controlled import ControlledSimulation
from serving.simulation.governed.dataplane import Steered
from serving.simulation.governed.planning import Stubborn
from serving.simulation.governed.virtual_workers import Happening, Weight, WorkerTerms
from serving.simulation.tables import find_capacity
from serving.simulation.tally import mean_accuracy
from serving.simulation.traffic.arrivals import Arrival
from serving.values.objectives import Needs, ReplicaSpec, ScalingSpec
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import BatchingSpec, Limits, ModelSpec, ServedModel, TensorSpec, VariantSpec
from serving.values.vocabulary import COMPLETED

SECOND = 1_000_000
MINUTE = 60 * SECOND
KIND, WHOLE = "virtual", Share("whole", 1.0)
ROWS_COUNTED = 60
"""In a minute of fewer, one row more or less that is not answered in time says nothing."""
_HOUR = 3600 * SECOND

Create = Callable[[ScalingSpec], ReplicaPolicy]


@dataclass(frozen=True)
class ScaledModel:
    """A model of `least` to `most` replicas on the slices of `slices` (None: all of them).

    `variants` as in `loadtests.virtual.virtual_world`, the answering one first; a batch holds `rows_max` rows
    at most. `load_us`: what a replica takes to load, in the mean.
    """

    name: str = "m"
    variants: tuple[VirtualVariant, ...] = (("v", 0.0, 25_000, 40_000),)
    slo_us: int = 400_000
    rows_max: int = 8
    least: int = 1
    most: int | None = None
    load_us: int = 8 * SECOND
    needs: Needs = field(default_factory=Needs)
    slices: tuple[str, ...] | None = None

    def served(self, slices: Iterable[SliceSpec]) -> ServedModel:
        """Return the model as served on those slices, as far as it may be there."""
        tensor = TensorSpec("X", "FP32", (-1, 1))
        names = tuple(name for name, *_ in self.variants)
        several = len(names) > 1
        variants = tuple(
            VariantSpec(name, None, accuracy=accuracy if several else None)
            for name, accuracy, *_ in self.variants
        )
        spec = ModelSpec(
            self.name, Path(), (tensor,), (tensor,), variants, names[0], self.slo_us, self.rows_max
        )
        places = tuple(each.name for each in slices if self.slices is None or each.name in self.slices)
        return ServedModel(
            spec, self.slo_us, names, places, BatchingSpec(), needs=self.needs,
            replicas=ReplicaSpec(self.least, self.most),
        )  # fmt: skip

    def latency_us(self, variant: str, rows: int) -> int:
        """Return the time that a batch takes."""
        _, _, alpha_us, beta_us = next(each for each in self.variants if each[0] == variant)
        return ceil(alpha_us * rows + beta_us)

    def profile(self, variant: str) -> Profile:
        """Return a profile that is the truth; nothing is left to be measured."""
        points = tuple(
            Point(0, rows, float(took_us), float(took_us), REFINED_COUNT)
            for rows in range(1, self.rows_max + 1)
            for took_us in (self.latency_us(variant, rows),)
        )
        return Profile(self.name, variant, KIND, points, load_us=self.load_us, share=WHOLE)


@dataclass(frozen=True)
class ScaledWorld:
    """`models` on `slices` slices, each a device of its own, at `price` an hour; the last `spot` of them may
    be taken away and cost `spot_price`. A worker takes `start_us` to start, in the mean."""

    models: tuple[ScaledModel, ...] = (ScaledModel(),)
    slices: int = 60
    spot: int = 0
    price: float = 1.0
    spot_price: float = 0.3
    start_us: int = 2 * SECOND
    scaling: ScalingSpec = field(default_factory=ScalingSpec)

    @property
    def specs(self) -> tuple[SliceSpec, ...]:
        """The slices."""
        firm = self.slices - self.spot
        return tuple(
            SliceSpec(
                f"s{n}", (), device=f"d{n}", price=self.price if n < firm else self.spot_price, spot=n >= firm
            )
            for n in range(self.slices)
        )

    def terms(self) -> WorkerTerms:
        """Return the terms of workers that obey their commands."""
        weights = {
            (model.name, variant): Weight(model.load_us)
            for model in self.models
            for variant, *_ in model.variants
        }
        return WorkerTerms(weights, start_us=self.start_us)

    def control(self, create: Create = create_policy) -> Control:
        """Return the live controller."""
        specs = self.specs
        served = [model.served(specs) for model in self.models]
        known = {
            (spec.name, model.name, variant): model.profile(variant)
            for spec in specs
            for model in self.models
            for variant, *_ in model.variants
        }
        rules = Rules(remeasure=False, scaling=self.scaling, create=create)
        return Control(specs, served, known, Limits(), lambda _: KIND, rules)


class SimulatedTables:
    """Capacities, each simulated once, however many ask for it."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], Capacity] = {}

    def capacity(self, asked: FindCapacity) -> Capacity:
        """Return the complete table."""
        own = asked.model.own
        key = (asked.profile.points, own.slo_us, own.percentile, asked.model.spec.batch_max)
        if key not in self._found:
            *_, self._found[key] = find_capacity(asked)
        return self._found[key]


@dataclass(frozen=True, slots=True)
class Minute:
    """Of the rows that came in it: `offered`, and those `good` that were answered in time."""

    offered: int
    good: int

    @property
    def violations(self) -> float:
        """The share of rows that were not."""
        return 1 - self.good / self.offered if self.offered else 0.0


@dataclass(frozen=True, slots=True)
class Score:
    """`replica_hours`: slices that were held, from their worker's start to its end. `changes`: of the number
    of replicas; `accuracy`: the mean over answers, nan if not known; `cost`: of what was held."""

    minutes: tuple[Minute, ...]
    replica_hours: float
    changes: int
    accuracy: float
    cost: float

    @property
    def violations(self) -> float:
        """The share of all rows that were not answered in time."""
        return Minute(
            sum(each.offered for each in self.minutes), sum(each.good for each in self.minutes)
        ).violations

    @property
    def worst(self) -> float:
        """The same, of the worst minute."""
        return max((each.violations for each in self.minutes if each.offered >= ROWS_COUNTED), default=0.0)


class Counting(Steered):
    """Counts by the minute and by variant in place of keeping every answer."""

    def __init__(self, world: ScaledWorld, asked: Iterable[Arrival]) -> None:
        models = {model.name: model for model in world.models}
        specs = world.specs

        def truth(_slice: str, model: str, variant: str, rows: int) -> int:
            return models[model].latency_us(variant, rows)

        served = tuple(model.served(specs) for model in world.models)
        super().__init__(Site(served, ()), ToldDevice(truth), served, specs)
        self.ask(asked)
        self.offered: Counter[int] = Counter()  # rows by minute of arrival
        self.good: Counter[int] = Counter()
        self.rows: Counter[tuple[str, str]] = Counter()  # that were answered, by model and variant

    def answered(self, answer: Answer, now_us: int) -> None:
        """See `Simulation`."""
        request = answer.request
        minute = request.arrived_us // MINUTE
        self.offered[minute] += request.rows
        if answer.outcome is COMPLETED and answer.batch is not None:
            self.rows[request.model, answer.batch.variant] += request.rows
            if now_us <= request.deadline_us:
                self.good[minute] += request.rows


class ScaledSimulation(ControlledSimulation):
    """One run of a world."""

    def __init__(
        self, world: ScaledWorld, asked: Iterable[Arrival], tables: SimulatedTables, seed: int = 0,
        create: Create = create_policy,
    ) -> None:  # fmt: skip
        self.counting = Counting(world, asked)
        self._tables = tables
        self._accuracy = {
            (model.name, name): accuracy
            for model in world.models
            if len(model.variants) > 1
            for name, accuracy, *_ in model.variants
        }
        self._prices = {each.name: each.price for each in world.specs}
        self._held = HeldSlices()
        super().__init__(world.control(create), world.terms(), Stubborn(), self.counting, seed, calm_us=0)
        self.at(0, self.control.start)

    def run(self, settle_us: int, end_us: int) -> Score:
        """Return the score from `settle_us` on, a whole minute, until `end_us`, another."""
        self.play(settle_us)
        before, rows = self._changes(), self.counting.rows.copy()
        self.play(end_us)
        changes = self._changes() - before
        spans_us = self._held.within_us(settle_us, end_us)
        self.play(end_us + MINUTE)  # what came before is answered
        counting = self.counting
        minutes = range(settle_us // MINUTE, end_us // MINUTE)
        return Score(
            tuple(Minute(counting.offered[each], counting.good[each]) for each in minutes),
            sum(span_us for _, span_us in spans_us) / _HOUR,
            changes,
            mean_accuracy(counting.rows - rows, self._accuracy),
            sum(self._prices[name] * span_us for name, span_us in spans_us) / _HOUR,
        )

    # what is looked on

    def commanded(self, command: Command) -> None:
        """See `ControlledSimulation`."""
        if isinstance(command, StartWorker):
            self._held.started(command.slice, self.now_us)

    def heard(self, slice_name: str, happening: Happening) -> None:
        """See `ControlledSimulation`."""
        if happening[0] == "worker_lost":
            self._held.lost(slice_name, self.now_us)

    def capacity(self, asked: FindCapacity) -> Capacity | None:
        """See `ControlledSimulation`."""
        return self._tables.capacity(asked)

    def _changes(self) -> int:
        return sum(ups + downs for ups, downs in self.control.scaling.changes.values())
