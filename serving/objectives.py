"""What a request is promised, and what is best for it within that.

Operators state needs, for a model and for tiers; of a model as it is served they are an objective. INFaaS
(ATC 2021: the cheapest variant that is accurate and quick enough), Tolerance Tiers (ISPASS 2019: so much less
accurate than the best, for less) and Model-Switching (HotCloud 2020: the most accurate that the load allows)
are needs of this one kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

MOST_ACCURATE, BALANCED, CHEAPEST = OPTIMIZE = ("most_accurate", "balanced", "cheapest")
PERCENTILE = 99.0  # of requests that are answered within the SLO, where nobody says otherwise
_ROUNDING = 1e-9  # a floor of best - tolerance must not shut out the best


@dataclass(frozen=True, slots=True)
class Needs:
    """What operators state of a model or a tier; None and "" where they do not.

    `percentile` of the requests are answered within `slo_us`; at least `accuracy_min` accurate (in the
    model's own metric, 0..1), or at most `tolerance` less so than the best variant that is served; for at
    most `cost_max` a million rows, in the currency of the slices' prices. `optimize`: one of OPTIMIZE.
    `slo_rows`: the rows of the largest request that `slo_us` is stated for, see `Objective.due_us`.
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
        """Whether the gateway may choose which variant answers; else the model's answering variant does."""
        return bool(self.optimize) or self.floored or self.cost_max is not None

    @property
    def floored(self) -> bool:
        """Whether a floor of accuracy is stated, in one way or the other."""
        return self.accuracy_min is not None or self.tolerance is not None

    def over(self, base: "Needs") -> "Needs":
        """These, and of `base` what they leave open. A floor takes the place of another, whichever way it is
        stated."""
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
        """The least accuracy of an answer, where that of the best variant is `best`; 0 for no floor."""
        if self.accuracy_min is not None:
            return self.accuracy_min
        return max(0.0, best - self.tolerance) if self.tolerance is not None else 0.0


@dataclass(frozen=True, slots=True)
class Objective:
    """Needs as a model can meet them. `tier`: "" for the model's own. `variants`: those that may answer, the
    most accurate first; those whose accuracy nobody has measured come last. Empty where none is accurate
    enough. `accuracy_min`: the floor, 0 for none; `cost_max`: inf for no limit; `slo_rows`: 0 for requests
    of any number of rows."""

    tier: str
    slo_us: int
    variants: tuple[str, ...]
    optimize: str = MOST_ACCURATE
    accuracy_min: float = 0.0
    cost_max: float = inf
    percentile: float = PERCENTILE
    slo_rows: int = 0

    def parts(self, rows: int) -> int:
        """How many times the SLO a request of so many rows is given: once for each `slo_rows` of them."""
        return 1 if rows <= self.slo_rows or not self.slo_rows else -(-rows // self.slo_rows)

    def due_us(self, rows: int) -> int:
        """How soon a request of so many rows is to be answered, from its arrival. By this it is judged."""
        return self.slo_us * self.parts(rows)

    @property
    def wants(self) -> tuple[tuple[str, ...], str, float]:
        """What decides which variant answers: requests that want the same may share a batch."""
        return self.variants, self.optimize, self.cost_max


def resolve(needs: Needs, accuracy: Mapping[str, float | None], answering: str, slo_us: int) -> Objective:
    """`accuracy`: of each served variant, in the model's order; `answering`: the one that answers where
    nothing may be chosen; `slo_us`: the model's own."""
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
    """The variants that are at least so accurate, the most accurate first. One whose accuracy nobody has
    measured keeps no floor."""
    known = {name: -1.0 if share is None else share for name, share in accuracy.items()}
    enough = [name for name, share in known.items() if not floor or share >= floor - _ROUNDING]
    return tuple(sorted(enough, key=lambda name: -known[name]))


SELECTION_POLICIES = ("ensemble", "exp3", "exp4")


@dataclass(frozen=True, slots=True)
class SelectionSpec:
    """How a model's answer is made of several variants, or learnt from feedback (Clipper, NSDI 2017).

    `policy`: "ensemble", a weighted majority of `members` whose weights and joint accuracy follow from
    validation data (Cocktail, NSDI 2022); "exp3", one of them, by what feedback says of each (Auer et al.
    2002); "exp4", all of them, weighed by that. `output`: the output tensor whose largest element names the
    class. Feedback on an answer is taken for `keep_us`.
    """

    policy: str
    members: tuple[str, ...]
    output: str
    keep_us: int = 600_000_000


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """That a model's replicas follow its load: `least` to `most` of them (None: as many as it has slices) on
    the slices that it may use. With `least` 0 it is let go when arrivals make it unlikely that it is asked
    for soon. Where not all can have what they wish, those of a lower `priority` go without first."""

    least: int = 1
    most: int | None = None
    priority: int = 0


SCALING_POLICIES = ("slo", "hpa", "keda", "ray_serve", "aiad", "mark", "inferline", "infaas", "fixed")


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """How replicas follow load, for all models that say so. `policy`: one of SCALING_POLICIES, the others as
    published, to compare; `target`: what they aim at, in their own unit, None for their default. `cost_max`:
    of an hour of all slices that are held; inf for no limit. `fair`: where slices are too few, who has least
    of what it needs comes first, else where one more is worth most by the models' weights."""

    policy: str = "slo"
    target: float | None = None
    cost_max: float = inf
    fair: bool = False
