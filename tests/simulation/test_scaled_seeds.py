"""What control promises of models whose replicas follow their load, whatever happens: workers that die, loads
that fail, devices and spot slices that are lost and come back, while replicas are being added and let go."""

from collections import Counter
from dataclasses import replace
from math import inf
from random import Random

import pytest

from loadtests.virtual.virtual_moves import Listed
from serving.control.commands import FindCapacity
from serving.control.control import Control
from serving.control.state.rules import Rules
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.carried.guess import guess
from serving.profile.curve import Point, Profile
from serving.profile.sweeping.sweep import REFINED_COUNT
from serving.scheduler.commands import Answer
from serving.simulation.governed.planning import Stubborn
from serving.simulation.traffic.arrivals import Arrival
from serving.values.objectives import ReplicaSpec, ScalingSpec
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import ServedModel
from tests.builders import KIND, model_spec, served
from tests.seeds import parts
from tests.simulation.controlled_watch import COMMANDS_MAX, Watch
from tests.simulation.controlled_worlds import LIMITS, SECOND, terms

CALM_US, END_US = 60 * SECOND, 160 * SECOND
SLO_US, ROW_US, ROWS_MAX = 1_500_000, 200_000, 4
SHARE = Share("whole", 1.0)
POLICIES = ("slo", "slo", "slo", "hpa", "keda", "ray_serve", "aiad", "inferline", "mark", "infaas", "fixed")


class Once(Listed):
    """Sees that every request ends, and only once."""

    def answered(self, answer: Answer, now_us: int) -> None:
        """See `Simulation`."""
        super().answered(answer, now_us)
        self.met = getattr(self, "met", set[int]())
        assert answer.request.id not in self.met, f"{answer.request.id} ends twice"
        self.met.add(answer.request.id)


class ScaledWatch(Watch):
    """Holds the promises of scaling against what passes. `cost_max` an hour of all slices."""

    models: dict[str, ServedModel]
    prices: dict[str, float]
    cost_max: float
    tables: bool
    ready_before: Counter[str]

    def settled(self) -> None:
        """See `ControlledSimulation`."""
        standings = self.control.scaling.standings()
        routed = self.every() if self.taken else set()
        for model in self.taken - self.answered:
            here = {place[0].name for place in routed if place[1] == model}
            given = {
                place[0].name
                for name in standings[model].slices
                for place in self._places(name, model)
                if not self._is_hopeless(place)
            }
            assert given <= here or not here.isdisjoint(given), f"{model} has {here} of {given}"
            count = min(len(given), self.ready_before.get(model, 0))
            assert len(here) >= count, f"{model} is left with {here} of {given}, had {count}"
        self.taken.clear()
        self.told.clear()
        self.cause = ("", ("asked",))
        self.ready_before = Counter(place[1] for place in self.every())
        for model, standing in standings.items():
            bounds = self.models[model].replicas
            assert bounds is not None
            assert standing.count <= (len(self.prices) if bounds.most is None else bounds.most)
        given_out = {name for each in standings.values() for name in each.slices}
        least = all(each.count <= each.least for each in standings.values())
        assert least or sum(self.prices[name] for name in given_out) <= self.cost_max + 1e-9

    def _places(self, name: str, model: str) -> list[tuple[SliceSpec, str, str, str]]:
        spec = next(each.spec for each in self.control.desired.slices if each.spec.name == name)
        return [(spec, model, variant, "") for variant in self.models[model].variants]

    def capacity(self, asked: FindCapacity) -> Capacity | None:
        """See `ControlledSimulation`."""
        return replace(guess(asked.profile, asked.model), guessed=False) if self.tables else None

    def conclude(self) -> None:
        """Long after the last accident: as many replicas as are wished and can be had get batches."""
        standings, routed = self.control.scaling.standings(), self.every()
        for model, standing in standings.items():
            here = {place[0].name for place in routed if place[1] == model}
            gone = {name for name in standing.slices if self._places(name, model)[0][0].domain in self.gone}
            assert not gone, f"{model} is to be on {gone}, which are lost"
            if standing.slices or not standing.desired:
                assert here == set(standing.slices), f"{model} is on {here}, not on {standing.slices}"
            else:  # no slice is left for it
                assert len(here) == standing.standing, f"{model} answers on {here}, beside others"
            assert standing.held or standing.count == standing.desired, f"{standing}"
            assert standing.ready == standing.count
        wanted = {name for each in standings.values() for name in each.slices}
        assert wanted <= self.workers.keys()
        scaled = {each.spec.name for each in self.control.desired.slices if each.replicas}
        assert wanted == self.workers.keys() & scaled, f"{self.workers.keys() - wanted} are held for nobody"
        assert max(self.commands.values(), default=0) < COMMANDS_MAX, self.commands.most_common(3)


