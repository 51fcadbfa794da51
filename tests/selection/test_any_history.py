"""Whatever happens in whatever order, each call gets exactly one reply and no member is left at work for it.

Hypothesis writes histories of arrivals, members' answers, expiries, cancels, feedback and reloads.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from serving.ports import Call, Reply
from serving.selection.commands import AskMember, CancelMember, Command, DeliverReply, WakeAt
from serving.selection.feedback import Feedback, FeedbackError
from serving.selection.selection import Chance, Selection
from serving.values.specs import ServedModel
from serving.values.vocabulary import (
    ALL_OUTCOMES,
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    MODEL_ERROR,
    NEVER_US,
    NO_REPLICA,
    NOT_LOADED,
    OVERLOAD,
    Outcome,
)
from tests.seeds import examples
from tests.selection.panels import ACCURACY, NAMES, answer, ask, selecting_model

GRAIN_US = 1_000
SLO_US = 20 * GRAIN_US
UNANSWERED: Sequence[Outcome] = (OVERLOAD, NO_REPLICA, NOT_LOADED, MODEL_ERROR, DEADLINE_QUEUED)

pauses = st.sampled_from([0, 0, 0, 1, 5, 19, 20, 60])
picks = st.integers(0, 1 << 16)
floors = st.sampled_from([0.0, 0.0, 0.65, 0.75, 0.85, 0.95])


class History(RuleBasedStateMachine):
    """Time passes before each event: often none, sometimes past what is due."""

    @initialize(
        policy=st.sampled_from(["ensemble", "exp3", "exp4"]),
        slices=st.sampled_from([0.01, 1.0, inf]),
        draws=st.randoms(use_true_random=False),
    )
    def begin(self, policy: str, slices: float, draws: object) -> None:
        self.now_us = 1_000_000
        self.wake_us = NEVER_US
        self.policy = policy
        self.models: dict[str, ServedModel] = {"m": selecting_model(policy, SLO_US)}
        names = count()
        chance = Chance(draws.random, lambda: f"answer-{next(names)}")  # type: ignore[attr-defined]
        self.selection = Selection(self.models, lambda _: slices, chance)
        self.calls: dict[int, Call] = {}
        self.replies: dict[int, Reply] = {}
        self.asked: dict[tuple[int, int], Call] = {}  # what members are at
        self.ever_asked: set[tuple[int, int]] = set()
        self.queries: list[str] = []

    def follow(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case AskMember(call_id, member, call):
                    assert call_id not in self.replies
                    assert (call_id, member) not in self.ever_asked
                    assert call.variant == NAMES[member]
                    self.asked[call_id, member] = call
                    self.ever_asked.add((call_id, member))
                case CancelMember(call_id, member):
                    del self.asked[call_id, member]
                case DeliverReply(call_id, reply):
                    assert call_id not in self.replies
                    self.replies[call_id] = reply
                    self.check(call_id, reply)
                case WakeAt(at_us):
                    self.wake_us = at_us

    def check(self, call_id: int, reply: Reply) -> None:
        """A reply leaves nobody at work, and keeps the call's floor."""
        assert reply.outcome in ALL_OUTCOMES
        assert all(each != call_id for each, _ in self.asked)
        if reply.outcome is COMPLETED:
            voted = reply.variant.partition("(")[2].rstrip(")").split("+")
            known = min(ACCURACY[name] for name in voted) if reply.accuracy is None else reply.accuracy
            assert known >= self.calls[call_id].objective.accuracy_min
            self.queries += [reply.query] if reply.query else []

    def pass_time(self, pause: int) -> None:
        self.now_us += pause * GRAIN_US

    @rule(pause=pauses, floor=floors, timeout=st.sampled_from([None, None, 0, 3]))
    def arrive(self, pause: int, floor: float, timeout: int | None) -> None:
        self.pass_time(pause)
        call_id = len(self.calls) + 1
        call = ask(self.models["m"], floor=floor, timeout_us=None if timeout is None else timeout * GRAIN_US)
        self.calls[call_id] = call
        self.follow(self.selection.arrive(call_id, call, self.now_us))

    @precondition(lambda self: self.asked)
    @rule(pause=pauses, pick=picks, said=st.one_of(st.sampled_from(UNANSWERED), st.integers(0, 3)))
    def member_answered(self, pause: int, pick: int, said: Outcome | int) -> None:
        self.pass_time(pause)
        call_id, member = list(self.asked)[pick % len(self.asked)]
        del self.asked[call_id, member]
        reply = answer(NAMES[member], [said], compute_us=2_000) if isinstance(said, int) else Reply(said)
        self.follow(self.selection.member_answered(call_id, member, reply, self.now_us))

    @precondition(lambda self: self.calls)
    @rule(pick=picks)
    def answer_after_the_end(self, pick: int) -> None:
        """A member that was cancelled reports it."""
        call_id = pick % len(self.calls) + 1
        if call_id in self.replies:
            assert self.selection.member_answered(call_id, pick % 3, Reply(CLIENT_GONE), self.now_us) == ()

    @rule(pause=pauses, early=st.booleans())
    def expire(self, pause: int, early: bool) -> None:
        """Timers fire when they are due, or early."""
        self.pass_time(pause)
        if early or self.wake_us <= self.now_us:
            self.wake()

    def wake(self) -> None:
        self.wake_us = NEVER_US
        self.follow(self.selection.expire(self.now_us))

    @precondition(lambda self: self.calls)
    @rule(pause=pauses, pick=picks)
    def cancel(self, pause: int, pick: int) -> None:
        """A client leaves; it may have its reply already."""
        self.pass_time(pause)
        call_id = pick % len(self.calls) + 1
        told = call_id in self.replies
        self.follow(self.selection.cancel(call_id))
        assert told or self.replies[call_id].outcome is CLIENT_GONE

    @precondition(lambda self: self.queries)
    @rule(pause=pauses, pick=picks, label=st.integers(0, 3))
    def feedback(self, pause: int, pick: int, label: int) -> None:
        """Each answer is learnt from once."""
        self.pass_time(pause)
        query = self.queries.pop(pick % len(self.queries))
        said = [Feedback(query, labels=(label,))]
        self.selection.feedback("m", said, self.now_us)
        with pytest.raises(FeedbackError, match="taken before"):
            self.selection.feedback("m", said, self.now_us)

    @rule(slo=st.integers(10, 30))
    def reload(self, slo: int) -> None:
        """Open calls go on with the model as it was, and what was learnt of the members stays."""
        self.models["m"] = replace(self.models["m"], slo_us=slo * GRAIN_US)

    def teardown(self) -> None:
        """Every call that is open ends: a poll by its timer alone, a play when its member's time is over."""
        if not hasattr(self, "selection"):
            return
        while self.wake_us != NEVER_US:
            self.now_us = max(self.now_us, self.wake_us)
            self.wake()
        assert self.policy == "exp3" or set(self.replies) == set(self.calls)
        for call_id, member in list(self.asked):
            del self.asked[call_id, member]
            late = Reply(DEADLINE_QUEUED)
            self.follow(self.selection.member_answered(call_id, member, late, self.now_us))
        assert set(self.replies) == set(self.calls)
        assert not self.asked


History.TestCase.settings = settings(max_examples=examples(1000), stateful_step_count=40, deadline=None)
TestAnyHistory = History.TestCase
