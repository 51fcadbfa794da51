"""What a gateway says of how a model stands: all that its promises and ladders say, as JSON."""

import json
from dataclasses import replace
from math import inf

import httpx

from router.http.app import create_app
from router.observing.status import ReplicaBody
from router.observing.telemetry import Telemetry
from router.payloads.bulk.pool import Bulk
from router.verbs.explain.body import Explanation, describe
from router.verbs.explain.route import add_explain
from router.verbs.explain.words import sentences
from serving.profile.derived.carrying import ProfiledCapacity
from serving.scheduler.models.variant_reasons import LadderReasons, RungReasons, VariantReasons
from serving.values.objectives import Needs, SelectionSpec
from serving.values.specs import Limits, ServedModel
from tests.builders import model_spec, served
from tests.router.fakes import FakeServing

CNN = RungReasons("cnn", 0.98, 1_300.0, 8, 2_000.0, 0.4)
LINEAR = RungReasons("linear", 0.92, 60.0, 16, 90.0, 0.0, ProfiledCapacity(16, 960.0, 16_667.0), None)


def model() -> ServedModel:
    """Digits with a floor of its own, and one tier without a choice of variants that is not as accurate."""
    spec = model_spec("digits", ("cnn", "linear", "unserved"))
    known = tuple(
        replace(each, accuracy=share) for each, share in zip(spec.variants, (0.98, 0.92, None), strict=True)
    )
    own = served(replace(spec, variants=known))
    bulk = Needs("bulk", slo_us=200_000, accuracy_min=0.5, cost_max=2.0, optimize="cheapest")
    return replace(own, variants=("cnn", "linear"), needs=Needs(accuracy_min=0.97), tiers=(bulk,))


def standing(afford_us: float = 2_500.0) -> VariantReasons:
    own = (LadderReasons("cpu0", (CNN,), 0, 0),)
    bulk = (LadderReasons("cpu0", (CNN, LINEAR), 1, 1),)
    return VariantReasons("digits", 320.0, 5, 1, afford_us, 0.4, {"": own, "bulk": bulk})


def replica(name: str, variant: str, state: str) -> ReplicaBody:
    return {
        "model": name,
        "variant": variant,
        "slice": "cpu0",
        "state": state,
        "profile": "fresh",
        "profile_ratio": 1.0,
        "renewing": False,
    }


def described(own: ServedModel, stands: VariantReasons) -> Explanation:
    replicas = [replica("digits", "cnn", "ready"), replica("digits", "linear", "loading"),
                replica("other", "cnn", "failed")]  # fmt: skip
    return describe(own, stands, replicas, Telemetry([own]).counters("digits", 0), 12.5)


def test_each_promise_stands_with_its_own_ladders() -> None:
    found = described(model(), standing())
    own, bulk = found["promises"]
    assert (own["tier"], own["variants"], own["accuracy_min"], own["cost_max"]) == ("", ["cnn"], 0.97, None)
    assert (bulk["tier"], bulk["variants"], bulk["slo_us"], bulk["cost_max"]) == (
        "bulk", ["cnn", "linear"], 200_000, 2.0,
    )  # fmt: skip
    assert [(each["preferred"], each["carrying"]) for each in bulk["ladders"]] == [(1, 1)]
    assert bulk["ladders"][0]["rungs"][1] == {
        "variant": "linear", "accuracy": 0.92, "row_us": 60.0, "rows": 16, "one_us": 90.0, "cost": 0.0,
        "profiled_capacity": {"rows_per_s": 16_667.0, "batch_rows": 16}, "capacity_today": None,
    }  # fmt: skip
    assert [(each["name"], each["served"], each["states"]) for each in found["variants"]] == [
        ("cnn", True, {"cpu0": "ready"}),
        ("linear", True, {"cpu0": "loading"}),
        ("unserved", False, {}),
    ]
    assert (found["rate"], found["waiting_rows"], found["afford_us"], found["selection"]) == (
        320,
        5,
        2500,
        "",
    )


def test_what_nothing_holds_back_is_json_too() -> None:
    found = described(model(), standing(inf))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["afford_us"] is None
    assert all(sentences(found, each) for each in found["promises"])


def test_a_model_of_which_nothing_is_stated_chooses_nothing() -> None:
    plain = replace(model(), needs=Needs(), tiers=())
    (own,) = described(plain, standing())["promises"]
    assert (own["chooses"], own["variants"]) == (False, ["cnn"])


def test_who_answers_together_is_said() -> None:
    voting = replace(model(), selection=SelectionSpec("ensemble", ("cnn", "linear"), "Y"))
    found = described(voting, standing())
    assert (found["selection"], found["members"]) == ("ensemble", ["cnn", "linear"])


async def test_the_route_answers_with_it_and_suggests_models() -> None:
    serving = FakeServing()
    app = create_app(serving, serving.telemetry.statistics, name="p", version="1", bulk=Bulk(Limits()))
    add_explain(app, serving, lambda _asked: described(model(), standing()))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        answer = await client.get("/v2/models/simple/explain")
        assert (answer.status_code, answer.json()["promises"][1]["tier"]) == (200, "bulk")
        unknown = await client.get("/v2/models/simpel/explain")
        assert unknown.status_code == 404
        assert "did you mean 'simple'?" in unknown.json()["error"]
