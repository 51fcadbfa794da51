"""Fleets at random for control in virtual time, and what befalls them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from loadtests.virtual.virtual_moves import Listed
from serving.control.commands import Command
from serving.control.control import Control
from serving.control.state.desired import DesiredReplica, DesiredSlice, DesiredState
from serving.planning.solver import Solver
from serving.policy.estimates.freshness import Freshness
from serving.policy.placement.terms.check import device_faults
from serving.policy.placement.terms.plan import PlacedReplica, Slot
from serving.policy.placement.terms.problem import Option, PlacementProblem
from serving.profile.curve import Point, Profile
from serving.profile.sweeping.sweep import REFINED_COUNT
from serving.scheduler.commands import Answer
from serving.simulation.governed.controlled import DataPlane
from serving.simulation.governed.planning import Facts, Planner, Stubborn
from serving.simulation.governed.virtual_workers import Weight, WorkerTerms
from serving.simulation.traffic.arrivals import Arrival
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import Limits, ServedModel
from serving.values.vocabulary import NO_REPLICA
from tests.builders import KIND, model_spec, served
from tests.policy.transition.fleets import fleet
from tests.simulation.controlled_watch import Watch
from tests.simulation.first_fit import FirstFit
from tests.simulation.no_requests import Quiet

SECOND = 1_000_000
CALM_US = 60 * SECOND
END_US = 160 * SECOND
LIMITS = Limits(startup_s=8.0, sweep_s=2.0)
GIB = 1 << 30
Act = Callable[[int], Sequence[Command]]


def complete(model: str, variant: str, share: Share) -> Profile:
    """A profile of one row, of which nothing is left to be measured."""
    return Profile(model, variant, KIND, (Point(0, 1, 100, 100, REFINED_COUNT),), share=share)


def weights(random: Random, models: Sequence[ServedModel]) -> dict[tuple[str, str], Weight]:
    """Of every variant."""
    return {
        (model.name, variant): Weight(random.randint(100, 3000) * 1000, random.randint(1, 8) * GIB)
        for model in models
        for variant in model.variants
    }


def terms(random: Random, models: Sequence[ServedModel], devices: Sequence[str]) -> WorkerTerms:
    """What goes wrong, of each kind in about half of the worlds."""
    broken = {
        (random.choice(("", *devices)), random.choice(models).name)
        for _ in range(random.choice((0, 0, 1, 2)))
    }
    return WorkerTerms(
        weights(random, models),
        frozenset(broken),
        starts_failing=random.choice((0, 0, 0.1, 0.3)),
        loads_failing=random.choice((0, 0, 0.1, 0.3)),
        hanging=random.choice((0, 0, 0.02, 0.05)),
        crash_mtbf_s=random.choice((0, 0, 20, 60)),
    )


class Simple:
    """Slices that are there for good, on each of which any model may be."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.devices = [f"d{number}" for number in range(random.randint(2, 5))]
        self.slices = [
            SliceSpec(f"{device}-{number}", (), device=device, part=Share("mps", 30.0))
            for device in self.devices
            for number in range(random.randint(1, 3))
        ]
        count = random.randint(1, 6)
        self.models = [
            served(model_spec(f"m{number}", ("a", "b")[: random.randint(1, 2)], batch_max=1), ())
            for number in range(count)
        ]
        self.planner: Planner = random.choice((FirstFit(self.slices, 3), Stubborn()))
        self.terms = terms(random, self.models, self.devices)
        share = random.choice((1, 1, 1, 0.9))  # measuring takes most of a run's time
        self.known = {
            (spec.name, model.name, variant): complete(model.name, variant, spec.share)
            for spec in self.slices
            for model in self.models
            for variant in model.variants
            if random.random() < share
        }

    def wanted(self) -> DesiredState:
        """Anything."""
        random = self.random
        models = [each for each in self.models if random.random() < 0.8]
        models = [
            replace(
                each,
                revision=random.choice(("", "", "", "new")),
                slo_us=random.choice((each.slo_us, 80_000)),
            )
            for each in models
        ]
        slices = []
        for spec in random.sample(self.slices, random.randint(1, len(self.slices))):
            keys = {(model.name, random.choice(model.variants)) for model in models if random.random() < 0.5}
            replicas = tuple(DesiredReplica(*key, random.random() < 0.9) for key in sorted(keys))
            other = replace(spec, part=Share("mps", 40.0)) if random.random() < 0.1 else spec
            slices.append(DesiredSlice(other, replicas[:3]))
        return DesiredState(tuple(slices), tuple(models))

    def watch(self, seed: int) -> Watch:
        """The world, with its moves and faults to come."""
        random = self.random
        first = [spec for spec in self.slices if random.random() < 0.8]
        models = [
            replace(model, slices=tuple(spec.name for spec in first if random.random() < 0.4))
            for model in self.models
        ]
        control = Control(first, models, self.known, LIMITS, lambda _: KIND)
        found = Watch(control, self.terms, self.planner, self.plane(), seed, CALM_US)
        by_name = {spec.name: spec for spec in self.slices}
        found.begin(
            {(by_name[name].device, by_name[name].share, model, one) for name, model, one in self.known}
        )
        found.at(0, control.start)
        for _ in range(random.randint(0, 5)):
            found.at(random.randint(0, CALM_US), self._ask(found))
        for _ in range(random.choice((0, 0, 1, 2))):
            found.at(random.randint(0, CALM_US), found.roll_back)
        self.befall(found)
        return found

    def befall(self, watch: Watch) -> None:
        """What goes wrong besides."""
        befall(self.random, watch, self.devices, [spec.name for spec in self.slices])

    def plane(self) -> DataPlane:
        """Nobody asks for anything."""
        return Quiet()

    def _ask(self, watch: Watch) -> Act:
        wanted = self.wanted()

        def ask(now_us: int) -> Sequence[Command]:
            watch.want(wanted)
            return watch.control.want(wanted, now_us)

        return ask


