"""What every gRPC call goes through: a place among the open ones, its whole message in time, one status.

All methods with one answer are declared as taking a stream: on the wire that is the same, and only so does
grpc.aio hand a call over before its message is there. Otherwise it leaves a call that never gets a whole
message without any answer, and unknown to us.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import (
    Any,
    Final,
    NamedTuple,
    NoReturn,
)  # Any: neither grpc nor the generated messages carry types

import grpc
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from grpc._cython import cygrpc

from router.account import Account
from router.auth.guard import KeyGuard
from router.auth.identity import CALLER, own_tenant
from router.auth.rights import CALLERS, Roles
from router.explanation import failure_fields, retry_ms
from router.oip import ACCURACY_FIELD, CACHE_FIELD, TENANT_FIELD, TIER_FIELD, TIMEOUT_FIELD, tenant_of
from router.outcomes import ANSWERS, INTERNAL_ERROR, worded
from router.tensors.compression import coding_of_message, inflate
from router.tensors.errors import RETRY_US, RequestError, too_large
from router.tensors.messages import NAME, early_text
from serving.policy.memory import SMALL_BYTES
from serving.ports import Reply, Serving
from serving.specs import DEFAULT_TENANT, Limits
from serving.vocabulary import BAD_INPUT, DRAINING, MEMORY_FULL, QUEUE_FULL, TOO_LARGE, Outcome

logger = logging.getLogger(__name__)

RpcMethod = Callable[[Any, Any], Awaitable[Any]]
"""Answers a message, in a call's context, with a message."""
Look = Callable[[bytes, Any], Awaitable[None]]
"""Looks at a message that is not parsed, in its call's context, and may end the call."""
RawMethod = Callable[[bytes, Any, int], Awaitable[bytes]]
"""The same of messages that are not parsed yet, and are already written; last, when the call came (us)."""

GONE: Final = (cygrpc.ExecuteBatchError, cygrpc._ServerStoppedError)  # noqa: SLF001
"""What grpc raises where there is no client any more to tell: it left, its deadline passed, or we stopped."""

PUSHBACK_KEYS: Final = ("grpc-retry-pushback-ms", "retry-pushback-ms")
"""Where a client finds when to come back. A retry policy of grpc honours the first (gRFC A6, "Pushback");
names that begin with `grpc-` are its own and may be kept from the application, which reads the second."""

PROBE_SHARE: Final = 8
"""Probes have a part of this more places than all calls: an overload must not make a gateway look dead."""

MESSAGE_BYTES_MAX: Final = SMALL_BYTES
"""Of a message of a small method, which the event loop parses; also once it is decompressed."""
_SMALL: Final = Limits(body_bytes=MESSAGE_BYTES_MAX)


class Screened(NamedTuple):
    """A method, and what looks at each of its messages before that is parsed."""

    look: Look
    answer: RpcMethod


