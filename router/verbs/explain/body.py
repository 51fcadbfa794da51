"""The body of `GET /v2/models/{model}/explain`: what is promised of a model, and what decides which of its
variants answers."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, NotRequired, TypedDict

from router.observing.cache_status import CacheStatus
from router.observing.isolation import IsolationStatus
from router.verbs.explain.scaled import ScaledBody
from serving.policy.variants.climbing import LOAD_SHARE
from serving.values.objectives import Objective
from serving.values.specs import ServedModel

if TYPE_CHECKING:  # a reader of JSON needs neither
    from router.observing.status import ReplicaBody
    from router.observing.telemetry import Counters
    from serving.profile.derived.carrying import ProfiledCapacity
    from serving.scheduler.models.variant_reasons import LadderReasons, VariantReasons


class Carries(TypedDict):
    """What a slice carries: rows a second, in batches of `batch_rows`."""

    rows_per_s: float
    batch_rows: int


class RungBody(TypedDict):
    """A variant that a slice would be given a batch for, as
    `serving.scheduler.models.variant_reasons.RungReasons`."""

    variant: str
    accuracy: float | None
    row_us: float
    rows: int
    one_us: float
    cost: float
    profiled_capacity: Carries | None
    capacity_today: Carries | None


class LadderOfSlice(TypedDict):
    """A slice's rungs, the most accurate first; `preferred` answers without pressure, `carrying` carries the
    present load."""

    slice: str
    rungs: list[RungBody]
    preferred: int
    carrying: int


class Promise(TypedDict):
    """What a tier is promised; "" is for requests without a tier. `chooses`: whether variants besides the
    answering variant may answer; `variants` may. `cost_max` is None if there is no limit. `slo_rows`: the SLO
    counts once for every `slo_rows` rows of a request, None if it counts once."""

    tier: str
    slo_us: int
    slo_rows: int | None
    percentile: float
    accuracy_min: float
    cost_max: float | None
    optimize: str
    chooses: bool
    variants: list[str]
    ladders: list[LadderOfSlice]


class Variant(TypedDict):
    """One of the model's folder; `states` of its replicas, by slice; `reasons` why they are not there, where
    that is known."""

    name: str
    accuracy: float | None
    served: bool
    states: dict[str, str]
    reasons: NotRequired[dict[str, str]]


class Explanation(TypedDict):
    """All of it. `rate` in rows a second; `afford_us`: of the slices' time a row may take at this rate, None
    where nothing holds it back; `load_share`: of the slices' time that is planned with; `selection`: ""
    unless its `members` answer together, or by what is learnt of them. `replicas`: None where there is one on
    each slice, whatever the load; `cache`: None where no answer is kept, and none was to be; `isolation`: of
    its worker processes."""

    model: str
    uptime_s: float
    answering_variant: str
    rate: float
    waiting_rows: int
    slices: int
    afford_us: float | None
    load: float
    load_share: float
    selection: str
    members: list[str]
    variants: list[Variant]
    promises: list[Promise]
    counters: "Counters"
    replicas: ScaledBody | None
    cache: CacheStatus | None
    isolation: NotRequired[IsolationStatus]


def describe(
    model: ServedModel,
    standing: "VariantReasons",
    replicas: "Sequence[ReplicaBody]",
    counters: "Counters",
    uptime_s: float,
    scaled: ScaledBody | None = None,
) -> Explanation:
    """Return the model as it stands, without its kept answers; `replicas` may be of others too. `scaled`:
    None where its replicas do not follow its load."""
    own = [each for each in replicas if each["model"] == model.name]
    selection = model.selection
    return {
        "model": model.name,
        "uptime_s": uptime_s,
        "answering_variant": model.answering_variant,
        "rate": standing.rate,
        "waiting_rows": standing.waiting_rows,
        "slices": standing.slices,
        "afford_us": _finite(standing.afford_us),
        "load": standing.load,
        "load_share": LOAD_SHARE,
        "selection": selection.policy if selection else "",
        "members": list(selection.members) if selection else [],
        "variants": [
            {
                "name": each.name,
                "accuracy": each.accuracy,
                "served": each.name in model.variants,
                "states": {one["slice"]: one["state"] for one in own if one["variant"] == each.name},
                "reasons": {
                    one["slice"]: one["reason"]
                    for one in own
                    if one["variant"] == each.name and one.get("reason")
                },
            }
            for each in model.spec.variants
        ],
        "promises": _promises(model, standing.ladders),
        "counters": counters,
        "replicas": scaled,
        "cache": None,
    }


def _promises(model: ServedModel, ladders: "Mapping[str, Sequence[LadderReasons]]") -> list[Promise]:
    found = [_promise(model.own, "", model.needs.chooses, ladders.get("", ()))]
    for needs in model.tiers:
        objective = model.by_tier[needs.tier]
        chooses = needs.over(model.needs).chooses
        found.append(_promise(objective, needs.tier, chooses, ladders.get(needs.tier, ())))
    return found


def _promise(objective: Objective, tier: str, chooses: bool, ladders: "Sequence[LadderReasons]") -> Promise:
    return {
        "tier": tier,
        "slo_us": objective.slo_us,
        "slo_rows": objective.slo_rows or None,
        "percentile": objective.percentile,
        "accuracy_min": objective.accuracy_min,
        "cost_max": _finite(objective.cost_max),
        "optimize": objective.optimize,
        "chooses": chooses,
        "variants": list(objective.variants),
        "ladders": [_ladder(each) for each in ladders],
    }


def _ladder(ladder: "LadderReasons") -> LadderOfSlice:
    rungs: list[RungBody] = [
        {
            "variant": each.variant,
            "accuracy": each.accuracy,
            "row_us": each.row_us,
            "rows": each.rows,
            "one_us": each.one_us,
            "cost": each.cost,
            "profiled_capacity": _carries(each.profiled),
            "capacity_today": _carries(each.lately),
        }
        for each in ladder.rungs
    ]
    return {
        "slice": ladder.slice,
        "rungs": rungs,
        "preferred": ladder.preferred,
        "carrying": ladder.carrying,
    }


def _carries(found: "ProfiledCapacity | None") -> Carries | None:
    return None if found is None else {"rows_per_s": found.rate, "batch_rows": found.rows}


def _finite(value: float) -> float | None:
    """Return the value, or None for infinity, which JSON does not know."""
    return value if isfinite(value) else None
