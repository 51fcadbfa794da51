"""`replicas` of the body of `GET /v2/models/{model}/explain`: why there are so many, as figures."""

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:  # a reader of JSON needs none of it
    from serving.control.control import Control
    from serving.control.scaling.scaling_status import ScalingStatus
    from serving.policy.scaling.interface import PlannedBand


class Expected(TypedDict):
    """What the slow plan has in mind: `low` to `high` replicas of `variant`, for the median and the 95th
    percentile of the load that is forecast. `lacking`: what it could not have, and gives up for that."""

    low: int
    high: int
    variant: str
    why: str
    lacking: str


class ScaledBody(TypedDict):
    """The replicas of a model that follow its load, as
    `serving.control.scaling.scaling_status.ScalingStatus`; costs are in the currency of the prices.

    `policy`: decides the count. `cost_per_hour`: of the model's slices; `held_per_hour`: of all slices that
    are held; `cost_max_per_hour`: the ceiling for these, None if there is none.
    """

    policy: str
    desired: int
    count: int
    ready: int
    coming: int
    standing: int
    least: int
    most: int
    slices: list[str]
    pressure: float
    why: str
    up: str
    down: str
    budget: str
    held: str
    expected: Expected | None
    figures: dict[str, float]
    cost_per_hour: float
    held_per_hour: float
    cost_max_per_hour: float | None


@dataclass(frozen=True, slots=True)
class HourlyCost:
    """What an hour costs: of a model's slices, of all that are held, and at most (inf: no limit)."""

    own: float = 0.0
    held: float = 0.0
    most: float = float("inf")


def describe_replicas(standing: "ScalingStatus", policy: str, bill: HourlyCost) -> ScaledBody:
    """Return the standing as JSON has it."""
    return {
        "policy": policy,
        "desired": standing.desired,
        "count": standing.count,
        "ready": standing.ready,
        "coming": standing.coming,
        "standing": standing.standing,
        "least": standing.least,
        "most": standing.most,
        "slices": list(standing.slices),
        "pressure": standing.pressure,
        "why": standing.why,
        "up": standing.up,
        "down": standing.down,
        "budget": standing.budget,
        "held": standing.held,
        "expected": _expected(standing.band, standing.lacking) if standing.band is not None else None,
        "figures": {name: value for name, value in standing.figures.items() if isfinite(value)},
        "cost_per_hour": bill.own,
        "held_per_hour": bill.held,
        "cost_max_per_hour": bill.most if isfinite(bill.most) else None,
    }


def scaled_model(control: "Control", model: str, policy: str) -> ScaledBody | None:
    """Return the model as control has it at this moment; None where its replicas do not follow its load.
    `policy`: by which they would."""
    scaling = control.scaling
    standing = scaling.standings().get(model)
    if standing is None:
        return None
    held = scaling.held()
    own = (held[name].price for name in standing.slices if name in held)
    bill = HourlyCost(sum(own), scaling.cost_per_hour, scaling.cost_max)
    return describe_replicas(standing, policy, bill)


def _expected(band: "PlannedBand", lacking: str) -> Expected:
    low, high, variant = band.low, band.high, band.variant
    return {"low": low, "high": high, "variant": variant, "why": band.why, "lacking": lacking}