class Calls:
    """The open calls of an edge, over all servers that its port ever had."""

    def __init__(self, serving: Serving, limits: Limits) -> None:
        self._serving = serving
        self._limits = limits
        self.guard: KeyGuard | None = None  # None where no caller needs a key
        self._open = 0
        self._reading: set[asyncio.Timeout] = set()
        self._messages = _Tally()  # large ones that are being read
        self._answers = _Tally()  # until the last byte is sent
        self._account = Account(limits)
        self.stopping = asyncio.Event()
        self.answered = asyncio.Event()  # set while no call is open: the last byte of each answer is sent
        self.answered.set()

    def use(self, account: Account) -> None:
        """What the calls hold counts there; before the first call."""
        self._account = account
        account.count("messages", lambda: self._messages.bytes)
        account.count("grpc_answers", lambda: self._answers.bytes)

    @property
    def open(self) -> int:
        """How many have a place."""
        return self._open

    def stop(self) -> None:
        """Take no message from now on; calls that still wait for theirs are refused."""
        self.stopping.set()
        now = asyncio.get_running_loop().time()
        for bound in self._reading:
            if not bound.expired():
                bound.reschedule(now)

    def infer(self, answer: RawMethod) -> Any:
        """Return the handler of inference: what is refused here is counted as a request."""
        return self._handler(answer, self._limits.grpc_call_count, CALLERS, counted=True)

    def unary(self, answer: RpcMethod | Screened, request: Any, roles: Roles, *, probe: bool = False) -> Any:
        """Return the handler of another method, for callers of one of the `roles`; `request` is its message's
        class."""
        count = self._limits.grpc_call_count
        return self._handler(_parsed(answer, request), count + probe * (count // PROBE_SHARE + 1), roles)

    def check_model(self, model: str) -> None:
        """RequestError (FORBIDDEN) where the caller may not use the model."""
        identity = CALLER.get()
        if self.guard is not None and identity is not None:
            self.guard.check_model(identity, model)

    def check_tier(self, tier: str, own: str) -> None:
        """RequestError (FORBIDDEN) where the caller may not ask for the tier; `own`: its tenant's."""
        identity = CALLER.get()
        if self.guard is not None and identity is not None:
            self.guard.check_tier(identity, tier, own)

    def tenant(self, fields: Mapping[str, str]) -> str:
        """Whose call it is."""
        return own_tenant(CALLER.get()) or tenant_of(self._serving, fields.get(TENANT_FIELD, ""))

    async def read(self, context: Any, counted: bool = False) -> bytes:
        """Return the call's message; without a whole one in time the call ends here."""
        try:
            async with asyncio.timeout(self._limits.slow_client_s) as bound:
                self._reading.add(bound)
                try:
                    raw = await context.read()
                finally:
                    self._reading.discard(bound)
        except TimeoutError:
            if self.stopping.is_set():
                if counted:
                    self._refused(context, DRAINING)
                await abort(context, Reply(DRAINING))
            limit = f"within {self._limits.slow_client_s:g} s (limits.slow_client_s)"
            await context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"the message did not arrive whole {limit}"
            )
        if raw is grpc.aio.EOF:
            if counted:
                self._refused(context, BAD_INPUT)
            await abort(context, Reply(BAD_INPUT, "the call ended without a whole message"))
        return bytes(raw)

    def _handler(self, answer: RawMethod, count: int, roles: Roles, counted: bool = False) -> Any:
        async def taken(_requests: Any, context: Any) -> bytes:
            began_us = self._serving.now_us()
            try:
                if self.guard is not None and roles:
                    await self._identify(self.guard, roles, context, counted)
                if self._open >= count:
                    await self._turn_away(context, count, counted)
                self._enter(context)
                wire = await answer(await self._admitted(context, counted), context, began_us)
                if len(wire) > SMALL_BYTES:
                    self._answers.put(context, 2 * len(wire))  # grpc copies it, and keeps both
                return wire
            except grpc.aio.AbortError as error:
                # grpc keeps it in a cycle, for the garbage collector: it must keep no request in its frames.
                error.__context__ = None
                raise error.with_traceback(None)  # noqa: B904  # its cause is what it must not keep
            except GONE:
                return b""
            except Exception:  # grpc would tell the client its text, as UNKNOWN
                logger.exception("a gRPC call failed")
                return await _end_with_bug(context)

        return grpc.stream_unary_rpc_method_handler(taken)

    async def _identify(self, guard: KeyGuard, roles: Roles, context: Any, counted: bool) -> None:
        """Set CALLER, before any of the message is read; a caller that may not is refused."""
        fields = dict(context.invocation_metadata())
        values = (fields.get("x-api-key"), fields.get("authorization"))
        api_key, authorization = (None if each is None else str(each).encode() for each in values)
        try:
            identity = guard.identify(api_key, authorization)
            CALLER.set(identity)
            guard.require(identity, roles)
        except RequestError as error:
            if counted:
                tenant = own_tenant(CALLER.get()) or DEFAULT_TENANT
                self._serving.refused("", error.outcome, tenant)
            await abort(context, Reply(error.outcome, error.message))

    def _enter(self, context: Any) -> None:
        self._open += 1
        self.answered.clear()
        context.add_done_callback(self._leave)

    def submitted(self, context: Any) -> None:
        """The core has the call, and counts its tensors from now on."""
        self._messages.drop(context)

    async def _admitted(self, context: Any, counted: bool) -> bytes:
        """Return the call's message, where there is memory for it."""
        raw = await self.read(context, counted)
        if len(raw) > SMALL_BYTES:
            refusal = self._account.refusal()
            if refusal is not None:
                if counted:
                    self._refused(context, MEMORY_FULL, early_text(raw, NAME))
                await turn_away(context, refusal.message, MEMORY_FULL)
            self._messages.put(context, len(raw))
        return raw

    def _leave(self, context: Any) -> None:
        self._messages.drop(context)
        self._answers.drop(context)
        self._account.look()
        self._open -= 1
        if not self._open:
            self.answered.set()

    async def _turn_away(self, context: Any, count: int, counted: bool) -> NoReturn:
        if counted:
            self._refused(context, QUEUE_FULL)
        sentence = f"the gateway has its limit of {count} gRPC calls open (limits.grpc_call_count)"
        await turn_away(context, sentence)

    def _refused(self, context: Any, outcome: Outcome, model: str = "") -> None:
        """`model`: "" where it is in a message that is not read."""
        fields = fields_of(context.invocation_metadata())
        self._serving.refused(model, outcome, self.tenant(fields))


class _Tally:
    """Bytes by call, and their sum."""

    def __init__(self) -> None:
        self.bytes = 0
        self._sizes: dict[Any, int] = {}

    def put(self, call: Any, size: int) -> None:
        self._sizes[call] = size
        self.bytes += size

    def drop(self, call: Any) -> None:
        self.bytes -= self._sizes.pop(call, 0)


def plain(raw: bytes) -> bytes:
    """Return a small method's message without its compression; RequestError where that is damaged, or it is
    more than the event loop parses."""
    coding = coding_of_message(raw)
    try:
        message = inflate(raw, coding, _SMALL) if coding else raw
    except RequestError as error:
        if error.outcome is not TOO_LARGE:
            raise
        raise _over() from None
    if len(message) > MESSAGE_BYTES_MAX:
        raise _over()
    return message


def _over() -> RequestError:
    return too_large(f"the message is over the {MESSAGE_BYTES_MAX} bytes that this method takes")


def _parsed(method: RpcMethod | Screened, request: Any) -> RawMethod:
    look, answer = method if isinstance(method, Screened) else (None, method)

    async def answer_raw(raw: bytes, context: Any, _began_us: int) -> bytes:
        if look is not None:
            await look(raw, context)
        try:
            message = request.FromString(plain(raw))
        except RequestError as error:
            await abort(context, Reply(error.outcome, error.message))
        except DecodeError:
            sentence = f"the message is no {request.DESCRIPTOR.name}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, sentence)
            raise
        wire: bytes = (await answer(message, context)).SerializeToString()
        return wire

    return answer_raw


async def turn_away(context: Any, sentence: str, outcome: Outcome = QUEUE_FULL) -> NoReturn:
    """End a call for which there is no place, with when to come back."""
    reply = Reply(outcome, sentence)
    reply.retry_us = RETRY_US
    await abort(context, reply)


async def abort(context: Any, reply: Reply, due_us: int = 0) -> NoReturn:
    """End the call with the outcome's status; grpc does so by an exception."""
    answer = ANSWERS[reply.outcome]
    fields = failure_fields(reply, due_us)
    wait_ms = retry_ms(reply)
    if wait_ms:
        fields |= dict.fromkeys(PUSHBACK_KEYS, str(wait_ms))
    await context.abort(answer.grpc_code, worded(reply.outcome, reply.detail), tuple(fields.items()))
    raise AssertionError("grpc's abort has returned")


async def _end_with_bug(context: Any) -> bytes:
    with contextlib.suppress(*GONE):
        await context.abort(grpc.StatusCode.INTERNAL, INTERNAL_ERROR)
    return b""


def fields_of(metadata: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """By key: of a repeated one the last, but of Cache-Control, tiers, floors and timeouts all, as a list."""
    fields = dict(metadata)
    if len(fields) < len(metadata):
        for each in (CACHE_FIELD, TIER_FIELD, ACCURACY_FIELD, TIMEOUT_FIELD):
            if each in fields:
                fields[each] = ",".join(value for key, value in metadata if key == each)
    return fields
