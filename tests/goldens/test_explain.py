"""What `penstock explain` says of a model, in each state that changes a sentence."""

from collections.abc import Iterator
from dataclasses import replace

from router.verbs.explain.body import Explanation
from router.verbs.explain.replicas import replica_sentences
from router.verbs.explain.scaled import HourlyCost, ScaledBody, describe_replicas
from router.verbs.explain.words import sentences
from serving.control.scaling.scaling_status import ScalingStatus
from serving.values.vocabulary import DEADLINE_QUEUED, OVERLOAD
from tests.goldens.conftest import Golden
from tests.router.verbs.explain.explanations import (
    STANDING,
    counters,
    explanation,
    ladder,
    promise,
    variants,
)

ALL = ("ensemble", "cnn", "mlp")
LOAD_US = 0.8e6
"""Of one slice's time in a second, what is planned with."""
ONE = {"variants": ["cnn"], "accuracy_min": 0.0, "chooses": False}


def told(now: Explanation, before: Explanation | None = None, number: int = 0) -> str:
    return "\n".join(sentences(now, now["promises"][number], before))


def choosing() -> Iterator[tuple[str, str]]:
    """Models that choose among variants by load."""
    own = promise([ladder(ALL)])
    yield "idle", told(explanation(own, 0.0))
    own = promise([ladder(ALL, carrying=1)])
    before = explanation(own, 300.0, LOAD_US / 300, uptime_s=99.0, counters=counters({"ensemble": 5}))
    answered = counters({"cnn": 25, "ensemble": 11}, {"load": 25})
    yield "loaded", told(explanation(own, 310.0, LOAD_US / 310, counters=answered), before)
    answered = counters(
        {"mlp": 250, "cnn": 40}, {"load": 260, "backlog": 30}, [OVERLOAD] * 3 + [DEADLINE_QUEUED]
    )
    own = promise([ladder(ALL, carrying=2)])
    yield "at the floor", told(explanation(own, 3_900.0, 410.0, waiting_rows=1_040, counters=answered))
    ladders = [
        ladder(ALL, 1, where="cpu0"),
        ladder(ALL, 1, where="cpu1", factor=1.2),
        ladder(["cnn", "mlp"], 0, where="gpu0", factor=0.1),
    ]
    states = dict.fromkeys(("cpu0", "cpu1", "gpu0"), "ready")
    replicas = variants(states, ensemble={**states, "gpu0": "loading"})
    now = explanation(promise(ladders), 600.0, 3 * LOAD_US / 600, variants=replicas)
    yield "slices that stand alike together", told(now)
    yield "one as slow as a better one", told(explanation(promise([ladder(["ensemble", "mlp"])]), 0.0))
    yield "late even alone", told(explanation(promise([ladder(ALL)], slo_us=5_000), 0.0))
    now = explanation(promise([ladder(ALL)], slo_rows=8), 0.0)
    now["variants"] += [
        {"name": "huge", "accuracy": 0.999, "served": False, "states": {}},
        {"name": "new", "accuracy": None, "served": True, "states": {"cpu0": "ready"}},
    ]
    yield "an SLO for eight rows, variants not served or not measured", told(now)
    own = promise([ladder(ALL)])
    before = explanation(own, 1.0, uptime_s=500.0, counters=counters({"cnn": 40}))
    yield "after a restart", told(explanation(own, 1.0, uptime_s=0.5, counters=counters({"cnn": 2})), before)
    none = counters({}, None, [OVERLOAD] * 2)
    yield "none answered", told(explanation(own, 1.0, counters=none))
    answered = counters({"cnn": 3})
    answered["answers"]["gold"] = {"ensemble": 1}
    answered["completed"] += 1
    answered["requests"] += 1
    both = [own, promise([ladder(["ensemble"])], tier="gold", slo_rows=1)]
    now = explanation(own, 1.0, counters=answered, promises=both)
    yield "beside a tier", told(now)
    yield "the tier", told(now, number=1)


