"""All that is shown of a decision, on the terminal, as JSON, on the page and in pictures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from router.verbs.place.view.figures import ModelFigures
from router.verbs.place.view.steps import ShownStep
from serving.policy.placement.terms.moves import Moves
from serving.policy.placement.terms.plan import Placement, PlacementPlan, cost
from serving.policy.placement.terms.problem import PlacementProblem


@dataclass(frozen=True)
class PlaceReport:
    """All of it.

    `after`: the plan's placement where that is `taken` or does not hold (`refused` says why), else `before`;
    `models` and `busy` (by slice, the share of its time in which it is predicted to compute) are
    of `after`. `reason`: why the plan is taken, or not. `attainment`: the share that is to be in time.
    `priced`: whether anybody said what a device costs, else it is 1. `moves`: from `before` to the plan;
    `steps`: what is done at once, in order.
    `premises`: what it was decided from, as terms and texts.
    """

    problem: PlacementProblem
    before: Placement
    after: Placement
    plan: PlacementPlan
    taken: bool
    reason: str
    models: tuple[ModelFigures, ...]
    attainment: float
    reserve: float
    priced: bool
    moves: Moves = field(default_factory=Moves)
    steps: tuple[tuple[ShownStep, ...], ...] = ()
    refused: tuple[str, ...] = ()
    busy: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    premises: tuple[tuple[str, str], ...] = ()

    @property
    def kept(self) -> bool:
        """Whether what is in place stays because the plan is not worth it."""
        return not self.taken and not self.refused

    @property
    def cost(self) -> float:
        """Of `after`, for an hour."""
        return cost(self.problem, self.after)

    @property
    def bound(self) -> float:
        """What every placement that carries the demands costs at least; 0 where nothing is known."""
        if self.plan.optimal:
            return cost(self.problem, self.plan.placement)
        return self.plan.bound if 0 < self.plan.bound < inf else 0.0

    @property
    def gap(self) -> float:
        """By how much it is dearer than the bound, relative to that."""
        return max(self.cost / self.bound - 1, 0.0) if self.bound else 0.0
