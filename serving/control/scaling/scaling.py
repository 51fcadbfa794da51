"""The autoscaler: how many replicas a model has, and where, at the present load.

Operators say where a model may run. Each second, a policy says how many replicas the model needs, from its
recent requests (`serving/policy/scaling/`). Each minute, a slow plan forecasts the load, and says which kinds
of slice carry it most cheaply. The desired state is filtered by these before it is reconciled. So no state is
kept that a crash or another change could outdate: a lost slice is one that no model can have.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from serving.control.commands import Cold, Command, Expect, FindCapacity, Look, SolveScaling
from serving.control.scaling.capacities import Capacities
from serving.control.scaling.cordon import Cordon
from serving.control.scaling.ranking import RankedSlice, by_preference, kept_slices
from serving.control.scaling.scaling_state import ScalingState
from serving.control.scaling.scaling_status import ScalingStatus
from serving.control.scaling.scaling_views import (
    ModelTopology,
    bounds,
    called,
    claim,
    claimant,
    handed,
    in_order,
    is_ready,
    kinds_of,
    load_us,
    standing,
    view,
)
from serving.control.scaling.topology import Topology
from serving.control.state.desired import DesiredReplica, DesiredSlice, DesiredState
from serving.control.state.observed import ObservedState
from serving.control.state.replicas import SliceRecord
from serving.control.state.rules import Rules
from serving.policy.scaling.allotment import Allotment, Claim, Priced, allot
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import LoadReport, Wish
from serving.policy.scaling.load.history import History
from serving.policy.scaling.slow.task import ScalingPlan, ScalingTask
from serving.values.objectives import ScalingSpec
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel
from serving.values.vocabulary import NEVER_US

LOOK_US = 1_000_000
PLAN_US = 60_000_000
BAND_US = 2 * PLAN_US  # for how long a plan holds, if no other comes
Places = Mapping[str, Priced]
Specs = Mapping[str, SliceSpec]

DIVIDE_US = 10_000_000
"""How often each model's claim is made again if nothing has changed for it.

