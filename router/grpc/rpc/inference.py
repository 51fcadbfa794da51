"""What becomes of a ModelInfer call, for either server: its message to a call of the core, a reply to bytes.

Nothing in here waits but `open`, for what is too much work for the event loop.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from router.grpc.rpc.calls import Calls
from router.payloads.bulk.pool import Bulk
from router.payloads.bulk.requests import open_rpc
from router.payloads.regions.registry import Regions
from router.protocol.explanation import Lines, completed_lines
from router.protocol.oip import (
    ACCURACY_FIELD,
    CACHE_FIELD,
    REQUEST_FIELD,
    STATE_FIELD,
    TIER_FIELD,
    TIMEOUT_FIELD,
    TRACE_FIELD,
    check_one_row,
    control_cache,
    find_model,
    name_request,
    stated_timeout_us,
    tighten,
)
from router.protocol.outcomes import ANSWERS
from router.protocol.promises import promise
from router.security.auth.identity import Identity
from router.tensors.answer.storing import store, stored_bytes, storing
from router.tensors.messages import SMALL_BYTES, VERSION, Outline, early_text, outline
from router.tensors.parts.compression import coding_of_message
from router.tensors.parts.errors import RequestError, bad_input
from router.tensors.parts.places import CopyFirst, Memory
from router.tensors.proto import check_besides, decode, encode, key_of, parse, recall
from router.tensors.request.decoded import Decoded
from router.tensors.request.parameters import take_fields
from serving.ports import Call, Reply, Serving
from serving.values.specs import Limits, ServedModel
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED, DRAINING
from serving.worker.frames.shared import PORTION_BYTES

EXPIRY_GRACE_US: Final = 10_000
"""A call that its client ends this close to its deadline ended by that deadline: the client's timer
and ours fire together, and grpc rounds the timeout that it sends up by as much as 1 %."""


class Asked(NamedTuple):
    """A call beside its message. `remaining_s`: until its deadline, None without one; `began_us`: when it
    came; `arrived_us`: when its whole message was there; `streams`: it may have other than one answer."""

    fields: Mapping[str, str]
    tenant: str
    identity: Identity | None
    remaining_s: float | None
    began_us: int
    arrived_us: int
    streams: bool = False


class Inferences:
    """Reads and answers; both count what they refuse and complete."""

    def __init__(self, serving: Serving, calls: Calls, limits: Limits) -> None:
        self._serving = serving
        self._calls = calls
        self._limits = limits
        self.bulk = Bulk(limits)
        self.regions: Regions | None = None  # of clients' shared memory; None where none is served

    def is_bulk(self, raw: bytes) -> bool:
        """Return whether the message is to be opened first: it is compressed, or has many typed contents."""
        if coding_of_message(raw):
            return True
        if len(raw) <= SMALL_BYTES:
            return False
        try:
            return not outline(raw, self._limits).raw
        except RequestError:
            return False  # `read` finds the same, and counts it

    async def open(self, raw: bytes, asked: Asked) -> bytes:
        """Return the message inflated, and with raw contents in place of many typed ones: these take over a
        millisecond to read. RequestError, already counted."""
        name = ""
        try:
            raw = await open_rpc(self.bulk, raw)
            found = outline(raw, self._limits)
            name = found.name
            if found.besides > SMALL_BYTES and not found.raw:
                model = self._model(name, early_text(raw, VERSION), asked.identity)
                self.bulk.admit(len(raw))
                raw = await self.bulk.run("unfold_rpc", len(raw), raw, model, self._limits)
        except RequestError as error:
            self._serving.refused(name, error.outcome, asked.tenant)
            raise
        return raw

    def memory(self, identity: Identity | None) -> Memory | None:
        """Return the shared memory that the caller has registered; None where none is served."""
        return None if self.regions is None else self.regions.of(identity)

    def read(
        self,
        raw: bytes,
        asked: Asked,
        memory: Memory | None = None,
        metadata: Sequence[tuple[bytes, bytes]] = (),
    ) -> Decoded:
        """Return the request, with its call ready for the core. `memory`: its caller's; `metadata`: fields
        that `asked` leaves out. Raises RequestError, already counted, and CopyFirst."""
        fields, tenant, name = asked.fields, asked.tenant, ""
        try:
            found = outline(raw, self._limits)
            name = found.name
            key = key_of(raw, found)
            plan = recall(key, self._limits)
            if plan is not None and self._is_current(plan.model) and not self._stopping():
                self._calls.check_model(asked.identity, name)
                decoded = plan.take(raw, found, memory)
            else:
                decoded = self._parsed(raw, found, key, asked.identity, memory)
            call = decoded.call
            if call.model.spec.decoupled:
                check_decoupled(decoded, asked.streams)
            call.arrived_us = asked.arrived_us
            call.tenant = tenant
            if call.parameters:
                take_fields(call, partial(_text_of, fields, metadata))
            _take_deadlines(call, asked.remaining_s, fields)
            tier = self._serving.tenants[tenant].tier
            if tier or decoded.stated is not None or fields:
                promise(decoded, fields.get(TIER_FIELD, ""), fields.get(ACCURACY_FIELD, ""), tier)
            self._calls.check_tier(asked.identity, call.objective.tier, tier)
            if fields:
                named, trace = fields.get(REQUEST_FIELD, ""), fields.get(TRACE_FIELD, "")
                name_request(call, named, trace, fields.get(STATE_FIELD, ""))
            if CACHE_FIELD in fields:
                control_cache(call, fields[CACHE_FIELD])
        except RequestError as error:
            self._serving.refused(name, error.outcome, tenant)
            raise
        return decoded

    def _parsed(
        self,
        raw: bytes,
        found: Outline,
        key: tuple[bytes, int] | None,
        identity: Identity | None,
        memory: Memory | None,
    ) -> Decoded:
        check_besides(found)
        request, apart = parse(raw, found)  # of a large one its raw contents apart
        if self._stopping():
            raise RequestError(DRAINING, ANSWERS[DRAINING].sentence)
        model = self._model(found.name, request.model_version, identity)
        return decode(request, model, self._limits, apart, key, memory)

    def _is_current(self, model: ServedModel) -> bool:
        served = self._serving.models.get(model.name)
        return served is not None and served.stands_for(model)

    def _stopping(self) -> bool:
        return self._calls.stopping.is_set()

    async def read_whole(self, raw: bytes, asked: Asked) -> Decoded:
        """Return the same; inputs in its caller's shared memory are copied first where they are large."""
        try:
            return self.read(raw, asked, self.memory(asked.identity))
        except CopyFirst as first:
            return self.read(raw, asked, await self.copied(first, raw, asked))

    async def copied(self, first: CopyFirst, raw: bytes, asked: Asked) -> Memory:
        """Return the caller's memory with the call's inputs copied. Raises RequestError, already counted."""
        try:
            return await first.copy(len(raw))
        except RequestError as error:
            self._serving.refused(outline(raw, self._limits).name, error.outcome, asked.tenant)
            raise

    def stores_much(self, decoded: Decoded, reply: Reply) -> bool:
        """Return whether more goes to the client's memory than the event loop copies at once."""
        return bool(decoded.targets) and stored_bytes(decoded, reply) > PORTION_BYTES

    async def store(self, decoded: Decoded, reply: Reply) -> None:
        """Write what goes to the client's memory, a portion at a time; RequestError where it has no room."""
        await self.bulk.in_turns(stored_bytes(decoded, reply), storing(decoded, reply))

    def write(self, decoded: Decoded, reply: Reply, asked: Asked) -> tuple[bytes, Lines]:
        """Return a completed call's answer as bytes, and what it says of itself. What goes to the client's
        memory is there before; RequestError where it has no room."""
        call, serving = decoded.call, self._serving
        store(decoded, reply)
        answer = encode(decoded, reply)
        lines = completed_lines(reply, call.due_us, asked.began_us, serving.now_us())
        if reply.answered_us:
            made_us = serving.now_us() - reply.answered_us
            serving.answered(call.model.name, reply, asked.arrived_us - asked.began_us, made_us)
        return answer, lines

    def write_one(self, decoded: Decoded, outputs: Sequence[Tensor], version: int = 0) -> bytes:
        """Return one of the answers of a decoupled model as bytes; `version`: see `Reply.version`."""
        reply = Reply(COMPLETED)
        reply.outputs, reply.version = outputs, version
        return encode(decoded, reply)

    def _model(self, name: str, version: str, identity: Identity | None) -> ServedModel:
        self._calls.check_model(identity, name)
        return find_model(self._serving, name, version)


