"""Plans for a controller in virtual time: what is to be instead, where devices are lost and loads fail."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from serving.control.desired import DesiredReplica, DesiredSlice, DesiredState
from serving.control.observed import plain
from serving.control.rollout_steps import RolloutSteps, Specs, rollout_steps
from serving.policy.placement.plan import Placement
from serving.policy.placement.pooling import pooled
from serving.policy.placement.problem import Demand, PlacementProblem
from serving.policy.placement.solve import Task, plans
from serving.policy.transition import TransitionRefused, transition
from serving.policy.transition.steps import Create
from serving.specs import ServedModel, SliceSpec

NONE = "there is no other plan"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a plan is made from: devices that are `lost`, (device, model) of loads that fail, and what is
    wanted as long as no other plan is there."""

    lost: frozenset[str]
    failing: frozenset[tuple[str, str]]
    standing: DesiredState


@dataclass(frozen=True, slots=True)
class VirtualPlan:
    """What is to be wanted, and the states on the way."""

    wanted: DesiredState
    by: tuple[DesiredState, ...] = ()


class Planner(Protocol):
    """Who makes the next best plan. `from_rest`: its ways begin only where what is standing is so."""

    from_rest: bool

    def plan(self, facts: Facts) -> VirtualPlan | str:
        """A plan, or a sentence that says why there is none."""
        ...


class Stubborn:
    """Has no other plan."""

    from_rest = False

    def plan(self, facts: Facts) -> VirtualPlan | str:  # noqa: ARG002  a Planner
        """See `Planner`."""
        return NONE


class FirstFit:
    """Moves what cannot be where it is to the first slice, in their order, that can have it and has room.

    Slices have room for `replicas_max`. What has no place is left out; its model stays, without replicas.
    """

    from_rest = False

    def __init__(self, slices: Collection[SliceSpec], replicas_max: int) -> None:
        self._slices = slices
        self._replicas_max = replicas_max

    def plan(self, facts: Facts) -> VirtualPlan | str:
        """See `Planner`."""
        there = {
            spec: dict[tuple[str, str], DesiredReplica]()
            for spec in self._slices
            if spec.device not in facts.lost
        }
        moved: list[DesiredReplica] = []
        for each in _plain(facts.standing).slices:
            for replica in each.replicas:
                if each.spec in there and (each.spec.device, replica.model) not in facts.failing:
                    there[each.spec][replica.model, replica.variant] = replica
                else:
                    moved.append(replica)
        for replica in moved:
            key = (replica.model, replica.variant)
            for spec, here in there.items():
                can = (spec.device, replica.model) not in facts.failing and key not in here
                if can and len(here) < self._replicas_max:
                    here[key] = replica
                    break
        slices = tuple(DesiredSlice(spec, tuple(here.values())) for spec, here in there.items() if here)
        if not moved:
            return NONE
        return VirtualPlan(replace(facts.standing, slices=slices))


@dataclass
class Solver:
    """Placements by the solver, and transitions step by step. `problem`: with all devices, and what is asked
    now (it may be exchanged); `models`: served whatever happens."""

    problem: PlacementProblem
    models: tuple[ServedModel, ...]
    trials: int = 20
    from_rest: bool = True
    _known: dict[tuple[DesiredSlice, ...], tuple[Placement, Specs]] = field(default_factory=dict)

    def plan(self, facts: Facts) -> VirtualPlan | str:
        """See `Planner`. A transition that is refused is no plan."""
        problem = self._left(facts)
        current, specs = self._standing(facts)
        if not problem.pools:
            return "all devices are lost"
        made = next(plans(Task(problem, current)), None)
        if made is None:
            return NONE
        found = transition(pooled(problem, made.placement), current, made.placement, trials=self.trials)
        if isinstance(found, TransitionRefused):
            return found.reason
        way = rollout_steps(current, specs, found, _spec)
        if not found.groups and current == self._there(facts)[0]:
            return NONE
        return self._plan(way)

    def _plan(self, way: RolloutSteps) -> VirtualPlan:
        *by, last = (DesiredState(slices, self.models) for slices in way.states)
        self._known[last.slices] = way.placement, way.specs
        return VirtualPlan(last, tuple(by))

    def _left(self, facts: Facts) -> PlacementProblem:
        """The problem without lost devices; a model whose loads fail on a device has none of its kind."""
        pools = (
            replace(pool, devices=tuple(each for each in pool.devices if each.name not in facts.lost))
            for pool in self.problem.pools
        )
        kind_of = {device: pool.kind for device, pool in self.problem.pool_of.items()}
        failing = {(kind_of[device], model) for device, model in facts.failing}
        demands = tuple(_without(demand, failing) for demand in self.problem.demands)
        return PlacementProblem(demands, tuple(pool for pool in pools if pool.devices))

    def _standing(self, facts: Facts) -> tuple[Placement, Mapping[str, tuple[SliceSpec, ...]]]:
        """What there is on the devices that are left."""
        placement, specs = self._there(facts)
        return (
            {device: slots for device, slots in placement.items() if device not in facts.lost},
            {device: tuple(several) for device, several in specs.items() if device not in facts.lost},
        )

    def _there(self, facts: Facts) -> tuple[Placement, Specs]:
        return self._known.get(_plain(facts.standing).slices, ({}, {}))


def _spec(created: Create, name: str) -> SliceSpec:
    return SliceSpec(name, (), device=created.device, part=created.share)


def _plain(wanted: DesiredState) -> DesiredState:
    """With the names that the planner has given."""
    return wanted.renamed({each.spec.name: plain(each.spec.name) for each in wanted.slices})


def _without(demand: Demand, failing: Collection[tuple[str, str]]) -> Demand:
    options = tuple(each for each in demand.options if (each.kind, demand.model) not in failing)
    return replace(demand, options=options)
