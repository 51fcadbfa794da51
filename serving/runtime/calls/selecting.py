"""Answers that are made of several variants', or whose variant is learnt: ensembles, Exp3 and Exp4.

It stands before the cache and the gateway. `serving.selection` decides which members a call asks and what it
is answered; this carries the commands out, after each event's call has returned.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from random import Random
from secrets import token_hex
from typing import Final, Protocol, assert_never

from serving.ports import Call, Reply, Serving
from serving.runtime.calls.exact_versions import ExactVersions
from serving.runtime.calls.pending_calls import Deliver, hand_over
from serving.runtime.clocks.alarm import Alarm
from serving.selection.commands import AskMember, CancelMember, Command, DeliverReply, WakeAt
from serving.selection.feedback import Feedback
from serving.selection.selection import Chance, Selection
from serving.values.specs import DEFAULT_TENANT, ServedModel, TenantSpec
from serving.values.vocabulary import Outcome

FIRST_ID = 1 << 60
"""Ids of calls that are selected for begin after it; all others are those of what is behind."""
NAME_BYTES: Final = 16
"""Of chance in an answer's name. NIST SP 800-63B asks for 64 bits; a name is easy to send at any length."""


Selected = Callable[[Call, Reply, int], None]


def name_answer() -> str:
    """Return a name for an answer that no client can guess."""
    return token_hex(NAME_BYTES)


class VariantLoads(Protocol):
    """Of `serving.scheduler.models.variant_reasons.VariantReasons` what is read here."""

    @property
    def slices(self) -> int:
        """The live ones of the model."""
        ...


class SelectingServing:
    """`serving.ports.Serving` around another. Made on the running event loop. `selected` is called for every
    call of a model with a selection, with its answer and how long after its arrival that came. `seed`: for
    what is drawn at random."""

    def __init__(
        self, behind: Serving, selected: Selected = lambda *_: None, seed: int | None = None
    ) -> None:
        self.models: Mapping[str, ServedModel] = behind.models
        self.tenants: Mapping[str, TenantSpec] = behind.tenants
        self._behind = behind
        self._exact = ExactVersions(behind)
        self._tell = selected
        self._edges: dict[int, tuple[Call, Deliver]] = {}
        self._asked: dict[tuple[int, int], int] = {}  # ids of requests, by call and member
        self._count = FIRST_ID
        numbers = Random(seed)  # noqa: S311  # which member is played is no secret
        self._selection = Selection(self.models, self._slices, Chance(numbers.random, name_answer))
        self._alarm = Alarm(self._expire)

    # what edges see

    @property
    def ready(self) -> bool:
        """As what is behind."""
        return self._behind.ready

    @property
    def open_requests(self) -> int:
        """Accepted calls without a reply; one that several members are asked for is one."""
        return self._behind.open_requests - len(self._asked) + len(self._edges)

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        """Pass a refused request on to the inner serving."""
        self._behind.refused(model, outcome, tenant)

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        """Pass on to the inner serving the time that an edge itself spent on a completed call."""
        self._behind.answered(model, reply, read_us, made_us)

    def model_ready(self, name: str) -> bool:
        """Return whether the serving behind has the model ready."""
        return self._behind.model_ready(name)

    def now_us(self) -> int:
        """Return the time of the serving behind."""
        return self._behind.now_us()

    def invalidate(self, model: str = "") -> int:
        """Invalidate what the serving behind keeps, and return its count."""
        return self._behind.invalidate(model)

    def submit(self, call: Call, deliver: Deliver) -> int:
        """See `serving.ports.Serving.submit`."""
        if call.model.selection is None or call.variant:
            return self._exact.submit(call, deliver)
        self._count += 1
        call_id = self._count
        self._edges[call_id] = call, deliver
        now = self._behind.now_us()
        self._carry_out(self._selection.arrive(call_id, call, now), now)
        return call_id if call_id in self._edges else 0

    def cancel(self, request_id: int) -> None:
        """See `serving.ports.Serving.cancel`: all members are cancelled."""
        if request_id <= FIRST_ID:
            self._exact.cancel(request_id)
        else:
            self._carry_out(self._selection.cancel(request_id), self.now_us())

    # what operators and clients see of it

    def feedback(self, model: str, given: Sequence[Feedback], tenant: str = DEFAULT_TENANT) -> int:
        """Learn from what a tenant says of a served model's answers to it, and return of how many. All of it
        is taken, or none with FeedbackError. KeyError where the model is not served."""
        self._selection.feedback(model, given, self.now_us(), tenant)
        return len(given)

    def selection(self, model: str) -> dict[str, object]:
        """Return the state of a served model's members, as JSON values. Raises the errors of `feedback`."""
        return self._selection.describe(model)

    # steps

    def _carry_out(self, commands: Sequence[Command], now: int) -> None:
        for command in commands:
            match command:
                case AskMember(call_id, member, own):
                    told = partial(self._member_answered, call_id, member)
                    request_id = self._exact.submit(own, told)
                    if request_id:  # else it was answered within
                        self._asked[call_id, member] = request_id
                case CancelMember(call_id, member):
                    request_id = self._asked.pop((call_id, member), 0)
                    if request_id:
                        self._exact.cancel(request_id)
                case DeliverReply():
                    self._deliver(command)
                case WakeAt(at_us):
                    self._alarm.set(at_us, now)
                case _:
                    assert_never(command)

    def _member_answered(self, call_id: int, member: int, reply: Reply) -> None:
        self._asked.pop((call_id, member), None)
        now = self.now_us()
        self._carry_out(self._selection.member_answered(call_id, member, reply, now), now)

    def _expire(self, now: int) -> None:
        self._carry_out(self._selection.expire(now), now)

    def _deliver(self, command: DeliverReply) -> None:
        call, deliver = self._edges.pop(command.call_id)
        reply = command.reply
        if command.refused:
            self._behind.refused(call.model.name, reply.outcome, call.tenant)
        now = self.now_us()
        self._tell(call, reply, now - (call.arrived_us or now))
        hand_over(deliver, reply, call.model.name)

    def _slices(self, model: str) -> float:
        """Return the number of slices that a model has; inf if it is unknown."""
        standing = getattr(self._behind, "standing", None)
        known = standing is not None and model in self.models  # else it has gone since the call was read
        load: VariantLoads | None = standing(model) if standing is not None and known else None
        return inf if load is None else load.slices
