"""Which requests of a model its candidate answers: a share, with a caller kept where it is.

Before that it may compute copies, which are compared with what clients got, and go no further."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final
from zlib import crc32

from serving.policy.rollouts.agreement import agree
from serving.policy.rollouts.evidence import Trials
from serving.ports import Call, Reply
from serving.runtime.calls.labelling import Labels
from serving.runtime.calls.pending_calls import Deliver
from serving.runtime.calls.selecting import name_answer
from serving.values.rollouts import STICKY
from serving.values.specs import DEFAULT_TENANT, ServedModel
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED

TENANT, REQUEST, _ = STICKY
PLACES: Final = 10_000
"""Callers are spread over so many places; a candidate gets the first."""
COPIED_BYTES_MAX: Final = 1 << 20
"""Requests and answers of more bytes have no copy."""

Submit = Callable[[Call, Deliver], int]


@dataclass(frozen=True, slots=True)
class Split:
    """`share` (0..1) of the requests go to `candidate`. `sticky`: one of `serving.values.rollouts.STICKY`."""

    candidate: ServedModel
    share: float
    sticky: str


@dataclass(frozen=True, slots=True)
class Shadow:
    """The candidate computes copies of `share` (0..1) of the requests, one at a time."""

    candidate: ServedModel
    share: float


class Splits:
    """All of them, by model. A call that pins a variant stays; so does one whose tier the candidate lacks.
    `compared`: by model, on how many requests the copies agreed. `labels`: what clients say of answers."""

    def __init__(self, seed: int | None = None) -> None:
        self.by_model: dict[str, Split] = {}
        self.shadows: dict[str, Shadow] = {}
        self.compared: dict[str, Trials] = {}
        self.labels = Labels(name_answer)
        self._copied: set[str] = set()  # models with a copy under way
        self._draw: Callable[[], float] = Random(seed).random  # noqa: S311  # who is asked is no secret

    def route(self, call: Call) -> Call:
        """Return the call, or one for the candidate."""
        split = self.by_model.get(call.model.name)
        if (
            split is None
            or call.model.stays
            or not _fits(call, split.candidate)
            or not self._is_chosen(split, call)
        ):
            return call
        return _for(call, split.candidate, call.inputs)

    def beside(self, call: Call, deliver: Deliver, submit: Submit) -> Deliver:
        """Return what delivers the call's answer; for some calls it then gives the candidate a copy."""
        name = call.model.name
        shadow = self.shadows.get(name)
        if shadow is None or name in self._copied or not _fits(call, shadow.candidate):
            return deliver
        if self._draw() >= shadow.share or _bytes_of(call.inputs) > COPIED_BYTES_MAX:
            return deliver
        copy = _for(call, shadow.candidate, _kept(call.inputs))  # buffers may be used again
        copy.arrived_us, copy.timeout_us, copy.store, copy.max_age_us = 0, None, False, 0
        copy.on_answer = None
        self._copied.add(name)
        return partial(self._answered, name, copy, deliver, submit)

    def _answered(self, name: str, copy: Call, deliver: Deliver, submit: Submit, reply: Reply) -> None:
        outputs = reply.outputs
        answered = reply.outcome is COMPLETED and 0 < _bytes_of(outputs) <= COPIED_BYTES_MAX
        kept = _kept(outputs) if answered else ()
        deliver(reply)
        if kept and name in self.shadows:
            submit(copy, partial(self._compare, name, kept, reply.query))
        else:
            self._copied.discard(name)

    def _compare(self, name: str, present: Sequence[Tensor], query: str, reply: Reply) -> None:
        self._copied.discard(name)
        if reply.outcome is COMPLETED and name in self.shadows:
            if name in self.labels.books:
                self.labels.books[name].copied(query, reply)
            agreed = Trials(int(agree(present, reply.outputs)), 1)
            self.compared[name] = self.compared.get(name, Trials()) + agreed

    def _is_chosen(self, split: Split, call: Call) -> bool:
        if split.share >= 1:
            return True
        key = call.tenant if split.sticky == TENANT else call.name if split.sticky == REQUEST else ""
        if not key or key == DEFAULT_TENANT:  # callers that are not told apart
            return self._draw() < split.share
        return crc32(f"{call.model.name} {key}".encode()) % PLACES < split.share * PLACES


def _fits(call: Call, candidate: ServedModel) -> bool:
    tier = call.objective.tier
    return not call.variant and (not tier or tier in candidate.by_tier)


def _for(call: Call, model: ServedModel, inputs: Sequence[Tensor]) -> Call:
    """Return the same call of another model."""
    made = Call(model, inputs, call.rows)
    promised, tier = call.objective, call.objective.tier
    own = call.model.by_tier[tier] if tier else call.model.own
    floor = promised.accuracy_min if promised.accuracy_min > own.accuracy_min else 0
    made.objective = model.objective(tier, floor)
    made.size, made.timeout_us, made.tenant, made.parameters = (
        call.size, call.timeout_us, call.tenant, call.parameters
    )  # fmt: skip
    made.arrived_us, made.max_age_us, made.store, made.priority = (
        call.arrived_us, call.max_age_us, call.store, call.priority
    )  # fmt: skip
    made.name, made.trace, made.trace_state = call.name, call.trace, call.trace_state
    made.on_answer = call.on_answer
    return made


def _bytes_of(tensors: Sequence[Tensor]) -> int:
    return sum(len(each.data) for each in tensors)


def _kept(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(Tensor(each.name, each.datatype, each.shape, bytes(each.data)) for each in tensors)