Profiles may have been refined in that time, and a replica that failed to start may start now. A model with
sixty possible slices takes 0.4 ms.
"""


class Scaling:
    """The scaling of all models with `replicas`."""

    def __init__(self, observed: ObservedState, rules: Rules, kind_of: Callable[[SliceSpec], str]) -> None:
        self._spec = rules.scaling
        self._create = rules.create
        self.due_us = NEVER_US
        self.cordon = Cordon()
        self.nodes: Collection[str] = ()  # those that have joined
        self.missing: frozenset[str] = frozenset()  # those that would bring what models are short of
        self._observed = observed
        self._capacities = Capacities(observed)
        self._kind_of = kind_of
        self._models: dict[str, ScalingState] = {}
        self._current: DesiredState | None = None
        self._topology = Topology(None, kind_of)
        self._filtered: DesiredState | None = None
        self._stale = True
        self._claims: dict[str, tuple[object, Claim]] = {}  # of each model: (the claim's inputs, the claim)
        self._claimed_us = 0  # when all claims were last made
        self._plan_us = 0  # when the next slow plan is due
        self._asked_us = -PLAN_US  # when the plan that is not ready yet was asked for

    # what may be asked

    @property
    def cost_max(self) -> float:
        """The most that an hour may cost; inf for no limit."""
        return self._spec.cost_max

    def held(self) -> dict[str, SliceSpec]:
        """Return the slices that cost money, with scaled models on them or not."""
        return self._observed.held()

    @property
    def cost_per_hour(self) -> float:
        """The price of an hour of all slices that are held now."""
        return sum(spec.price for spec in self.held().values())

    @property
    def changes(self) -> Mapping[str, tuple[int, int]]:
        """How often each model got more replicas, and fewer."""
        return {name: (each.ups, each.downs) for name, each in self._models.items()}

    def standings(self) -> dict[str, ScalingStatus]:
        """Return the status of every scaled model, as of its last look."""
        current = self._current
        if current is None:
            return {}
        slices = self._observed.slices
        return {
            name: standing(each, self._models[name], slices, len(self._topology.specs(name)))
            for name, each in self._served(current).items()
        }

    def needed_nodes(self, expected: DesiredState) -> frozenset[str]:
        """Return the nodes with slices that the expected state takes, that still hold workers, or that a
        model is short of."""
        specs = [*(each.spec for each in expected.slices), *self.held().values()]
        return self.missing.union(spec.node for spec in specs if spec.node)

    def stays(self, each: DesiredSlice) -> bool:
        """Return whether a slice stays whatever scaled models do: it has other models, or none at all."""
        return not each.replicas or any(one.model not in self._models for one in each.replicas)

    def binds(self, record: SliceRecord) -> bool:
        """Return whether a replica on a slice cannot be elsewhere instead."""
        there = record.replicas.values()
        return not there or any(each.model not in self._models for each in there)

    def scales(self, model: str) -> bool:
        """Return whether a model's replicas follow its load."""
        return model in self._models

    # events

    def seen(self, seen: Iterable[LoadReport], now_us: int) -> None:
        """Take what models were asked and how they fared; each policy that is due decides on replicas."""
        current = self._current
        served = self._served(current)
        for each in seen:
            scaled = self._models.get(each.model)
            if scaled is None or current is None:
                continue
            if not scaled.seen.model:  # the first report: counts from before say nothing
                scaled.before, scaled.history = each, History(now_us, each.offered)
            scaled.seen = each
            scaled.history.tell(each.offered, now_us)
            if now_us - scaled.decided_us >= scaled.policy.period_us - LOOK_US // 2:
                model = served[each.model]
                ground = self._ground(model)
                wish = scaled.policy.decide(view(model, scaled, ground, self._observed.slices, now_us))
                self._stale |= handed(wish) != handed(scaled.wish)
                scaled.wish, scaled.before, scaled.decided_us = wish, each, now_us
        if now_us - self._claimed_us >= DIVIDE_US:
            self.changed()

    def planned(self, plan: ScalingPlan | None, now_us: int) -> None:
        """Take the slow plan; None: none was found."""
        self._asked_us = -PLAN_US
        if plan is None:
            return
        self.changed()
        for name, granted in plan.granted.items():
            scaled = self._models.get(name)
            if scaled is not None:
                scaled.band = replace(granted.band, until_us=now_us + BAND_US)
                scaled.lacking = granted.lacking
                scaled.liked = Counter[str]()
                for (_, kind), count in granted.replicas.items():
                    scaled.liked[kind] += count

    def capacity_found(self, asked: FindCapacity, capacity: Capacity) -> None:
        """Take a finished table."""
        if asked.model.name in self._models:
            self._capacities.found(asked, capacity)
            self._plan_us = 0
            self.changed()

    def missed(self, model: str) -> None:
        """Ask for one replica of a model on no slice, because a request came."""
        scaled = self._models[model]
        if not scaled.wish.count:
            why, self._stale = "it was asked for, and was on no slice", True
            scaled.wish = Wish(1, why, standby=len(scaled.standby), pressure=1.0)

    def follow(self, spec: ScalingSpec) -> None:
        """Follow load by another policy, target or cost ceiling."""
        if (spec.policy, spec.target) != (self._spec.policy, self._spec.target):
            for scaled in self._models.values():
                scaled.policy = self._create(spec)
                scaled.wish = Wish(len(scaled.slices), f"it follows {spec.policy} from now on")
        self._spec, self._stale = spec, True

    def changed(self) -> None:
        """Make all claims again, because slices or capacities have changed."""
        self._claims, self._stale = {}, True

    # what follows

    def advance(self, current: DesiredState, now_us: int) -> list[Command]:
        """Assign slices, and return commands for what decisions need."""
        if current is not self._current:
            self._take(current, now_us)
        if not self._models:
            return []
        commands: list[Command] = []
        if self.cordon.bar(self._models, self._observed.slices, now_us):
            self.changed()
        self._note_starts(now_us)
        if self._stale:
            self._divide(current, now_us)
        served = self._served(current)
        for name, scaled in self._models.items():
            commands += self._say_cold(served[name], scaled, now_us)
        if now_us >= self.due_us:
            commands += self._look(current, now_us)
        self._capacities.renew()  # before the next event, measurements may change them
        return commands

    def filtered(self, current: DesiredState) -> DesiredState:
        """Return the part of the desired state that the present load needs."""
        if not self._models:
            return current
        if self._filtered is None or current is not self._current:
            slices = [self._filter(each) for each in current.slices]
            kept = [
                each
                for each, was in zip(slices, current.slices, strict=True)
                if each.replicas or not was.replicas
            ]
            return DesiredState(tuple(kept), current.models)
        return self._filtered

    # steps

    def _served(self, current: DesiredState | None) -> dict[str, ServedModel]:
        models = current.models if current is not None else ()
        return {each.name: each for each in models if each.replicas is not None}

    def _ground(self, model: ServedModel) -> ModelTopology:
        """Return where a model may run, and what it carries there."""
        counts = self._topology.counts(model.name)
        carries = [self._capacities.of(model, slice_class) for slice_class in counts]
        return ModelTopology(self._topology, counts, dict(zip(counts, carries, strict=True)))

    def _take(self, current: DesiredState, now_us: int) -> None:
        """Take a new desired state."""
        served = self._served(current)
        self._topology = Topology(current, self._kind_of)
        for name in [name for name in self._models if name not in served]:
            del self._models[name]
        for name, model in served.items():
            if name not in self._models and model.replicas is not None:
                names, slices = (each.name for each in self._topology.specs(name)), self._observed.slices
                there = tuple(each for each in names if is_ready(slices, each, name))
                count = max(model.replicas.least, 1, len(there))
                wish = Wish(count, "it has just come: what it is asked is not known yet")
                policy, nothing = self._create(self._spec), LoadReport("")
                self._models[name] = ScalingState(
                    policy, History(now_us), nothing, nothing, now_us, wish, there
                )
        self._capacities.forget(served)
        self.due_us = (now_us if self.due_us == NEVER_US else self.due_us) if served else NEVER_US
        self._plan_us = min(self._plan_us, now_us + LOOK_US)
        self._current, self._filtered = current, None
        self.changed()

    def _divide(self, current: DesiredState, now_us: int) -> None:
        """Assign the slices to the models."""
        self._stale, self._filtered = False, None
        self._claimed_us = self._claimed_us if self._claims else now_us
        fixed = {each.spec.name for each in current.slices if self.stays(each)}
        specs = {each.spec.name: each.spec for each in current.slices}
        lost = self._observed.lost
        places = {name: _priced(spec, fixed) for name, spec in specs.items() if spec.domain not in lost}
        claims = []
        for name, model in self._served(current).items():
            scaled = self._models[name]
            given_by = (scaled.wish.count, scaled.slices, scaled.standby)
            made = self._claims.get(name)
            if made is None or made[0] != given_by:
                ground = self._ground(model)
                found = self._found(model, ground, fixed, now_us)
                mine = self._claim(model, ground, [each for each in found if each.spec.name in places])
                made = self._claims[name] = given_by, mine
            claims.append(made[1])
        given = self._allotted(claims, places, specs, fixed)
        for name, scaled in self._models.items():
            slices = given.slices[name]
            if slices != scaled.slices:
                scaled.give(slices, now_us)
            scaled.short = given.short.get(name, "")
        self.missing = frozenset[str]().union(*self._beyond(current, specs, places, fixed, now_us))
        self._stand_by(places.keys() & fixed, now_us)
        self._filtered = self.filtered(current)

    def _allotted(
        self, claims: Sequence[Claim], places: Places, specs: Specs, fixed: Collection[str]
    ) -> Allotment:
        """Hand out `places`, beside the `fixed` slices that are there and paid anyway."""
        lost = self._observed.lost
        paid = sum(specs[name].price for name in fixed if specs[name].domain not in lost)
        return allot(claims, places, self._spec.cost_max, paid, self._spec.fair)

    def _beyond(
        self, current: DesiredState, specs: Specs, places: Places, fixed: Collection[str], now_us: int
    ) -> Iterator[set[str]]:
        """Yield the nodes that would bring what each model is short of, and say so of the model.

        All slices are handed out as if these nodes had joined, those that are there first.
        """
        absent = {
            name: _priced(spec, fixed)
            for name, spec in specs.items()
            if name not in places and spec.node and spec.node not in self.nodes
        }
        if not absent or not any(scaled.short for scaled in self._models.values()):
            return
        all_places, claims = {**places, **absent}, []
        for model in self._served(current).values():
            ground = self._ground(model)
            found = [
                each for each in self._found(model, ground, fixed, now_us) if each.spec.name in all_places
            ]
            liked = [replace(each, bad=each.bad or each.spec.name in absent) for each in found]
            claims.append(self._claim(model, ground, liked))
        given = self._allotted(claims, all_places, specs, fixed)
        for name, scaled in self._models.items():
            nodes = {specs[each].node for each in given.slices[name] if each in absent}
            if nodes:
                scaled.short += f"; it needs {called(nodes)}"
                yield nodes

    def _claim(self, model: ServedModel, ground: ModelTopology, places: Iterable[RankedSlice]) -> Claim:
        """Return a model's claim to the slices that it may have."""
        scaled, (least, _) = self._models[model.name], bounds(model, 0)
        likes = by_preference(places, scaled, least)
        return claim(model, scaled.wish.count, likes, ground.usual(likes), kept_slices(likes, scaled, least))

    def _found(
        self, model: ServedModel, ground: ModelTopology, fixed: Collection[str], now_us: int
    ) -> list[RankedSlice]:
        """Return the slices where a model may run, as the model sees them."""
        speed, places = ground.speeds(), []
        for spec in self._topology.specs(model.name):
            slice_class, held = self._topology.class_of[spec.name], spec.name in fixed
            bad = self.cordon.is_cordoned(spec, model.name, now_us)
            places.append(
                RankedSlice(
                    spec, slice_class.label_held if held else slice_class.label, speed[slice_class], held, bad
                )
            )
        return places

    def _stand_by(self, fixed: Iterable[str], now_us: int) -> None:
        """Choose where replicas stand by, loaded without batches: on slices that other models hold anyway."""
        owned = {name for scaled in self._models.values() for name in scaled.slices}
        for model, scaled in self._models.items():
            if not scaled.wish.standby:
                scaled.standby = ()
                continue
            specs, others = self._topology.specs(model), owned.union(fixed).difference(scaled.slices)
            there = [
                s.name for s in specs if s.name in others and not self.cordon.is_cordoned(s, model, now_us)
            ]
            there.sort(key=lambda name: name not in scaled.standby)
            scaled.standby = tuple(there[: scaled.wish.standby])

    def _filter(self, each: DesiredSlice) -> DesiredSlice:
        kept: list[DesiredReplica] = []
        for one in each.replicas:
            scaled = self._models.get(one.model)
            if scaled is None or each.spec.name in scaled.slices:
                kept.append(one)
            elif each.spec.name in scaled.standby:
                kept.append(replace(one, routed=one.routed and self._bridges(scaled)))
        return replace(each, replicas=in_order(kept, self._models))

    def _bridges(self, scaled: ScalingState) -> bool:
        """Return whether a replica that stands by gets batches: until the assigned ones are ready, if any."""
        coming = len(scaled.asked_us)
        overloaded = scaled.wish.count > 0 and coming == len(scaled.slices)
        return overloaded or (coming > 0 and scaled.wish.pressure > 1)

    def _note_starts(self, now_us: int) -> None:
        """Record the slices that have become ready; they need no bridge any more."""
        for model, scaled in self._models.items():
            for name in [*scaled.asked_us]:
                if is_ready(self._observed.slices, name, model):
                    scaled.started(name, now_us)
                    self._stale = True

    def _say_cold(self, model: ServedModel, scaled: ScalingState, now_us: int) -> list[Command]:
        """Return commands that inform the scheduler when a model is on no slice.

        The scheduler hears this in advance, and when the model will be on a slice. It also hears if a model
        needs a slice but none is available.
        """
        if model.name not in self._observed.models:
            return []
        within_us = load_us(self._observed.slices, scaled, model.name)
        if scaled.slices:
            was_cold, scaled.cold_us = scaled.cold_us is not None, None
            expected = [Expect(model.name, variant, now_us + within_us) for variant in model.variants]
            return [*expected] if was_cold else []
        within_us = NEVER_US if scaled.wish.count and not scaled.standby else within_us
        if scaled.cold_us == within_us:
            return []
        scaled.cold_us = within_us
        return [Cold(model.name, variant, within_us) for variant in model.variants]

    def _look(self, current: DesiredState, now_us: int) -> list[Command]:
        """Return the commands of each second: for what policies, tables and plans need."""
        self.due_us = now_us + LOOK_US
        commands: list[Command] = [Look()]
        for name, model in self._served(current).items():
            counts = self._topology.counts(name)
            commands += self._capacities.ask(model, counts, sum(counts.values()))
        if now_us >= self._plan_us and now_us - self._asked_us >= PLAN_US:
            self._plan_us, self._asked_us = now_us + PLAN_US, now_us
            commands.append(SolveScaling(self._task(current)))
        return commands

    def _task(self, current: DesiredState) -> ScalingTask:
        """Return the input of the slow plan."""
        lost = self._observed.lost
        there = [each.spec for each in current.slices if each.spec.domain not in lost]
        held = {each.spec.name for each in current.slices if self.stays(each)}
        kinds: dict[str, str] = {}
        for spec in there:
            if spec.domain not in self.cordon.leaving:
                slice_class = self._topology.class_of[spec.name]
                kinds[spec.name] = slice_class.label_held if spec.name in held else slice_class.label
        claimants = []
        for name, model in self._served(current).items():
            scaled, specs = self._models[name], self._topology.specs(name)
            by_kind = {
                kinds[each.name]: self._topology.class_of[each.name] for each in specs if each.name in kinds
            }
            carries = {kind: self._capacities.of(model, slice_class) for kind, slice_class in by_kind.items()}
            there_now = Counter(kinds[each] for each in scaled.slices if each in kinds)
            claimants.append(claimant(model, scaled, carries, there_now))
        offered = {spec.name for name in self._models for spec in self._topology.specs(name)}
        paid = sum(spec.price for spec in there if spec.name in held)
        free = [spec for spec in there if spec.name in offered and spec.name in kinds]
        return ScalingTask(
            tuple(claimants), kinds_of(free, kinds, held), max(self._spec.cost_max - paid, 0.0)
        )


def _priced(spec: SliceSpec, fixed: Collection[str]) -> Priced:
    return Priced(spec.name, 0.0 if spec.name in fixed else spec.price)