def limits() -> Iterator[tuple[str, str]]:
    """Floors, ceilings, and models without a choice."""
    own = promise([ladder(["cnn"])], **ONE)
    yield "no choice", told(explanation(own, 310.0))
    own = promise([ladder(["cnn"])], variants=["cnn"], accuracy_min=0.988, percentile=99.9, tier="gold")
    yield "a floor that leaves one", told(explanation(own, 0.0))
    own = promise([], variants=[], accuracy_min=0.999)
    yield "a floor that no variant reaches", told(explanation(own, 0.0))
    cheap = ladder(["cnn", "mlp", "linear"], carrying=2, preferred=2)
    for rung in cheap["rungs"]:
        rung["cost"] = rung["row_us"] / 4_000
    every = {"accuracy_min": 0.0, "cost_max": 0.5, "variants": [*ALL, "linear"]}
    yield "the cheapest", told(explanation(promise([cheap], optimize="cheapest", **every), 310.0))
    dear = ladder(["linear"])
    dear["rungs"][0]["cost"] = 0.9
    yield "a ceiling that all exceed", told(explanation(promise([dear], **every), 0.0))
    answered = counters({"mlp": 12, "linear": 8})
    own = promise([ladder(ALL)], chooses=False, accuracy_min=0.0)
    for policy in ("ensemble", "exp3"):
        now = explanation(own, 1.0, selection=policy, members=["mlp", "linear"], counters=answered)
        yield f"members by {policy}", told(now)


def carried() -> Iterator[tuple[str, str]]:
    """What slices carry, and what is not there."""
    ladders = [ladder(["cnn"], where="cpu0", factor=1.25), ladder(["cnn"], where="cpu1")]
    yield "slower than profiled on one slice", told(explanation(promise(ladders, **ONE), 0.0))
    slow = ladder(["cnn"])
    slow["rungs"][0]["capacity_today"] = None
    yield "no two batches within the SLO today", told(explanation(promise([slow], **ONE), 0.0))
    never = ladder(["cnn"])
    never["rungs"][0] |= {"profiled_capacity": None, "capacity_today": None}
    yield "nor as profiled", told(explanation(promise([never], **ONE), 0.0))
    now = explanation(promise([]), 0.0, variants=variants({"cpu0": "loading"}, mlp={}))
    yield "nothing is loaded yet", told(now)
    found = variants({"cpu0": "failed"}, mlp={})
    found[0]["reasons"] = {"cpu0": "ensemble could not be loaded: OSError: no weights (model.py:9)"}
    yield "loads failed", told(explanation(promise([]), 0.0, variants=found))


def following() -> Iterator[tuple[str, str]]:
    """Replicas that follow the load."""
    own = promise([ladder(["cnn"]), ladder(["cnn"], where="cpu1")])

    def at(scaled: ScaledBody | None, uptime_s: float, good: int) -> Explanation:
        return explanation(own, 10.0, counters=counters({"cnn": good}), uptime_s=uptime_s, replicas=scaled)

    def said(bill: HourlyCost, standing: ScalingStatus = STANDING, was_good: int | None = None) -> str:
        body = describe_replicas(standing, "slo", bill)
        before = None if was_good is None else at(body, 98.0, was_good)
        return "\n".join(replica_sentences(at(body, 100.0, 150), before))

    bill = HourlyCost(0.18, 0.19, 0.2)
    yield "replicas held back by a ceiling", said(bill, was_good=50)
    yield "replicas, no answer between two readings", said(bill, was_good=150)
    idle = ScalingStatus("digits", 0, 0, 0, 0, 0, 0, 4, (), why="nobody has asked for 5 minutes")
    yield "on no slice", said(HourlyCost(), idle)
    one = {"desired": 1, "count": 1, "ready": 1, "coming": 0, "standing": 0, "slices": ("a",)}
    lacking = "taken are 4 of 4 cpu; so accuracy is 0.8 where it would be 0.9"
    stated = replace(STANDING, least=2, most=2, lacking=lacking, **one)  # type: ignore[arg-type]
    yield "a stated number, of which the plan lacks some", said(HourlyCost(0.18, 0.19), stated)
    yield "one on each slice", "\n".join(replica_sentences(at(None, 100.0, 0), None))


def test_explain(golden: Golden) -> None:
    golden("explain", dict([*choosing(), *limits(), *carried(), *following()]))
