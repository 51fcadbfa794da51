"""Plans by the solver for a controller, with transitions step by step."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.control.rollouts.rollout_steps import RolloutSteps, Specs, rollout_steps
from serving.control.state.desired import DesiredSlice, DesiredState
from serving.planning.remaining import Outage, remaining
from serving.policy.placement.solve import Task, plans
from serving.policy.placement.terms.plan import Placement
from serving.policy.placement.terms.pooling import pooled
from serving.policy.placement.terms.problem import PlacementProblem
from serving.policy.transition import TransitionRefused, transition
from serving.policy.transition.steps import Create
from serving.simulation.governed.planning import NONE, Facts, VirtualPlan, plain_names
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel


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
        """Return the problem without lost devices; a model with loads that fail on a device has none of its
        kind."""
        kind_of = {device: pool.kind for device, pool in self.problem.pool_of.items()}
        failing = {(kind_of[device], model, None) for device, model in facts.failing}
        return remaining(self.problem, Outage(facts.lost, failing=failing))

    def _standing(self, facts: Facts) -> tuple[Placement, Mapping[str, tuple[SliceSpec, ...]]]:
        """Return the placement and the slices on the devices that are left."""
        placement, specs = self._there(facts)
        return (
            {device: slots for device, slots in placement.items() if device not in facts.lost},
            {device: tuple(several) for device, several in specs.items() if device not in facts.lost},
        )

    def _there(self, facts: Facts) -> tuple[Placement, Specs]:
        return self._known.get(plain_names(facts.standing).slices, ({}, {}))


def _spec(created: Create, name: str) -> SliceSpec:
    return SliceSpec(name, (), device=created.device, part=created.share)
