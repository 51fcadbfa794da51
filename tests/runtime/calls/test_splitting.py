"""Which requests a candidate answers: the share, callers that stay where they are, and what stays anyway."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from serving.policy.rollouts.evidence import Trials
from serving.ports import Call, Reply
from serving.runtime.calls.splitting import COPIED_BYTES_MAX, Shadow, Split, Splits
from serving.values.objectives import Needs
from serving.values.specs import ServedModel
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED, OVERLOAD, Outcome
from tests.builders import model_spec, served

PRESENT, CANDIDATE = served(model_spec("digits")), served(model_spec("digits-2"))


def splits(share: float, sticky: str = "none", candidate: ServedModel = CANDIDATE) -> Splits:
    made = Splits(1)
    made.by_model["digits"] = Split(candidate, share, sticky)
    return made


def call(tenant: str = "default", name: str = "", model: ServedModel = PRESENT) -> Call:
    made = Call(model, (), 3)
    made.tenant, made.name, made.trace, made.trace_state = tenant, name, "trace", "state"
    made.size, made.timeout_us, made.arrived_us, made.priority = 7, 5_000, 11, 2
    made.parameters, made.max_age_us, made.store = (("a", 1),), 9, False
    return made


def went(made: Splits, *calls: Call) -> int:
    return sum(made.route(each).model.name == "digits-2" for each in calls)


def test_models_without_a_candidate_and_shares_of_none_and_all() -> None:
    assert Splits().route(kept := call()) is kept
    assert splits(0.5).route(other := call(model=served(model_spec("other")))) is other
    assert went(splits(1.0), *(call() for _ in range(50))) == 50


def test_a_request_that_names_the_version_stays() -> None:
    versioned = served(replace(model_spec("digits"), version=2))
    assert went(splits(1.0), call(model=versioned)) == 1
    assert splits(1.0).route(named := call(model=versioned.pinned)) is named


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
    others = [
        "arrived_us", "inputs", "max_age_us", "name", "parameters", "priority", "rows", "sequence", "size",
        "store", "tenant", "timeout_us", "trace", "variant",
    ]  # fmt: skip
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


class House:
    """A model with a candidate that computes copies; `tell` answers a call as a model does."""

    def __init__(self, share: float = 1.0) -> None:
        self.splits = Splits(1)
        self.splits.shadows["digits"] = Shadow(CANDIDATE, share)
        self.copies: list[tuple[Call, Callable[[Reply], None]]] = []
        self.got: list[Reply] = []

    def submit(self, copy: Call, deliver: Callable[[Reply], None]) -> int:
        self.copies.append((copy, deliver))
        return 1

    def ask(self, asked: Call) -> Callable[[Reply], None]:
        return self.splits.beside(asked, self.got.append, self.submit)

    @property
    def compared(self) -> Trials:
        return self.splits.compared.get("digits", Trials())


def answer(value: float, outcome: Outcome = COMPLETED) -> Reply:
    made = Reply(outcome)
    if outcome is COMPLETED:
        made.outputs = (Tensor("Y", "FP32", (1,), np.float32(value).tobytes()),)
    return made


def asked_with(size: int = 4) -> Call:
    made = call()
    made.inputs = (Tensor("X", "FP32", (1, size // 4), bytearray(size)),)
    return made


def test_a_copy_is_computed_after_the_client_has_its_answer_and_compared() -> None:
    house = House()
    for value in (1.0, 2.0):
        tell = house.ask(asked := asked_with())
        assert not house.copies
        tell(answer(1.0))
        ((copy, take),) = house.copies
        assert len(house.got) == 1
        assert (copy.model, copy.timeout_us, copy.arrived_us, copy.store) == (CANDIDATE, None, 0, False)
        asked.inputs[0].data[0] = 9  # type: ignore[index]  # the edge uses its buffer again
        assert bytes(copy.inputs[0].data) == bytes(4)
        take(answer(value))
        house.copies.clear()
        house.got.clear()
    assert house.compared == Trials(1, 2)


def test_one_copy_is_under_way_at_a_time_and_none_of_what_failed_or_is_large() -> None:
    house = House()
    house.ask(asked_with())(answer(1.0))
    house.ask(asked_with())(answer(1.0))
    assert len(house.copies) == 1
    house.copies.pop()[1](answer(0.0, OVERLOAD))  # a copy that was refused says nothing
    house.ask(asked_with())(answer(0.0, OVERLOAD))
    house.ask(asked_with(COPIED_BYTES_MAX + 4))(answer(1.0))
    assert (house.copies, house.compared) == ([], Trials())
    house.ask(asked_with())(answer(1.0))
    assert len(house.copies) == 1


def test_a_share_of_the_requests_is_copied_and_none_after_its_end() -> None:
    house = House(0.2)
    for _ in range(1000):
        house.ask(asked_with())(answer(1.0))
        for _, take in house.copies:
            take(answer(1.0))
        house.copies.clear()
    assert 150 < house.compared.count < 250
    house = House()
    tell = house.ask(asked_with())
    house.splits.shadows.clear()
    tell(answer(1.0))
    assert house.copies == []
