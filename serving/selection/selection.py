"""The state machine of models whose answer several members vote on, or one drawn member gives.

A call of a model with a `selection` becomes calls that pin a member each. They share the call's deadline. A
late, shed or failed member is a missing vote (Clipper, NSDI 2017, section 5.2.2). `serving.policy` decides
which members are asked and what votes weigh. Each event returns commands; the driver carries them out after
the event has returned.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from serving.ports import Call, Reply
from serving.selection.choosers import Chooser
from serving.selection.commands import AskMember, CancelMember, Command, DeliverReply, WakeAt
from serving.selection.feedback import Feedback, FeedbackError
from serving.selection.polls import Play, Poll, ask_member
from serving.values.specs import DEFAULT_TENANT, ServedModel
from serving.values.vocabulary import (
    BAD_INPUT,
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_UNREACHABLE,
    MODEL_ERROR,
    NO_REPLICA,
    NOT_LOADED,
)

RESERVE_US = 2_000
"""Before a deadline, by which members are to have answered: the grain of timers is a millisecond, and the
votes are counted in a tenth of one. Never more than a quarter of the time there is."""
_NOT_THERE = frozenset({NO_REPLICA, NOT_LOADED, DEADLINE_UNREACHABLE})
_STALE = 64  # expiries of closed calls that may stay in the heap, beside one for each open call


@dataclass(frozen=True, slots=True)
class Chance:
    """The driver's sources of chance, so that a seed repeats what is drawn.

    - `draw` returns a number that is uniform in [0, 1).
    - `name` returns a name for an answer that no client can guess.
    """

    draw: Callable[[], float]
    name: Callable[[], str]


class Selection:
    """Calls of models with a `selection`, and what the models' choosers know.

    - `models` are the served models; the driver's changes to it are seen at once.
    - `slices` returns how many live slices a model has, inf if that is unknown.
    """

    __slots__ = ("_chance", "_choosers", "_expiries", "_models", "_open", "_slices")

    def __init__(
        self, models: Mapping[str, ServedModel], slices: Callable[[str], float], chance: Chance
    ) -> None:
        self._models = models
        self._slices = slices
        self._chance = chance
        self._choosers: dict[str, Chooser] = {}
        self._open: dict[int, Poll | Play] = {}
        self._expiries: list[tuple[int, int]] = []
        for model in models.values():  # measuring a panel takes milliseconds: no call is to wait for it
            if model.selection is not None:
                with suppress(ValueError):
                    self.chooser(model)

    def arrive(self, call_id: int, call: Call, now_us: int) -> Sequence[Command]:
        """Ask members for a call; reply at once if none of them may answer it."""
        try:
            chooser = self.chooser(call.model)
        except ValueError as error:  # the settings should not have let it pass
            return [DeliverReply(call_id, Reply(MODEL_ERROR, str(error)), refused=True)]
        call.arrived_us = call.arrived_us or now_us
        if chooser.pressure.arrived(call.rows, now_us):
            chooser.look(self._slices(call.model.name), now_us)
        asked = chooser.ask(call.objective.accuracy_min)
        if not asked:
            said = f"no members of {call.model.name} are {call.objective.accuracy_min:g} accurate"
            reply = Reply(BAD_INPUT, f"{said}, alone or together")
            return [DeliverReply(call_id, reply, refused=True)]
        if chooser.exp3 is not None:
            play = self._open[call_id] = Play(call_id, call, chooser)
            return [self._play(play)]
        poll = self._open[call_id] = Poll(call_id, call, chooser, asked)
        return self._poll(poll)

    def member_answered(self, call_id: int, member: int, reply: Reply, now_us: int) -> Sequence[Command]:
        """Take a member's reply; reply to the call if it was the last that the call waits for."""
        asked = self._open.get(call_id)
        if asked is None:
            return ()
        if isinstance(asked, Play):
            return self._played(asked, reply, now_us)
        asked.take(member, reply)
        return () if asked.waiting else self._end(asked, asked.decide(now_us))

    def expire(self, now_us: int) -> Sequence[Command]:
        """Decide polls that have waited for their members as long as they may."""
        commands: list[Command] = []
        expiries = self._expiries
        while expiries and expiries[0][0] <= now_us:
            poll = self._open.get(heappop(expiries)[1])
            if isinstance(poll, Poll):
                commands += self._end(poll, poll.decide(now_us))
        if expiries:
            commands.append(WakeAt(expiries[0][0]))
        return commands

    def cancel(self, call_id: int) -> Sequence[Command]:
        """End a call because its client left; a call that has ended already stays as it is."""
        asked = self._open.get(call_id)
        return () if asked is None else self._end(asked, Reply(CLIENT_GONE))

    def feedback(
        self, model: str, given: Sequence[Feedback], now_us: int, tenant: str = DEFAULT_TENANT
    ) -> None:
        """Learn from a tenant's feedback on a served model's answers.

        The selection takes all of it, or raises FeedbackError and takes none. It raises KeyError if the model
        is not served.
        """
        self._selected(model).learn(given, now_us, tenant)

    def describe(self, model: str) -> dict[str, object]:
        """Return the state of a served model's members, as JSON values. Raises the errors of `feedback`."""
        return self._selected(model).describe()

    def chooser(self, model: ServedModel) -> Chooser:
        """Return the chooser of the model as it was when it was called.

        It raises ValueError if the selection does not fit the model.
        """
        chooser = self._choosers.get(model.name)
        if chooser is not None and chooser.model is model:
            return chooser
        known = Chooser(model, self._chance.name, chooser)
        if self._models.get(model.name) is model:  # else it is of before a change, and this one call's
            self._choosers = {name: each for name, each in self._choosers.items() if name in self._models}
            self._choosers[model.name] = known
        return known

    def _selected(self, name: str) -> Chooser:
        model = self._models[name]
        if model.selection is None:
            without = "its entry in penstock.yaml has no `selection`, and no candidate a margin `accuracy`"
            message = f"{name} takes no feedback: {without}"
            raise FeedbackError(message, conflict=True)
        try:
            return self.chooser(model)
        except ValueError as error:
            raise FeedbackError(str(error), conflict=True) from None

    def _play(self, play: Play) -> AskMember:
        """Ask the member that is drawn of those that may answer and were there so far."""
        chooser, call = play.chooser, play.call
        allowed = chooser.allowed(call.objective.accuracy_min, play.barred)
        assert chooser.exp3 is not None  # noqa: S101  # only then it is played
        play.member, play.probability = chooser.exp3.play(self._chance.draw(), allowed)
        play.allowed = allowed
        own = ask_member(call, chooser.members[play.member], call.timeout_us)
        return AskMember(play.id, play.member, own)

    def _played(self, play: Play, reply: Reply, now_us: int) -> Sequence[Command]:
        if reply.outcome in _NOT_THERE:
            play.barred.add(play.member)
            if any(play.chooser.allowed(play.call.objective.accuracy_min, play.barred)):
                return [self._play(play)]
        play.answered = True
        if reply.outcome is COMPLETED:
            play.sign(reply, now_us)
        return self._end(play, reply)

    def _poll(self, poll: Poll) -> Sequence[Command]:
        """Ask all members of a poll, and have it decided before its deadline."""
        call = poll.call
        span_us = call.due_us
        reserve_us = min(RESERVE_US, span_us // 4)
        members_us = max(span_us - reserve_us, 1)
        # Those that are late are ended by what is behind; this is for the case that it does not.
        commands: list[Command] = [self._wake(call.arrived_us + span_us - reserve_us // 2, poll.id)]
        for member in poll.asked:
            own = ask_member(call, poll.chooser.members[member], members_us)
            commands.append(AskMember(poll.id, member, own))
        return commands

    def _wake(self, expires_us: int, call_id: int) -> WakeAt:
        """Add an expiry, drop those of closed calls if they are most, and return the next wake-up."""
        expiries = self._expiries
        if len(expiries) > 2 * len(self._open) + _STALE:
            expiries[:] = [each for each in expiries if each[1] in self._open]
            heapify(expiries)
        heappush(expiries, (expires_us, call_id))
        return WakeAt(expiries[0][0])

    def _end(self, asked: Poll | Play, reply: Reply) -> Sequence[Command]:
        del self._open[asked.id]
        return [*[CancelMember(asked.id, member) for member in asked.waiting], DeliverReply(asked.id, reply)]