def check_decoupled(decoded: Decoded, streams: bool) -> None:
    """Raise RequestError if a request cannot be put to its decoupled model. The wording is Triton's."""
    call = decoded.call
    if not streams:
        raise bad_input(
            "ModelInfer RPC doesn't support models with decoupled transaction policy: "
            f"'{call.model.name}' gives any number of answers; expected ModelStreamInfer"
        )
    if decoded.targets:
        raise bad_input(
            f"'{call.model.name}' gives any number of answers, and each would overwrite the one before; "
            "expected outputs in the answers, not in shared memory"
        )
    check_one_row(call)


def _text_of(fields: Mapping[str, str], metadata: Sequence[tuple[bytes, bytes]], name: str) -> str | None:
    """Return a field of a call; of a repeated one the last."""
    found, wanted = fields.get(name), name.encode()
    for field, value in metadata:
        if field == wanted:
            found = value.decode("latin-1")
    return found


def is_expiring(call: Call, now_us: int) -> bool:
    """Return whether a call that its client gives up ends by its deadline.

    The core then ends it by itself, and counts it as late, not as cancelled.
    """
    if call.timeout_us is None:
        return False
    left_us = call.arrived_us + call.timeout_us - now_us
    return left_us <= EXPIRY_GRACE_US + call.timeout_us // 100


def _take_deadlines(call: Call, remaining_s: float | None, fields: Mapping[str, str]) -> None:
    """Set the call's deadline to the tightest of its `timeout` parameter, x-request-timeout-ms and the gRPC
    deadline."""
    if remaining_s is not None:
        tighten(call, remaining_s * 1e6)
    stated = fields.get(TIMEOUT_FIELD)
    if stated is not None:
        tighten(call, stated_timeout_us(stated))
