"""The objective of a request, and the rule for the best answer within it.

Operators state needs for a model and for its tiers. Resolved for a model as the gateway serves it, they are
an objective. Three published systems have needs of this one kind:
- INFaaS (ATC 2021): the cheapest variant that is accurate and fast enough.
- Tolerance Tiers (ISPASS 2019): an answer that is less accurate than the best by a given amount, for less.
- Model-Switching (HotCloud 2020): the most accurate variant that the load allows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

MOST_ACCURATE, BALANCED, CHEAPEST = OPTIMIZE = ("most_accurate", "balanced", "cheapest")
PERCENTILE = 99.0  # the default share of requests to answer within the SLO
_ROUNDING = 1e-9  # a floor of best - tolerance must not shut out the best


@dataclass(frozen=True, slots=True)
class RateSpec:
    """How much a tenant may send; 0 where there is no limit.

    `burst_s`: so many seconds of its rates it may send at once. `concurrent`: how many of its requests may be
    without an answer at a time.
    """

    requests_per_s: float = 0.0
    rows_per_s: float = 0.0
    burst_s: float = 1.0
    concurrent: int = 0


@dataclass(frozen=True, slots=True)
class Needs:
    """What an operator states for a model or a tier; None and "" mean that the operator states nothing.

    - `percentile` of the requests are answered within `slo_us`.
    - `accuracy_min` is the least accuracy (in the model's own metric, 0..1).
    - `tolerance` states the floor as a distance below the best variant that is served.
    - `cost_max` is for a million rows, in the currency of the slices' prices.
    - `optimize` is one of OPTIMIZE.
    - `slo_rows`: the rows of the largest request that `slo_us` is stated for, see `Objective.due_us`.
    """

    tier: str = ""
    slo_us: int | None = None
    percentile: float | None = None
    accuracy_min: float | None = None
    tolerance: float | None = None
    cost_max: float | None = None
    optimize: str = ""
    slo_rows: int | None = None

    @property
    def chooses(self) -> bool:
        """Whether the gateway may choose which variant answers, not only the answering one."""
        return bool(self.optimize) or self.floored or self.cost_max is not None

    @property
    def floored(self) -> bool:
        """Whether the operator states an accuracy floor, as `accuracy_min` or as `tolerance`."""
        return self.accuracy_min is not None or self.tolerance is not None

    def over(self, base: "Needs") -> "Needs":
        """Return these needs, with `base` where they state nothing.

        A floor replaces the floor of `base`, however each is stated.
        """
        floor = self if self.floored else base
        return Needs(
            self.tier or base.tier,
            base.slo_us if self.slo_us is None else self.slo_us,
            base.percentile if self.percentile is None else self.percentile,
            floor.accuracy_min,
            floor.tolerance,
            base.cost_max if self.cost_max is None else self.cost_max,
            self.optimize or base.optimize,
            base.slo_rows if self.slo_rows is None else self.slo_rows,
        )

    def floor(self, best: float) -> float:
        """Return the least accuracy of an answer; 0 for no floor. `best`: the best variant's accuracy."""
        if self.accuracy_min is not None:
            return self.accuracy_min
        return max(0.0, best - self.tolerance) if self.tolerance is not None else 0.0


@dataclass(frozen=True, slots=True)
class Objective:
    """Needs as a model can meet them.

    - `tier` is "" for the model's own objective.
    - `variants` may answer, the most accurate first; those without a measured accuracy come last. It is empty
      if no variant is accurate enough.
    - `accuracy_min` is the floor, 0 for none; `cost_max` is inf for no limit.
    - `slo_rows` is 0 if the SLO is for requests of any number of rows.
    """

    tier: str
    slo_us: int
    variants: tuple[str, ...]
    optimize: str = MOST_ACCURATE
    accuracy_min: float = 0.0
    cost_max: float = inf
    percentile: float = PERCENTILE
    slo_rows: int = 0

    def parts(self, rows: int) -> int:
        """Return how many times the SLO a request of `rows` rows may take: once for each `slo_rows` rows."""
        return 1 if rows <= self.slo_rows or not self.slo_rows else -(-rows // self.slo_rows)

    def due_us(self, rows: int) -> int:
        """Return the time from arrival in which a request of `rows` rows must be answered to be in time."""
        return self.slo_us * self.parts(rows)

    @property
    def wants(self) -> tuple[tuple[str, ...], str, float]:
        """The settings that decide which variant answers; requests with equal settings may share a batch."""
        return self.variants, self.optimize, self.cost_max


def resolve(needs: Needs, accuracy: Mapping[str, float | None], answering: str, slo_us: int) -> Objective:
    """Return the objective of `needs`. `slo_us`: the model's own SLO.

    `accuracy`: of each served variant, in the model's order. `answering`: the variant that answers if the
    gateway may not choose.
    """
    floor = needs.floor(max((share for share in accuracy.values() if share is not None), default=0.0))
    return Objective(
        needs.tier,
        slo_us if needs.slo_us is None else needs.slo_us,
        ranked(accuracy, floor) if needs.chooses else (answering,),
        needs.optimize or MOST_ACCURATE,
        floor,
        inf if needs.cost_max is None else needs.cost_max,
        PERCENTILE if needs.percentile is None else needs.percentile,
        needs.slo_rows or 0,
    )


def ranked(accuracy: Mapping[str, float | None], floor: float) -> tuple[str, ...]:
    """Return the variants with at least the accuracy `floor`, the most accurate first.

    A variant without a measured accuracy meets no floor.
    """
    known = {name: -1.0 if share is None else share for name, share in accuracy.items()}
    enough = [name for name, share in known.items() if not floor or share >= floor - _ROUNDING]
    return tuple(sorted(enough, key=lambda name: -known[name]))


SELECTION_POLICIES = ("ensemble", "exp3", "exp4")


@dataclass(frozen=True, slots=True)
class SelectionSpec:
    """How a model combines several variants, or learns from feedback which is best (Clipper, NSDI 2017).

    `policy` is one of these:
    - "ensemble": the weighted majority of `members`. Validation data give the weights and the joint accuracy
      (Cocktail, NSDI 2022).
    - "exp3": one member answers, chosen by the feedback on each (Auer et al. 2002).
    - "exp4": all members vote, weighted by the feedback.

    `output` is the output tensor; its largest element names the class. The gateway takes feedback on an
    answer for `keep_us`.
    """

    policy: str
    members: tuple[str, ...]
    output: str
    keep_us: int = 600_000_000


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """The range in which a model's number of replicas follows its load.

    There are `least` to `most` replicas (None: as many as the model has slices) on the slices that it may
    use. With `least` 0, the last replica is unloaded when arrivals make a request unlikely for now. When
    capacity is short, models of a lower `priority` lose replicas first.
    """

    least: int = 1
    most: int | None = None
    priority: int = 0


SCALING_POLICIES = ("slo", "hpa", "keda", "ray_serve", "aiad", "mark", "inferline", "infaas", "fixed")


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """How the number of replicas follows load, for all models with a ReplicaSpec.

    - `policy`: one of SCALING_POLICIES. All but "slo" are as published, for comparison.
    - `target`: the value that the policy aims at, in the policy's own unit; None for its default.
    - `cost_max`: the limit for an hour of all slices that are held; inf for no limit.
    - `fair`: when slices are short, the model that has least of its need comes first. Otherwise the model
      comes first that gains most from one more, by the models' weights.
    """

    policy: str = "slo"
    target: float | None = None
    cost_max: float = inf
    fair: bool = False
