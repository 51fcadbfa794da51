"""A call that members answer for: one that is played, or several that vote."""

from collections.abc import Sequence

import numpy as np

from serving.policy.variants.voting import Classes
from serving.ports import Call, Reply
from serving.selection.ballots import decide
from serving.selection.choosers import Chooser
from serving.selection.feedback import AnsweredPoll
from serving.values.objectives import Objective
from serving.values.vocabulary import COMPLETED, DEADLINE_UNMET, MODEL_ERROR, Downgrade, Kind, Reason

_CROWDED = frozenset({Reason.OVERLOAD, Reason.QUEUE_FULL, Reason.MEMORY_FULL, Reason.QUOTA})
_TELLING = (Kind.REJECTED, Kind.SHED, Kind.FAILED)  # the first tells a client the most: when to come again
_COSTLY = ("miss", "join", "hit")


def ask_member(call: Call, variant: str, timeout_us: int | None) -> Call:
    """Return the call as it is put to one member, which answers it by `timeout_us` (from its arrival) or not.
    No floor of accuracy is a single member's to keep."""
    own = Call(call.model, call.inputs, call.rows)
    own.size, own.parameters, own.tenant = call.size, call.parameters, call.tenant
    own.arrived_us, own.max_age_us, own.store = call.arrived_us, call.max_age_us, call.store
    own.name, own.trace, own.trace_state = call.name, call.trace, call.trace_state
    own.variant, own.timeout_us = variant, timeout_us
    asked = call.objective
    own.objective = Objective(
        asked.tier, asked.slo_us, (variant,), percentile=asked.percentile, slo_rows=asked.slo_rows
    )
    return own


class Play:
    """One member answers, drawn with `probability` of those `allowed`. `barred`: those that could not;
    `answered`: it has."""

    __slots__ = ("allowed", "answered", "barred", "call", "chooser", "id", "member", "probability")

    def __init__(self, play_id: int, call: Call, chooser: Chooser) -> None:
        self.id = play_id
        self.call = call
        self.chooser = chooser
        self.member = 0
        self.probability = 1.0
        self.allowed: Sequence[bool] = ()
        self.barred: set[int] = set()
        self.answered = False

    @property
    def waiting(self) -> Sequence[int]:
        """Return the members that were asked and have not answered."""
        return () if self.answered else (self.member,)

    def sign(self, reply: Reply, now_us: int) -> None:
        """Give an answer its accuracy, and the name for feedback."""
        chooser = self.chooser
        if reply.accuracy is None:
            reply.accuracy = chooser.model.accuracy(chooser.members[self.member])
        named = chooser.ballot.read(reply, self.call.rows)
        if named is not None:
            one = named[None].astype(np.int32)
            answered = AnsweredPoll((self.member,), one, self.probability, tuple(self.allowed))
            reply.query = chooser.queries.keep(answered, now_us, self.call.tenant)


class Poll:
    """Several members answer: `asked`; the members in `waiting` have not yet."""

    __slots__ = ("_named", "_replies", "asked", "call", "chooser", "id", "waiting")

    def __init__(self, poll_id: int, call: Call, chooser: Chooser, asked: Sequence[int]) -> None:
        self.id = poll_id
        self.call = call
        self.chooser = chooser
        self.asked = self.waiting = tuple(asked)
        self._replies: dict[int, Reply] = {}  # in the order in which they came
        self._named: dict[int, Classes] = {}

    def take(self, member: int, reply: Reply) -> None:
        """Take a member's answer or failure."""
        self.waiting = tuple(each for each in self.waiting if each != member)
        self._replies[member] = reply
        self.chooser.pressure.voted(reply.outcome.reason in _CROWDED)
        if reply.outcome is not COMPLETED:
            return
        named = self.chooser.ballot.read(reply, self.call.rows)
        if named is None:
            detail = f"what {self.chooser.members[member]} answers names no class of each row"
            self._replies[member] = Reply(MODEL_ERROR, detail)
            return
        self._named[member] = named
        rows = max(reply.batch_rows, self.call.rows)  # of large calls all batches count
        self.chooser.pressure.ran(member, reply.compute_us / rows)  # kept answers take nothing

    def decide(self, now_us: int) -> Reply:
        """Return the answer, of the votes that are there."""
        chooser, call = self.chooser, self.call
        voted = tuple(sorted(self._named))
        counted = chooser.quorum(voted, call.objective.accuracy_min)
        if not counted:
            return self._excuse(voted)
        named = np.array([self._named[member] for member in counted])
        missing = tuple(member for member in self.asked if member not in counted)
        absent, weights = chooser.absent(missing), chooser.weights(counted, named)
        decided, speaker = decide(named, weights, chooser.ballot.classes, absent)
        reply = Reply(COMPLETED)
        reply.outputs = chooser.ballot.join(self._replies[counted[speaker]], decided)
        reply.variant = f"{chooser.policy}({'+'.join(chooser.members[member] for member in counted)})"
        reply.accuracy = chooser.accuracy(counted)
        reply.confidence = float(decided.confidence.min())
        reply.votes = f"{len(counted)}/{len(self.asked)}"
        reply.downgrade = self._overloaded(missing)
        self._time(reply, counted)
        if chooser.learns:
            every = np.array([self._named[member] for member in voted], np.int32)
            reply.query = chooser.queries.keep(AnsweredPoll(voted, every), now_us, call.tenant)
        return reply

    def _time(self, reply: Reply, counted: tuple[int, ...]) -> None:
        """Copy to the reply the phases of the last counted answer, because the poll waited for it."""
        replies = [each for member, each in self._replies.items() if member in counted]
        last = replies[-1]
        reply.queue_us, reply.batch_us, reply.compute_us = last.queue_us, last.batch_us, last.compute_us
        reply.input_us, reply.output_us, reply.ready_us = last.input_us, last.output_us, last.ready_us
        reply.answered_us = last.answered_us
        reply.batch_rows = last.batch_rows
        reply.rehearsed = any(each.rehearsed for each in replies)
        caches = {each.cache for each in replies}
        reply.cache = next((each for each in _COSTLY if each in caches), "")
        reply.age_us = max(each.age_us for each in replies)

    def _overloaded(self, missing: tuple[int, ...]) -> str:
        """Return why fewer members voted than without pressure; "" if all voted."""
        for member in missing:
            if member in self._named:
                continue  # its vote fell with those that are missing
            reply = self._replies.get(member)
            if reply is None or reply.outcome.kind is Kind.SHED:
                return Downgrade.DEADLINE
            if reply.outcome.reason in _CROWDED:
                return Downgrade.LOAD
        if missing:
            return Downgrade.ABSENT
        overloaded = self.chooser.pressure.overloaded and self.asked != self.chooser.whole
        return Downgrade.LOAD if overloaded else ""

    def _excuse(self, voted: tuple[int, ...]) -> Reply:
        """Return how the call ended: no votes, or too few to keep its floor."""
        said = "none of the members that were asked answered in time"
        if voted:
            names = "+".join(self.chooser.members[member] for member in voted)
            floor = self.call.objective.accuracy_min
            said = (
                f"of the members only {names} answered in time, and no vote of theirs is {floor:g} accurate"
            )
        ended = [each for each in self._replies.values() if each.outcome.kind in _TELLING]
        if not ended:
            return Reply(DEADLINE_UNMET, said)
        best = min(ended, key=lambda each: _TELLING.index(each.outcome.kind))
        reply = Reply(best.outcome, f"{said}; {best.detail}" if best.detail else said)
        reply.retry_us, reply.queue_us = best.retry_us, best.queue_us
        return reply
