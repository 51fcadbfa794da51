"""What a replica policy sees of a model, once a period, and what it answers: how many replicas to have.

A policy is one object for each model, with its own small state. It knows no slice, price or other model:
`serving/control/scaling/scaling.py` divides what there is among the models, and says which slice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from serving.policy.scaling.carried.capacity import Capacity


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A model's counters since the start, and its queue at this moment. All counts are of rows.

    `offered`: that came, accepted or not, in `requests` requests; `gaps_s2`: the sum of the squares of the
    gaps between these, in square seconds. `completed`: answered, `missed` of them or others: answered late,
    refused or given up for lack of capacity, or failed with their worker. `took_us`: the sum over requests
    that were answered of arrival to answer, `answered` of them; `busy_us`: computed for it on all slices.
    `waiting` for a batch, the first of them for `oldest_us`; `running` in batches.
    """

    model: str
    offered: int = 0
    requests: int = 0
    gaps_s2: float = 0.0
    completed: int = 0
    missed: int = 0
    answered: int = 0
    took_us: int = 0
    busy_us: int = 0
    waiting: int = 0
    oldest_us: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True)
class PlannedBand:
    """What the slow plan has in mind for a model: `low` to `high` replicas (median and 95th percentile of the
    forecast) until `until_us`, and `variant`, by which it reckons. `why`: in words."""

    low: int
    high: int
    variant: str
    until_us: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """One model at one look.

    `seen`: the load now; `before`: at the look `period_us` ago. `ready` replicas get batches, `coming` are
    being started or loaded. The answer is held within `least` and `most`. `start_us`: the usual time from the
    wish for a replica to its first batch. `capacities`: of n replicas alike, by variant that may answer, most
    accurate first. `variant`: the variant that a plan counts on. `band`: the slow plan, None if there is
    none. `percentile`: the share of rows to answer in time, per cent.
    """

    now_us: int
    period_us: int
    seen: LoadReport
    before: LoadReport
    ready: int
    coming: int
    least: int
    most: int
    slo_us: int
    start_us: int
    variant: str
    capacities: Mapping[str, Capacity]
    band: PlannedBand | None = None
    percentile: float = 99.0


@dataclass(frozen=True, slots=True)
class Wish:
    """A wish for `count` replicas. `why`: a sentence for people, with figures; `up` and `down`: what would
    change it. `standby`: how many more to load, without batches, if that costs no slice. `variants`: those
    that should be resident, in the order of their loading; () for all that may answer. `cv`: the coefficient
    of variation of the gaps between requests that a plan should use. The policy has found it; it is 1 if the
    policy does not look. `budget`: a sentence on what may be missed, what was, and what that leaves."""

    count: int
    why: str = ""
    up: str = ""
    down: str = ""
    budget: str = ""
    standby: int = 0
    variants: tuple[str, ...] = ()
    pressure: float = 0.0  # 1.0: what there is is just enough; the external scalers' metric
    cv: float = 1.0
    figures: Mapping[str, float] = field(default_factory=dict)


class ReplicaPolicy(Protocol):
    """How many replicas a model is to have. `period_us`: how often it is asked."""

    period_us: int

    def decide(self, view: View) -> Wish:
        """Return the wish for this look, once a period."""
        ...
