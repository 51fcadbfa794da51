"""What planning gets: the models, their rates, the devices as a problem, and the placement of today."""

from collections.abc import Mapping
from dataclasses import dataclass

from serving.policy.placement.terms.plan import Placement
from serving.policy.placement.terms.problem import PlacementProblem
from serving.simulation.traffic.traffic import Mix, constant
from serving.values.specs import Limits, ServedModel, TenantSpec

ONE_ROW = constant(1)


@dataclass(frozen=True, slots=True)
class AskedRate:
    """What is asked of a model: `requests` a second, each of `rows`."""

    requests: float
    rows: Mix = ONE_ROW

    @property
    def rows_per_s(self) -> float:
        """Rows a second."""
        return self.requests * self.rows.mean


@dataclass(frozen=True, slots=True)
class PlanningTask:
    """The task of one decision.

    - `models`, `tenants`, `limits`: as the gateway serves them.
    - `problem`: what is to be placed; its rates have the reserve.
    - `current`: the placement of today.
    - `rates`: by model, without the reserve.
    """

    models: tuple[ServedModel, ...]
    tenants: tuple[TenantSpec, ...]
    limits: Limits
    problem: PlacementProblem
    current: Placement
    rates: Mapping[str, AskedRate]
