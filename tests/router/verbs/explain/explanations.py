"""Models as they stand, short to write."""

from collections.abc import Mapping, Sequence
from math import inf

from router.observing.telemetry import Counters, Telemetry
from router.verbs.explain.body import Explanation, LadderOfSlice, Promise, RungBody, Variant
from serving.control.scaling.scaling_status import ScalingStatus
from serving.policy.scaling.interface import PlannedBand
from serving.ports import Reply
from serving.values.vocabulary import COMPLETED, Outcome
from tests.builders import model_spec, served
from tests.router.happenings import request

ACCURACY: Mapping[str, float | None] = {"ensemble": 0.9912, "cnn": 0.9867, "mlp": 0.975, "linear": 0.926}
ROW_US = {"ensemble": 4_100.0, "cnn": 1_300.0, "mlp": 410.0, "linear": 60.0}
ROWS = 8
STANDING = ScalingStatus(
    model="digits",
    desired=4,
    count=3,
    ready=2,
    coming=1,
    standing=1,
    least=1,
    most=6,
    slices=("cpu-1", "cpu-2", "cpu-3"),
    pressure=1.24,
    why="310 rows/s come in bursts, of which 3 replicas carry 250",
    up="above 250 rows/s for 1 s",
    down="below 160 rows/s for 5 minutes",
    budget="1% may be missed",
    held="another slice would pass the ceiling of 0.2 an hour",
    band=PlannedBand(2, 4, "cnn", 60_000_000, "as on the days before"),
    figures={"cv": 2.5, "eta": inf},
)


def rung(variant: str, factor: float = 1.0, cost: float = 0.0) -> RungBody:
    """One that takes `factor` times what ROW_US says; one row alone takes twice as long as in a batch."""
    row_us = ROW_US[variant] * factor
    return {
        "variant": variant,
        "accuracy": ACCURACY[variant],
        "row_us": row_us,
        "rows": ROWS,
        "one_us": 2 * row_us,
        "cost": cost,
        "profiled_capacity": {"rows_per_s": 1e6 / ROW_US[variant], "batch_rows": ROWS},
        "capacity_today": {"rows_per_s": 1e6 / row_us, "batch_rows": ROWS},
    }


def ladder(
    names: Sequence[str], carrying: int = 0, preferred: int = 0, where: str = "cpu0", factor: float = 1.0
) -> LadderOfSlice:
    """Of a slice, whose rungs take `factor` times what ROW_US says."""
    rungs = [rung(name, factor) for name in names]
    return {"slice": where, "rungs": rungs, "preferred": preferred, "carrying": carrying}


def promise(ladders: Sequence[LadderOfSlice], **more: object) -> Promise:
    """The most accurate that is at least 0.97 accurate, unless `more` says otherwise."""
    made: Promise = {
        "tier": "",
        "slo_us": 50_000,
        "slo_rows": None,
        "percentile": 99.0,
        "accuracy_min": 0.97,
        "cost_max": None,
        "optimize": "most_accurate",
        "chooses": True,
        "variants": ["ensemble", "cnn", "mlp"],
        "ladders": list(ladders),
    }
    return {**made, **more}  # type: ignore[typeddict-item]


def variants(states: Mapping[str, str], **own: Mapping[str, str]) -> list[Variant]:
    """All of ACCURACY, with replicas in these `states` by slice unless `own` says otherwise of one."""
    return [
        {"name": name, "accuracy": share, "served": True, "states": dict(own.get(name, states))}
        for name, share in ACCURACY.items()
    ]


def explanation(told: Promise, rate: float, afford_us: float | None = None, **more: object) -> Explanation:
    """Of digits, on as many slices as there are ladders."""
    ready = {each["slice"]: "ready" for each in told["ladders"]}
    made: Explanation = {
        "model": "digits",
        "uptime_s": 100.0,
        "answering_variant": "cnn",
        "rate": rate,
        "waiting_rows": 0,
        "slices": len(told["ladders"]),
        "afford_us": afford_us,
        "load": 0.0,
        "load_share": 0.8,
        "selection": "",
        "members": [],
        "cache": None,
        "variants": variants(ready),
        "promises": [told],
        "counters": counters({}),
        "replicas": None,
    }
    return {**made, **more}  # type: ignore[typeddict-item]


def counters(
    answers: Mapping[str, int], downgrades: Mapping[str, int] | None = None, others: Sequence[Outcome] = ()
) -> Counters:
    """So many requests of one row were answered by each variant, as many of them downgraded as is said; the
    others ended otherwise."""
    telemetry = Telemetry([served(model_spec("digits"))])
    why = [reason for reason, count in (downgrades or {}).items() for _ in range(count)]
    for variant in [name for name, count in reversed(list(answers.items())) for _ in range(count)]:
        made = Reply(COMPLETED)
        made.variant, made.accuracy, made.downgrade = variant, ACCURACY[variant], why.pop() if why else ""
        telemetry.request_done(request("digits"), made, 1_000, True)
    for outcome in others:
        telemetry.request_done(request("digits"), Reply(outcome), 1_000, False)
    return telemetry.counters("digits", 0)