class ScaledFleet:
    """A fleet at random, whose load rises and falls until it is calm."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.devices = [f"d{number}" for number in range(random.randint(2, 4))]
        self.slices = [
            SliceSpec(
                f"{device}-{number}", (), device=device, part=SHARE, spot=random.random() < 0.3,
                price=random.choice((0.0, 1.0, 2.0)),
            )
            for device in self.devices
            for number in range(random.randint(1, 3))
        ]  # fmt: skip
        self.models = [self._model(f"m{number}") for number in range(random.randint(1, 3))]
        self.terms = replace(terms(random, self.models, self.devices), broken=frozenset())
        total = sum(each.price for each in self.slices)
        self.cost_max = random.choice((inf, inf, max(total * random.random(), 1.0)))

    def _model(self, name: str) -> ServedModel:
        random = self.random
        spec = model_spec(name, ("a", "b")[: random.randint(1, 2)], batch_max=ROWS_MAX)
        places = random.sample(self.slices, random.randint(1, len(self.slices)))
        least = random.choice((0, 1, 1, 2))
        most = random.choice((None, max(least, random.randint(1, 4))))
        return replace(
            served(spec, tuple(each.name for each in places)), slo_us=SLO_US,
            replicas=ReplicaSpec(min(least, len(places)), most),
        )  # fmt: skip

    def watch(self, seed: int) -> ScaledWatch:
        """The fleet, with its load and faults to come."""
        random = self.random
        known = {
            (spec.name, model.name, variant): profile(model.name, variant)
            for spec in self.slices
            for model in self.models
            for variant in model.variants
        }
        policy = ScalingSpec(random.choice(POLICIES), cost_max=self.cost_max)
        rules = Rules(remeasure=False, scaling=policy)
        control = Control(self.slices, self.models, known, LIMITS, lambda _: KIND, rules)
        plane = Once(self.models, self.slices, lambda _s, _m, _v, rows: ROW_US * rows, self._asked())
        found = ScaledWatch(control, self.terms, Stubborn(), plane, seed, CALM_US)
        found.begin({(spec.device, SHARE, *key) for spec in self.slices for _, *key in known})
        found.ready_before = Counter()
        found.models = {each.name: each for each in self.models}
        found.prices = {each.name: each.price for each in self.slices}
        found.cost_max, found.tables = self.cost_max, random.random() < 0.7
        found.at(0, control.start)
        self._befall(found)
        return found

    def _asked(self) -> list[Arrival]:
        """Each model asked for at rates that change, then little or not at all."""
        random, found = self.random, list[Arrival]()
        for place in range(len(self.models)):
            at_us, rate = 0.0, 1.0
            calm = random.choice((0.0, 0.5, 1.0))
            while at_us < END_US - 10 * SECOND:
                if random.random() < 0.05:
                    rate = random.choice((0.2, 1.0, 4.0, 12.0))
                rate = rate if at_us < CALM_US else calm
                if rate == 0.0:
                    break
                at_us += random.expovariate(rate) * SECOND
                found.append(Arrival(int(at_us), place))
        return sorted(each for each in found if each.at_us < END_US - 10 * SECOND)

    def _befall(self, watch: ScaledWatch) -> None:
        random, domains = self.random, sorted({each.domain for each in self.slices})
        for domain in random.sample(domains, random.choice((0, 1, min(3, len(domains))))):
            at_us = random.randint(0, CALM_US)
            back_us = at_us + random.randint(0, 20 * SECOND)
            if random.random() < 0.5:
                leaving_us = max(at_us - random.randint(1, 20) * SECOND, 0)
                watch.warn(leaving_us, domain, "a notice")
            watch.lose(at_us, domain, *([back_us] if random.random() < 0.5 else []))
        for _ in range(random.choice((0, 1, 4))):
            watch.crash(random.randint(0, CALM_US), random.choice(self.slices).name)


def profile(model: str, variant: str) -> Profile:
    """Of which nothing is left to be measured."""
    points = tuple(
        Point(0, rows, float(ROW_US * rows), float(ROW_US * rows), REFINED_COUNT)
        for rows in range(1, ROWS_MAX + 1)
    )
    return Profile(model, variant, KIND, points, share=SHARE, load_us=400_000)


def play(seed: int) -> ScaledWatch:
    """A fleet to its end; the log of a broken promise is shown."""
    fleet = ScaledFleet(seed)
    watch = fleet.watch(seed)
    try:
        watch.play(END_US)
        watch.conclude()
        plane = watch.plane
        assert isinstance(plane, Once)
        assert plane.open == 0, f"{plane.open} requests are without an answer"
    except (AssertionError, KeyError) as error:
        error.add_note("\n".join([f"fleet {seed}", *watch.log[-60:]]))
        raise
    return watch


@pytest.mark.slow
def test_whatever_happens_nothing_is_lost_and_replicas_are_as_wished_in_the_end() -> None:
    for seed in range(8):
        play(seed)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", parts(100, size=100))
def test_many_fleets_keep_the_promises_while_replicas_come_and_go(part: range) -> None:
    happened: Counter[str] = Counter()
    for seed in part:
        happened += play(seed).seen
    events = ["StartWorker", "UnloadReplica", "device_lost", "replica_failed", "worker_lost", "missed"]
    for each in events[: len(events) if len(part) == 100 else 1]:  # a few fleets may have none of the others
        assert happened[each] > len(part) / 10, f"{each}: {happened[each]}"


@pytest.mark.slow
def test_a_seed_gives_the_same_fleet_and_the_same_run() -> None:
    assert play(5).log == play(5).log
