"""Answers that are made of several variants', or whose variant is learnt: ensembles, Exp3 and Exp4.

It stands before the cache and the gateway. A call of a model with a `selection` becomes calls that pin a
member each; they share its deadline, and one that is late, shed or failed is a missing vote (Clipper, NSDI
2017, section 5.2.2). Who is asked, and what votes weigh, is decided by `serving.policy`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from random import Random
from typing import Protocol

from serving.ports import Call, Reply, Serving
from serving.runtime.choosers import Chooser
from serving.runtime.feedback import Feedback, FeedbackError
from serving.runtime.pending_calls import Deliver, Expiries, hand_over
from serving.runtime.polls import Play, Poll, ask_member
from serving.specs import DEFAULT_TENANT, ServedModel, TenantSpec
from serving.vocabulary import (
    BAD_INPUT,
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_UNREACHABLE,
    MODEL_ERROR,
    NO_REPLICA,
    NOT_LOADED,
    Outcome,
)

FIRST_ID = 1 << 60
"""Ids of calls that are selected for begin after it; all others are those of what is behind."""
RESERVE_US = 2_000
"""Before a deadline, by which members are to have answered: the grain of timers is a millisecond, and the
votes are counted in a tenth of one. Never more than a quarter of the time there is."""
_NOT_THERE = frozenset({NO_REPLICA, NOT_LOADED, DEADLINE_UNREACHABLE})


Selected = Callable[[Call, Reply, int], None]


class VariantLoads(Protocol):
    """Of `serving.scheduler.variant_reasons.VariantReasons` what is read here."""

    @property
    def slices(self) -> int:
        """The live ones of the model."""
        ...


class SelectingServing:
    """`serving.ports.Serving` around another. Made on the running event loop. `selected` is told of every
    call of a model with a selection, of its answer, and how long after its arrival that came. `seed`: of what
    is drawn."""

    def __init__(
        self, behind: Serving, selected: Selected = lambda *_: None, seed: int | None = None
    ) -> None:
        self.models: Mapping[str, ServedModel] = behind.models
        self.tenants: Mapping[str, TenantSpec] = behind.tenants
        self._behind = behind
        self._tell = selected
        self._numbers = Random(seed)  # noqa: S311  # which member is played is no secret
        self._choosers: dict[str, Chooser] = {}
        self._open: dict[int, Poll | Play] = {}
        self._count = FIRST_ID
        self._expiries = Expiries(self._expire)
        for model in self.models.values():  # the first call of a model is not to wait for it
            if model.selection is not None:
                with suppress(ValueError):
                    self._chooser(model)

    # what edges see

    @property
    def ready(self) -> bool:
        """As what is behind."""
        return self._behind.ready

    @property
    def open_requests(self) -> int:
        """Accepted calls without a reply; one that several members are asked for is one."""
        asked = sum([each.waiting for each in self._open.values()])
        return self._behind.open_requests - asked + len(self._open)

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        """As what is behind."""
        self._behind.refused(model, outcome, tenant)

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        """As what is behind it."""
        self._behind.answered(model, reply, read_us, made_us)

    def model_ready(self, name: str) -> bool:
        """As what is behind."""
        return self._behind.model_ready(name)

    def now_us(self) -> int:
        """As what is behind."""
        return self._behind.now_us()

    def invalidate(self, model: str = "") -> int:
        """As what is behind."""
        return self._behind.invalidate(model)

    def submit(self, call: Call, deliver: Deliver) -> int:
        """See `serving.ports.Serving.submit`."""
        if call.model.selection is None or call.variant:
            return self._behind.submit(call, deliver)
        try:
            chooser = self._chooser(call.model)
        except ValueError as error:  # the settings should not have let it pass
            return self._turn_away(call, deliver, Reply(MODEL_ERROR, str(error)))
        now = self._behind.now_us()
        call.arrived_us = call.arrived_us or now
        if chooser.pressure.arrived(call.rows, now):
            chooser.look(self._slices(call.model.name), now)
        asked = chooser.ask(call.objective.accuracy_min)
        if not asked:
            said = f"no members of {call.model.name} are {call.objective.accuracy_min:g} accurate"
            return self._turn_away(call, deliver, Reply(BAD_INPUT, f"{said}, alone or together"))
        self._count += 1
        if chooser.exp3 is not None:
            play = self._open[self._count] = Play(self._count, call, deliver, chooser)
            self._play(play)
        else:
            poll = self._open[self._count] = Poll(self._count, call, deliver, chooser)
            self._poll(poll, asked, now)
        return self._count if self._count in self._open else 0

    def cancel(self, request_id: int) -> None:
        """See `serving.ports.Serving.cancel`: all members are cancelled."""
        if request_id <= FIRST_ID:
            self._behind.cancel(request_id)
        elif request_id in self._open:
            self._end(self._open[request_id], Reply(CLIENT_GONE))

    # what operators and clients see of it

    def feedback(self, model: str, given: Sequence[Feedback], tenant: str = DEFAULT_TENANT) -> int:
        """Learn from what a tenant says of a served model's answers to it, and return of how many. All of it
        is taken, or none with FeedbackError. KeyError where the model is not served."""
        self._selected(model).learn(given, self.now_us(), tenant)
        return len(given)

    def selection(self, model: str) -> dict[str, object]:
        """Return what is known of a served model's members, as JSON values. Errors as of `feedback`."""
        return self._selected(model).describe()

    def _selected(self, name: str) -> Chooser:
        model = self.models[name]
        if model.selection is None:
            message = f"{name} selects nothing: its entry in penstock.yaml has no `selection`"
            raise FeedbackError(message, conflict=True)
        try:
            return self._chooser(model)
        except ValueError as error:
            raise FeedbackError(str(error), conflict=True) from None

    # one member, by chance

    def _play(self, play: Play) -> None:
        """Ask the member that is drawn of those that may answer and were there so far."""
        chooser, call = play.chooser, play.call
        allowed = chooser.allowed(call.objective.accuracy_min, play.barred)
        assert chooser.exp3 is not None  # noqa: S101  # only then it is played
        play.member, play.probability = chooser.exp3.play(self._numbers.random(), allowed)
        play.allowed = allowed
        own = ask_member(call, chooser.members[play.member], call.timeout_us)
        request_id = self._behind.submit(own, partial(self._played, play))
        if request_id:  # else it was answered within, maybe by another member
            play.request_id = request_id

    def _played(self, play: Play, reply: Reply) -> None:
        if play.id not in self._open:
            return
        play.request_id = 0
        if reply.outcome in _NOT_THERE:
            play.barred.add(play.member)
            if any(play.chooser.allowed(play.call.objective.accuracy_min, play.barred)):
                self._play(play)
                return
        if reply.outcome is COMPLETED:
            play.sign(reply, self.now_us())
        self._end(play, reply)

    # several members, by vote

    def _poll(self, poll: Poll, asked: Sequence[int], now: int) -> None:
        call = poll.call
        span_us = call.due_us
        reserve_us = min(RESERVE_US, span_us // 4)
        members_us = max(span_us - reserve_us, 1)
        poll.asked = poll.left = tuple(asked)
        # Those that are late are ended by what is behind; this is for the case that it does not.
        self._expiries.add(call.arrived_us + span_us - reserve_us // 2, poll.id, self._open, now)
        for member in asked:
            own = ask_member(call, poll.chooser.members[member], members_us)
            request_id = self._behind.submit(own, partial(self._voted, poll, member))
            if request_id:
                poll.requests[member] = request_id

    def _voted(self, poll: Poll, member: int, reply: Reply) -> None:
        poll.requests.pop(member, None)
        if poll.id not in self._open:
            return
        poll.take(member, reply)
        if not poll.left:
            self._end(poll, poll.decide(self.now_us()))

    def _expire(self, now: int) -> None:
        for poll_id in self._expiries.take(now):
            poll = self._open.get(poll_id)
            if isinstance(poll, Poll):
                self._end(poll, poll.decide(now))

    # steps

    def _end(self, asked: Poll | Play, reply: Reply) -> None:
        del self._open[asked.id]
        for request_id in asked.close():
            self._behind.cancel(request_id)
        self._answer(asked.call, asked.deliver, reply)

    def _turn_away(self, call: Call, deliver: Deliver, reply: Reply) -> int:
        self._behind.refused(call.model.name, reply.outcome, call.tenant)
        self._answer(call, deliver, reply)
        return 0

    def _answer(self, call: Call, deliver: Deliver, reply: Reply) -> None:
        now = self.now_us()
        self._tell(call, reply, now - (call.arrived_us or now))
        hand_over(deliver, reply, call.model.name)

    def _chooser(self, model: ServedModel) -> Chooser:
        """Of the model as it was when it was called; ValueError where its selection does not fit it."""
        chooser = self._choosers.get(model.name)
        if chooser is not None and chooser.model is model:
            return chooser
        known = Chooser(model, chooser)
        if self.models.get(model.name) is model:  # else it is of before a change, and this one call's
            self._choosers = {name: each for name, each in self._choosers.items() if name in self.models}
            self._choosers[model.name] = known
        return known

    def _slices(self, model: str) -> float:
        """Return how many a model has; inf where nobody can say."""
        standing = getattr(self._behind, "standing", None)
        known = standing is not None and model in self.models  # else it has gone since the call was read
        load: VariantLoads | None = standing(model) if standing is not None and known else None
        return inf if load is None else load.slices
