"""Which requests a candidate answers: the share, callers that stay where they are, and what stays anyway."""

from dataclasses import replace

import pytest

from serving.ports import Call
from serving.runtime.calls.splitting import Split, Splits
from serving.values.objectives import Needs
from serving.values.specs import ServedModel
from tests.builders import model_spec, served

PRESENT, CANDIDATE = served(model_spec("digits")), served(model_spec("digits-2"))


def splits(share: float, sticky: str = "none", candidate: ServedModel = CANDIDATE) -> Splits:
    made = Splits(1)
    made.by_model["digits"] = Split(candidate, share, sticky)
    return made


def call(tenant: str = "default", name: str = "", model: ServedModel = PRESENT) -> Call:
    made = Call(model, (), 3)
    made.tenant, made.name, made.trace = tenant, name, "trace"
    made.size, made.timeout_us, made.arrived_us, made.priority = 7, 5_000, 11, 2
    made.parameters, made.max_age_us, made.store = (("a", 1),), 9, False
    return made


def went(made: Splits, *calls: Call) -> int:
    return sum(made.route(each).model.name == "digits-2" for each in calls)


def test_models_without_a_candidate_and_shares_of_none_and_all() -> None:
    assert Splits().route(kept := call()) is kept
    assert splits(0.5).route(other := call(model=served(model_spec("other")))) is other
    assert went(splits(1.0), *(call() for _ in range(50))) == 50


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_the_share_is_kept(share: float) -> None:
    count = went(splits(share), *(call() for _ in range(4000)))
    assert abs(count / 4000 - share) < 0.03
    named = went(splits(share, "request"), *(call(name=f"r{number}") for number in range(4000)))
    assert abs(named / 4000 - share) < 0.03


def test_a_caller_stays_and_moves_only_to_the_candidate_as_its_share_grows() -> None:
    tenants = [f"tenant-{number}" for number in range(300)]
    before: set[str] = set()
    for share in (0.05, 0.25, 0.5, 1.0):
        made = splits(share, "tenant")
        now = {each for each in tenants if went(made, call(each))}
        assert now == {each for each in tenants if went(made, call(each))}
        assert before <= now
        before = now
    assert len(before) == 300


def test_callers_that_are_not_told_apart_are_drawn() -> None:
    assert 0 < went(splits(0.5, "tenant"), *(call() for _ in range(40))) < 40
    assert 0 < went(splits(0.5, "request"), *(call() for _ in range(40))) < 40


def test_a_call_of_the_candidate_is_the_same_but_for_its_model_and_promise() -> None:
    asked = call("shop", "mine")
    made = splits(1.0).route(asked)
    assert made is not asked
    assert made.objective == CANDIDATE.own
    others = [each for each in Call.__slots__ if each not in ("model", "objective")]
    assert {each: getattr(made, each) for each in others} == {each: getattr(asked, each) for each in others}


def test_a_pinned_variant_and_a_tier_that_the_candidate_lacks_stay() -> None:
    pinned = call()
    pinned.variant = "cnn"
    assert splits(1.0).route(pinned) is pinned
    tiered = replace(PRESENT, tiers=(Needs(tier="gold"),))
    asked = call(model=tiered)
    asked.objective = tiered.by_tier["gold"]
    assert splits(1.0).route(asked) is asked
    also = replace(CANDIDATE, tiers=(Needs(tier="gold"),))
    assert splits(1.0, candidate=also).route(asked).objective == also.by_tier["gold"]


def test_a_floor_that_the_client_states_goes_along() -> None:
    asked = call()
    asked.objective = replace(PRESENT.own, accuracy_min=0.9)
    assert splits(1.0).route(asked).objective.accuracy_min == 0.9
