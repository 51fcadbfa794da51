"""Members share a deadline, votes that are late or lost are missing, and one answer comes in any case."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.ports import Call, Reply
from serving.runtime.calls.selecting import FIRST_ID, SelectingServing
from serving.selection.feedback import Feedback, FeedbackError
from serving.values.specs import ServedModel
from serving.values.vocabulary import (
    ALL_OUTCOMES,
    BAD_INPUT,
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_UNMET,
    MODEL_ERROR,
    NO_REPLICA,
    OVERLOAD,
    Outcome,
)
from tests.runtime.members import Load, Members
from tests.seeds import drawn
from tests.selection.panels import ACCURACY, CLASSES, NAMES, ask, selecting_model, validation


class Desk:
    """Calls are put here, as an edge would; what they came to is in `replies`."""

    def __init__(self, policy: str, slo_us: int = 1_000_000) -> None:
        self.model = selecting_model(policy, slo_us)
        self.behind = Members(self.model)
        self.counted: list[Reply] = []
        self.serving = SelectingServing(self.behind, lambda _, reply, __: self.counted.append(reply), seed=1)
        self.replies: list[Reply] = []

    def put(self, call: Call) -> int:
        return self.serving.submit(call, self.replies.append)

    def answer(self, **wanted: object) -> Reply:
        """To a call that is answered at once."""
        assert self.put(ask(self.model, **wanted)) == 0  # type: ignore[arg-type]
        assert self.serving.open_requests == 0
        return self.replies[-1]


def named(reply: Reply) -> list[int]:
    """The class of each row."""
    return [int(each) for each in scores(reply).argmax(1)]


def scores(reply: Reply) -> np.ndarray:
    tensor = reply.outputs[1]
    return np.frombuffer(tensor.data, np.float32).reshape(tensor.shape)


def speakers(reply: Reply) -> str:
    return bytes(reply.outputs[0].data).decode()


async def test_the_majority_answers_and_the_answer_says_who_and_how_surely() -> None:
    desk = Desk("ensemble")
    desk.behind.named = {"a": [0], "b": [2], "c": [2]}
    reply = desk.answer()
    assert desk.behind.asked == ["a", "b", "c"]
    assert named(reply) == [2]
    assert speakers(reply) == "b"
    assert (reply.variant, reply.votes, reply.downgrade) == ("ensemble(a+b+c)", "3/3", "")
    assert reply.accuracy == 1.0  # as measured: they never err together
    assert reply.confidence == pytest.approx(1.5 / 2.4, abs=0.03)
    assert scores(reply).sum() == pytest.approx(1)
    assert scores(reply)[0, 2] == pytest.approx(reply.confidence)
    assert reply.query == ""


async def test_each_row_is_decided_and_other_outputs_are_of_one_member() -> None:
    desk = Desk("ensemble")
    desk.behind.named = {"a": [0, 1, 1], "b": [2, 1, 3], "c": [2, 1, 2]}
    reply = desk.answer(rows=3)
    assert named(reply) == [2, 1, 1]  # of three that differ the heaviest
    assert speakers(reply) == "aaa"  # agrees on two rows, and weighs more than b and c, who do as well
    assert reply.confidence == pytest.approx(0.9 / 2.4, abs=0.03)  # of the least sure row


async def test_members_get_the_call_as_it_is_and_one_deadline_before_its_own() -> None:
    desk = Desk("ensemble", slo_us=50_000)
    call = ask(desk.model, timeout_us=30_000)
    call.parameters, call.max_age_us, call.store, call.arrived_us = (("p", 1),), 5, False, 77
    call.name, call.trace, call.trace_state = "mine", "trace", "state"
    desk.put(call)
    for own, name in zip(desk.behind.calls, NAMES, strict=True):
        assert (own.variant, own.timeout_us, own.arrived_us) == (name, 28_000, 77)
        assert (own.parameters, own.max_age_us, own.store, own.inputs) == (
            call.parameters, 5, False, call.inputs,
        )  # fmt: skip
        assert own.objective.variants == (name,)
        assert (own.name, own.trace, own.trace_state) == ("mine", "trace", "state")
    assert call.variant == ""


async def test_a_member_that_stalls_costs_its_vote_and_not_the_deadline() -> None:
    desk = Desk("ensemble", slo_us=30_000)
    desk.behind.named = {"a": [1], "b": [2], "c": [2]}
    desk.behind.held = {"c"}
    told: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    begun = desk.behind.now_us()
    assert desk.serving.submit(ask(desk.model), told.set_result) > FIRST_ID
    assert desk.serving.open_requests == 1
    reply = await told
    assert desk.behind.now_us() - begun >= 28_000
    assert desk.behind.cancelled == ["c"]
    assert named(reply) == [1]  # the heavier of two
    assert (reply.variant, reply.votes, reply.downgrade) == ("ensemble(a+b)", "2/3", "deadline")
    assert reply.confidence == pytest.approx(0.9 / 2.4, abs=0.03)
    assert reply.accuracy == pytest.approx(0.9, abs=0.02)
    assert desk.serving.open_requests == 0


@pytest.mark.parametrize(
    ("outcome", "why"), [(OVERLOAD, "load"), (DEADLINE_QUEUED, "deadline"), (NO_REPLICA, "absent")]
)
async def test_a_member_that_fails_is_a_missing_vote_and_the_answer_says_why(
    outcome: Outcome, why: str
) -> None:
    desk = Desk("ensemble")
    desk.behind.named = {"a": [1], "b": outcome, "c": [1]}
    reply = desk.answer()
    assert (reply.variant, reply.votes, reply.downgrade) == ("ensemble(a+c)", "2/3", why)
    assert reply.outcome is COMPLETED


async def test_where_no_member_answers_the_most_telling_of_their_outcomes_is_the_calls() -> None:
    desk = Desk("ensemble")
    desk.behind.named = {"a": MODEL_ERROR, "b": NO_REPLICA, "c": DEADLINE_QUEUED}
    reply = desk.answer()
    assert reply.outcome is NO_REPLICA
    assert reply.retry_us == 5000
    assert "b said so" in reply.detail


async def test_where_all_are_late_the_call_is_shed_at_its_deadline() -> None:
    desk = Desk("exp4", slo_us=20_000)
    desk.behind.held = {*NAMES}
    told: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    desk.serving.submit(ask(desk.model), told.set_result)
    assert (await told).outcome is DEADLINE_UNMET
    assert sorted(desk.behind.cancelled) == [*NAMES]


@pytest.mark.parametrize("policy", ["ensemble", "exp3", "exp4"])
async def test_a_cancelled_call_cancels_its_members_and_is_told_once(policy: str) -> None:
    desk = Desk(policy)
    desk.behind.held = {*NAMES}
    request_id = desk.put(ask(desk.model))
    desk.serving.cancel(request_id)
    desk.serving.cancel(request_id)  # its edge may not know yet
    assert [reply.outcome for reply in desk.replies] == [CLIENT_GONE]
    assert sorted(desk.behind.cancelled) == sorted(desk.behind.asked)
    assert desk.serving.open_requests == 0


@pytest.mark.parametrize("policy", ["ensemble", "exp3", "exp4"])
async def test_pinned_calls_and_models_without_a_selection_pass_through(policy: str) -> None:
    desk = Desk(policy)
    desk.behind.held = {"b", ""}
    pinned, plain = ask(desk.model), ask(replace(desk.model, selection=None))
    pinned.variant = "b"
    assert (desk.put(pinned), desk.put(plain)) == (1, 2)
    assert desk.behind.calls == [pinned, plain]
    desk.serving.cancel(1)
    assert [reply.outcome for reply in desk.replies] == [CLIENT_GONE]
    assert desk.counted == []
    assert desk.serving.invalidate() == 7


@pytest.mark.parametrize("bad", [np.full((1, CLASSES), np.nan, np.float32), np.zeros((1, 3), np.float32)])
async def test_an_answer_that_names_no_class_is_a_missing_vote(bad: np.ndarray) -> None:
    desk = Desk("ensemble")
    desk.behind.named = {"a": bad, "b": [3], "c": [3]}
    reply = desk.answer()
    assert (reply.variant, named(reply)) == ("ensemble(b+c)", [3])
    desk.behind.named = dict.fromkeys(NAMES, bad)
    assert desk.answer().outcome is MODEL_ERROR


async def test_a_floor_that_nobody_reaches_is_refused_with_the_floor() -> None:
    desk = Desk("exp4")
    reply = desk.answer(floor=0.95)
    assert reply.outcome is BAD_INPUT
    assert "0.95" in reply.detail
    assert desk.behind.turned_away == [BAD_INPUT]
    assert desk.behind.calls == []


ENDINGS = st.sampled_from([[0], [1], [2], OVERLOAD, NO_REPLICA, MODEL_ERROR, DEADLINE_QUEUED])


@settings(max_examples=drawn(60))
@given(
    st.sampled_from(["ensemble", "exp3", "exp4"]),
    st.tuples(ENDINGS, ENDINGS, ENDINGS),
    st.sampled_from([0.0, 0.65, 0.75, 0.85, 0.95, 1.0]),
    st.lists(st.sampled_from(NAMES), unique=True),
    st.booleans(),
)
def test_every_call_is_told_once_and_no_answer_is_below_its_floor(
    policy: str, endings: tuple[list[int] | Outcome, ...], floor: float, held: list[str], leaves: bool
) -> None:
    async def run() -> None:
        desk = Desk(policy)
        desk.behind.named = dict(zip(NAMES, endings, strict=True))
        desk.behind.held = set(held)
        request_id = desk.put(ask(desk.model, floor=floor))
        for name in held:
            if leaves or name not in desk.behind.asked:
                continue
            desk.behind.held.discard(name)  # asked again it answers
            desk.behind.let(name)
        if not desk.replies:
            desk.serving.cancel(request_id)
        (reply,) = desk.replies
        assert desk.counted == [reply]
        assert reply.outcome in ALL_OUTCOMES
        assert desk.serving.open_requests == 0 == desk.behind.open_requests
        if reply.outcome is COMPLETED:
            voted = (
                reply.variant.partition("(")[2].rstrip(")").split("+")
                if policy != "exp3"
                else [reply.variant]
            )
            assert all(isinstance(desk.behind.named[name], list) for name in voted)
            least = min(ACCURACY[name] for name in voted) if reply.accuracy is None else reply.accuracy
            assert least >= floor

    asyncio.run(run())


async def test_votes_that_are_too_few_for_the_floor_are_no_answer_unless_some_of_them_keep_it() -> None:
    desk = Desk("ensemble")
    desk.behind.named = {"a": OVERLOAD, "b": [1], "c": [1]}
    assert desk.answer(floor=0.75).variant == "ensemble(b+c)"
    short = desk.answer(floor=0.95)
    assert short.outcome is OVERLOAD
    assert "only b+c answered" in short.detail


@pytest.mark.slow
async def test_under_pressure_the_cheapest_who_keep_the_floor_are_asked_and_later_all_again() -> None:
    desk = Desk("ensemble")
    begun_us = desk.behind.now_us()
    desk.behind.now_us = lambda: begun_us + desk.behind.ahead_us  # type: ignore[method-assign]
    desk.answer()
    for slices, floor, expected in (
        (1, 0.0, ["a", "b", "c"]),  # no member is as good as all three
        (1, 0.85, ["a"]),
        (1, 0.75, ["b"]),
        (20, 0.75, ["a", "b", "c"]),
    ):
        desk.behind.load = Load(slices)
        desk.behind.ahead_us += 50_000
        for _ in range(800):  # 200 a second, of 7 ms each: 1.4 slices
            desk.behind.calls.clear()
            desk.behind.ahead_us += 5000
            reply = desk.answer(floor=floor)
        assert desk.behind.asked == expected
        assert reply.accuracy is not None
        assert reply.accuracy >= floor
        assert reply.downgrade == ("" if len(expected) == 3 else "load")


async def test_exp3_asks_one_member_and_learns_from_labels_which() -> None:
    desk = Desk("exp3")
    desk.behind.named = {"a": [1], "b": [2], "c": [3]}
    for _ in range(600):
        reply = desk.answer()
        assert reply.variant == desk.behind.calls[-1].variant
        assert reply.accuracy == ACCURACY[reply.variant]
        assert desk.serving.feedback("m", [Feedback(reply.query, labels=(2,))]) == 1
    assert len(desk.behind.calls) == 600
    assert desk.behind.asked[-100:].count("b") > 60
    told = desk.serving.selection("m")
    assert told["feedback"] == 600
    members = told["members"]
    assert isinstance(members, list)
    assert sum(each["plays"] for each in members) == 600
    assert sum(each["probability"] for each in members) == pytest.approx(1)


async def test_exp3_draws_another_where_a_member_is_not_there_and_never_one_below_the_floor() -> None:
    desk = Desk("exp3")
    desk.behind.named = {"a": NO_REPLICA, "b": [2], "c": [3]}
    for _ in range(50):
        assert desk.answer(floor=0.75).variant == "b"
    assert "c" not in desk.behind.asked
    assert "a" in desk.behind.asked
    desk.behind.named["b"] = NO_REPLICA
    assert desk.answer(floor=0.75).outcome is NO_REPLICA


async def test_exp4_follows_who_is_right_and_says_how_sure_it_is() -> None:
    desk = Desk("exp4")
    desk.behind.named = {"a": [1], "b": [1], "c": [3]}
    first = desk.answer()
    assert (first.variant, first.accuracy, named(first)) == ("exp4(a+b+c)", None, [1])
    assert first.confidence == pytest.approx(2 / 3)
    for _ in range(60):
        desk.serving.feedback("m", [Feedback(desk.answer().query, labels=(3,))])
    last = desk.answer()
    assert named(last) == [3]
    assert last.confidence is not None
    assert last.confidence > 0.9


async def test_feedback_that_cannot_be_is_refused_with_words_and_none_of_it_is_taken() -> None:
    desk = Desk("exp4")
    one, two = desk.answer().query, desk.answer()
    good = Feedback(one, labels=(0,))
    for bad, words in (
        (Feedback("nobody", labels=(0,)), "unknown"),
        (good, "twice"),
        (Feedback(two.query, labels=(0, 1)), "has 1 rows.*got 2"),
        (Feedback(two.query, labels=(4,)), "from 0 to 3"),
        (Feedback(two.query, losses=(0.5,)), "single members"),
    ):
        with pytest.raises(FeedbackError, match=words):
            desk.serving.feedback("m", [good, bad])
    assert desk.serving.selection("m")["feedback"] == 0
    assert desk.serving.feedback("m", [good]) == 1
    with pytest.raises(FeedbackError, match="taken before"):
        desk.serving.feedback("m", [good])
    desk.behind.ahead_us = 601_000_000
    with pytest.raises(FeedbackError, match="too long ago"):
        desk.serving.feedback("m", [Feedback(two.query, labels=(0,))])
    with pytest.raises(FeedbackError, match="learns nothing"):
        Desk("ensemble").serving.feedback("m", [good])
    with pytest.raises(KeyError):
        desk.serving.feedback("nobody", [good])


async def test_what_was_learnt_outlives_a_reload_that_keeps_the_members() -> None:
    desk = Desk("exp4")
    query = desk.answer().query
    desk.serving.feedback("m", [Feedback(desk.answer().query, labels=(1,))])

    def reload(model: ServedModel) -> None:
        desk.model = model
        desk.behind.models["m"] = model  # type: ignore[index]

    learnt = desk.serving.selection("m")["members"]
    reload(replace(desk.model, slo_us=2_000_000))
    assert desk.serving.selection("m")["members"] == learnt
    assert desk.serving.feedback("m", [Feedback(query, labels=(1,))]) == 1
    reload(selecting_model("exp4", members=("a", "b")))
    fresh = desk.serving.selection("m")
    assert (fresh["feedback"], fresh["members"]) == (
        0, [{"name": "a", "weight": pytest.approx(0.5)}, {"name": "b", "weight": pytest.approx(0.5)}],
    )  # fmt: skip


async def test_a_panel_is_measured_anew_only_where_its_data_or_members_are_others() -> None:
    desk = Desk("ensemble")
    known = desk.serving._selection.chooser(desk.model).panel
    served = desk.behind.models
    assert isinstance(served, dict)
    served["m"] = replace(desk.model, slo_us=7_000)
    assert desk.serving._selection.chooser(served["m"]).panel is known
    served["m"] = replace(desk.model, spec=replace(desk.model.spec, validation=validation(120)))
    assert desk.serving._selection.chooser(served["m"]).panel is not known


async def test_a_selection_that_does_not_fit_ends_calls_with_words_and_harms_nobody_else() -> None:
    desk = Desk("ensemble")
    desk.model = replace(desk.model, spec=replace(desk.model.spec, validation=None))
    reply = desk.answer()
    assert reply.outcome is MODEL_ERROR
    assert "validation" in reply.detail