def befall(random: Random, watch: Watch, devices: Sequence[str], slices: Sequence[str]) -> None:
    """Devices are lost and come back or not, workers die."""
    for device in random.sample(devices, random.choice((0, 0, 1, min(2, len(devices) - 1)))):
        at_us = random.randint(0, CALM_US)
        back_us = at_us + random.randint(0, 20 * SECOND)
        watch.lose(at_us, device, *([back_us] if random.random() < 0.5 else []))
    for _ in range(random.choice((0, 1, 4))):
        watch.crash(random.randint(0, CALM_US), random.choice(slices))
    for _ in range(random.choice((0, 0, 3))):
        watch.at(random.randint(0, CALM_US), stall(watch, random.random()))
    for _ in range(random.choice((0, 0, 3))):
        watch.at(random.randint(0, CALM_US), flag(watch, random.random()))


def stall(watch: Watch, which: float) -> Act:
    """A worker with something routed holds a batch for too long."""

    def tell(now_us: int) -> Sequence[Command]:
        names = [name for name, worker in watch.workers.items() if worker.routed]
        return (
            watch.control.worker_stuck(names[int(which * len(names))], "it stalls", now_us) if names else ()
        )

    return tell


def flag(watch: Watch, which: float) -> Act:
    """The batches of a replica say that its profile is out of date."""

    def tell(now_us: int) -> Sequence[Command]:
        places = [
            (name, number) for name, worker in watch.workers.items() for number in worker.routed.values()
        ]
        if not places:
            return ()
        return watch.control.profile_flagged(*places[int(which * len(places))], Freshness.STALE, now_us)

    return tell


class Answering(Listed):
    """Holds each refusal against what the watch has seen routed."""

    watch: Watch

    def answered(self, answer: Answer, now_us: int) -> None:
        """See `Simulation`."""
        super().answered(answer, now_us)
        if answer.outcome is NO_REPLICA and answer.request.model not in self.watch.retired:
            assert not self.watch.routed(answer.request.model)


class Asked(Simple):
    """Nothing goes wrong, and all models are asked for now and then."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.models = [served(model_spec(each.name, batch_max=1), ()) for each in self.models]
        self.terms = WorkerTerms(weights(self.random, self.models))
        self.requests = Answering((), (), lambda *_: 100, ())

    def plane(self) -> DataPlane:
        """A few requests a second."""
        asked = [
            Arrival(self.random.randint(0, CALM_US), place)
            for place in range(len(self.models))
            for _ in range(200)
        ]
        self.requests = Answering(self.models, self.slices, lambda *_: 100, sorted(asked))
        return self.requests

    def befall(self, watch: Watch) -> None:
        """Nothing."""
        self.requests.watch = watch


class Residing(Simple):
    """Slices whose models are loaded when somebody asks for them, in less memory than all of them need."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        random = self.random
        held = {key: weight.memory_bytes for key, weight in self.terms.weights.items()}
        most = max(held.values())
        self.slices = [
            replace(spec, memory_bytes=random.randint(most, max(most, sum(held.values()))))
            for spec in self.slices[: random.randint(1, 3)]
        ]
        self.known = {
            (spec.name, *key): replace(
                complete(*key, spec.share), memory_bytes=weight.memory_bytes, load_us=weight.load_us
            )
            for spec in self.slices
            for key, weight in self.terms.weights.items()
        }
        self.planner = Stubborn()

    def wanted(self) -> DesiredState:
        """Most of the models on some of the slices."""
        random = self.random
        models = tuple(each for each in self.models if random.random() < 0.8)
        slices = []
        for spec in random.sample(self.slices, random.randint(1, len(self.slices))):
            keys = [(each.name, variant) for each in models for variant in each.variants]
            replicas = tuple(DesiredReplica(*key) for key in keys if random.random() < 0.8)
            slices.append(DesiredSlice(spec, replicas))
        return DesiredState(tuple(slices), models)

    def watch(self, seed: int) -> Watch:
        """As `Simple.watch`, with requests for what is cold."""
        found = super().watch(seed)
        found.held_bytes = {key: weight.memory_bytes for key, weight in self.terms.weights.items()}
        at_us = 0
        while at_us < CALM_US:
            at_us += int(self.random.expovariate(1 / SECOND))
            found.at(at_us, self._miss(found, self.random.random(), self.random.random()))
        return found

    def _miss(self, watch: Watch, which: float, busy_share: float) -> Act:
        chance = Random(which)

        def miss(now_us: int) -> Sequence[Command]:
            there = {(place[1], place[2]) for place in watch.every()}
            cold = sorted(key for key in watch.cold - there if key[0] not in watch.retired)
            if not cold:
                return ()
            model, variant = cold[int(which * len(cold))]
            rates = {each.name: chance.random() for each in self.models}
            busy = {
                name: {key[0] for key in worker.routed if chance.random() < busy_share}
                for name, worker in watch.workers.items()
            }
            watch.busy = busy
            watch.heard("", ("missed", model, variant))
            return watch.control.missed(model, variant, rates, busy, now_us)

        return miss


class Solved:
    """MIG and MPS devices, on which a solver places models for rates that change."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        problem = fleet(random, devices_max=5, models_max=4)
        self.devices = [*problem.pool_of]
        self.problem = self._asked(problem)
        variants = {
            each.model: tuple(dict.fromkeys(one.variant for one in each.options)) for each in problem.demands
        }
        self.models = tuple(
            served(model_spec(name, several, batch_max=1), ()) for name, several in variants.items()
        )
        self.planner = Solver(self.problem, self.models)
        held = {
            (each.model, one.variant): Weight(random.randint(100, 2000) * 1000, one.memory_bytes)
            for each in problem.demands
            for one in each.options
        }
        self.terms = replace(terms(random, self.models, self.devices), weights=held)

    def _asked(self, problem: PlacementProblem) -> PlacementProblem:
        """Other rates: up to what one or two replicas carry."""
        demands = []
        for each in problem.demands:
            most = max((offer.throughput for offer in each.offers), default=0.0)
            demands.append(replace(each, rate=most * self.random.choice((0, 0.1, 0.5, 1, 2))))
        return replace(problem, demands=tuple(demands))

    def watch(self, seed: int) -> "Crowd":
        """As `Simple.watch`."""
        random, nothing = self.random, DesiredState((), self.models)
        control = Control((), self.models, {}, LIMITS, lambda _: KIND)
        found = Crowd(control, self.terms, self.planner, Quiet(), seed, CALM_US)
        found.begin(())
        found.problem = self.problem
        found.at(0, control.start)
        found.at(0, lambda now_us: self._move(found, nothing, now_us))
        for _ in range(random.randint(1, 5)):
            found.at(random.randint(SECOND, CALM_US), lambda now_us: self._move(found, None, now_us))
        for _ in range(random.choice((0, 0, 1, 2))):
            found.at(random.randint(0, CALM_US), found.roll_back)
        befall(
            random, found, self.devices, [f"{device}/{place}" for device in self.devices for place in (0, 1)]
        )
        return found

    def _move(self, watch: "Crowd", standing: DesiredState | None, now_us: int) -> Sequence[Command]:
        """To what suits other rates, where nothing moves already."""
        if watch.control.progress.state != "steady":
            return ()
        self.planner.problem = self._asked(self.problem)
        facts = Facts(frozenset(watch.lost), frozenset(), standing or watch.control.desired)
        plan = self.planner.plan(facts)
        if isinstance(plan, str):
            return ()
        watch.want(plan.wanted, plan.by)
        return watch.control.want(plan.wanted, now_us, plan.by)


class Crowd(Watch):
    """Watches that devices have room for what is asked of them, too."""

    problem: PlacementProblem

    def settled(self) -> None:
        """See `Watch`."""
        super().settled()
        lenient = replace(
            self.problem,
            demands=tuple(replace(each, slo_us=1e15, options=()) for each in self.problem.demands),
        )
        there: dict[str, list[Slot]] = {}
        for worker in self.workers.values():
            spec = worker.spec
            if spec.device in self.gone:
                continue
            kind = lenient.pool_of[spec.device].kind
            residents = []
            for held in worker.held.values():
                weight = self._terms.weight(held.key[:2])
                option = Option(kind, spec.share, held.key[1], ((1, 1.0),), weight.memory_bytes)
                residents.append(PlacedReplica(held.key[0], option, 1, 0.0))
            slot = Slot(spec.share, tuple(residents), int(spec.name.partition("@")[2] or -1))
            there.setdefault(spec.device, []).append(slot)
        for device, slots in there.items():
            found = [
                fault
                for fault in device_faults(lenient, lenient.pool_of[device], slots)
                if not fault.startswith("nothing on")
            ]
            assert not found, f"{device}: {found}"
