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

from router.protocol.account import Account
from router.protocol.explanation import failure_fields, retry_ms
from router.protocol.oip import (
    ACCURACY_FIELD,
    CACHE_FIELD,
    STATE_FIELD,
    TENANT_FIELD,
    TIER_FIELD,
    TIMEOUT_FIELD,
    tenant_of,
)
from router.protocol.outcomes import ANSWERS, INTERNAL_ERROR, worded
from router.security.auth.guard import KeyGuard
from router.security.auth.identity import CALLER, Identity, own_tenant
from router.security.auth.rights import CALLERS, Roles
from router.security.tls.names import names_in_rpc
from router.tensors.messages import NAME, early_text
from router.tensors.parts.compression import coding_of_message, inflate
from router.tensors.parts.errors import RETRY_US, RequestError, too_large
from serving.policy.limits.memory import SMALL_BYTES
from serving.ports import Reply, Serving
from serving.values.specs import DEFAULT_TENANT, Limits
from serving.values.vocabulary import BAD_INPUT, DRAINING, MEMORY_FULL, QUEUE_FULL, TOO_LARGE, Outcome

logger = logging.getLogger(__name__)

RpcMethod = Callable[[Any, Any], Awaitable[Any]]
"""Answers a message, in a call's context, with a message."""
Look = Callable[[bytes, Any], Awaitable[None]]
"""Looks at a message that is not parsed, in its call's context, and may end the call."""
RawMethod = Callable[[bytes, Any, int], Awaitable[bytes]]
"""The same of messages that are not parsed yet, and are already written; last, when the call came (us)."""
StreamMethod = Callable[[Any], Awaitable[None]]
"""Reads and writes messages in a call's context, as many as it likes."""

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
        self._on_stop: Callable[[], None] = lambda: None

    def use(self, account: Account) -> None:
        """Count what the calls hold in this account; call this before the first call."""
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
        self._on_stop()

    def on_stop(self, end: Callable[[], None]) -> None:
        """Have `end` called when no message is taken any more."""
        self._on_stop = end

    def infer(self, answer: RawMethod) -> Any:
        """Return the handler of inference: what is refused here is counted as a request."""
        return self._handler(answer, self._limits.grpc_call_count, CALLERS, counted=True)

    def stream(self, answer: StreamMethod, roles: Roles = CALLERS, *, counted: bool = True) -> Any:
        """Return the handler of a method with many messages both ways, for callers of one of the `roles`.
        `counted`: it is inference, so a refused stream counts as a refused request."""

        async def taken(_requests: Any, context: Any) -> None:
            try:
                await self._begin(context, self._limits.grpc_call_count, roles, counted)
                await answer(context)
            except grpc.aio.AbortError as error:
                error.__context__ = None  # as in `_handler`
                raise error.with_traceback(None)  # noqa: B904
            except GONE:
                pass
            except Exception:
                logger.exception("a gRPC stream failed")
                await _end_with_bug(context)

        return grpc.stream_stream_rpc_method_handler(taken)

    def unary(self, answer: RpcMethod | Screened, request: Any, roles: Roles, *, probe: bool = False) -> Any:
        """Return the handler of another method, for callers of one of the `roles`; `request` is its message's
        class."""
        count = self._limits.grpc_call_count
        return self._handler(_parsed(answer, request), count + probe * (count // PROBE_SHARE + 1), roles)

    def check_model(self, identity: Identity | None, model: str) -> None:
        """Raise RequestError (FORBIDDEN) if the caller may not use the model."""
        if self.guard is not None and identity is not None:
            self.guard.check_model(identity, model)

    def check_tier(self, identity: Identity | None, tier: str, own: str) -> None:
        """Raise RequestError (FORBIDDEN) if the caller may not ask for the tier; `own`: its tenant's tier."""
        if self.guard is not None and identity is not None:
            self.guard.check_tier(identity, tier, own)

    def tenant(self, identity: Identity | None, fields: Mapping[str, str]) -> str:
        """Return the tenant of the call."""
        return own_tenant(identity) or tenant_of(self._serving, fields.get(TENANT_FIELD, ""))

    def identify(
        self, fields: Mapping[str, str], roles: Roles, counted: bool, certificate: Sequence[str] = ()
    ) -> Identity | None:
        """Return the caller of a call, before any of its message is read; None if no key is required.

        Raises RequestError if the caller may not make the call. `counted`: a refusal counts as a refused
        request. `certificate`: the names of the client's.
        """
        guard = self.guard
        if guard is None or not roles:
            return None
        values = (fields.get("x-api-key"), fields.get("authorization"))
        api_key, authorization = (None if each is None else str(each).encode() for each in values)
        identity: Identity | None = None
        try:
            identity = guard.identify(api_key, authorization, certificate)
            guard.require(identity, roles)
        except RequestError as error:
            if counted:
                self._serving.refused("", error.outcome, own_tenant(identity) or DEFAULT_TENANT)
            raise
        return identity

    def find_room(self, count: int) -> None:
        """Raise RequestError (QUEUE_FULL) if `count` calls are open."""
        if self._open >= count:
            raise RequestError(
                QUEUE_FULL,
                f"the gateway has its limit of {count} gRPC calls open (limits.grpc_call_count)",
                RETRY_US,
            )

    def enter(self) -> None:
        """Take a place for a call, until it leaves."""
        self._open += 1
        self.answered.clear()

    def leave(self, call: object) -> None:
        """Count out a call that has ended: its answer's last byte is sent, or its client has gone."""
        self._messages.drop(call)
        self._answers.drop(call)
        self._account.look()
        self._open -= 1
        if not self._open:
            self.answered.set()

    def hold(self, holder: object, size: int) -> RequestError | None:
        """Count a message of a stream until it is `submitted`. Return why it is not taken, if it is large
        and there is no memory for it."""
        if size > SMALL_BYTES:
            refusal = self._account.refusal()
            if refusal is not None:
                return refusal
            self._messages.put(holder, size)
        return None

    def submitted(self, call: object) -> None:
        """Note that the core has the call, and counts its tensors from now on."""
        self._messages.drop(call)

    def refused(self, metadata: Sequence[tuple[str, str]], outcome: Outcome, model: str = "") -> None:
        """Count a request that ends here. `model`: "" where it is in a message that is not read."""
        self._serving.refused(model, outcome, self.tenant(CALLER.get(), fields_of(metadata)))

    @property
    def account(self) -> Account:
        """Of what clients make the gateway hold."""
        return self._account

    async def read(self, context: Any, counted: bool = False) -> bytes:
        """Return the call's message; without a whole one in time the call ends here."""
        try:
            raw = await self._read_in_time(context)
        except TimeoutError:
            if self.stopping.is_set():
                if counted:
                    self.refused(context.invocation_metadata(), DRAINING)
                await abort(context, Reply(DRAINING))
            limit = f"within {self._limits.slow_client_s:g} s (limits.slow_client_s)"
            await context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"the message did not arrive whole {limit}"
            )
        if raw is grpc.aio.EOF:
            if counted:
                self.refused(context.invocation_metadata(), BAD_INPUT)
            await abort(context, Reply(BAD_INPUT, "the call ended without a whole message"))
        return bytes(raw)

    async def next(self, context: Any) -> bytes | None:
        """Return the next message of a call with many; None after the last, if none comes in time, and once
        the gateway takes no messages."""
        if self.stopping.is_set():
            return None
        try:
            raw = await self._read_in_time(context)
        except TimeoutError:
            return None
        return None if raw is grpc.aio.EOF else bytes(raw)

    async def _read_in_time(self, context: Any) -> Any:
        async with asyncio.timeout(self._limits.slow_client_s) as bound:
            self._reading.add(bound)
            try:
                return await context.read()
            finally:
                self._reading.discard(bound)

    def _handler(self, answer: RawMethod, count: int, roles: Roles, counted: bool = False) -> Any:
        async def taken(_requests: Any, context: Any) -> bytes:
            began_us = self._serving.now_us()
            try:
                await self._begin(context, count, roles, counted)
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

    async def _begin(self, context: Any, count: int, roles: Roles, counted: bool) -> None:
        """Set CALLER and enter, before any of the message is read; a caller that may not is refused."""
        asks = self.guard is not None
        metadata = context.invocation_metadata() if asks else ()
        names = names_in_rpc(context.auth_context()) if asks else ()
        try:
            CALLER.set(self.identify(dict(metadata), roles, counted, names))
            self.find_room(count)
        except RequestError as error:
            if counted and error.outcome is QUEUE_FULL:
                self.refused(context.invocation_metadata(), QUEUE_FULL)
            await abort(context, reply_of(error))
        self.enter()
        context.add_done_callback(self.leave)

    async def _admitted(self, context: Any, counted: bool) -> bytes:
        """Return the call's message, where there is memory for it."""
        raw = await self.read(context, counted)
        if len(raw) > SMALL_BYTES:
            refusal = self._account.refusal()
            if refusal is not None:
                if counted:
                    self.refused(context.invocation_metadata(), MEMORY_FULL, early_text(raw, NAME))
                await abort(context, reply_of(refusal))
            self._messages.put(context, len(raw))
        return raw


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


class Ending(NamedTuple):
    """How a call ends that is not answered: its status, a sentence, and trailing metadata."""

    code: grpc.StatusCode
    sentence: str
    fields: Mapping[str, str]


def ending(reply: Reply, due_us: int = 0) -> Ending:
    """Return how a call with that outcome ends."""
    fields = failure_fields(reply, due_us)
    wait_ms = retry_ms(reply)
    if wait_ms:
        fields |= dict.fromkeys(PUSHBACK_KEYS, str(wait_ms))
    return Ending(ANSWERS[reply.outcome].grpc_code, worded(reply.outcome, reply.detail), fields)


def reply_of(error: RequestError) -> Reply:
    """Return the reply with which the core would say the same."""
    reply = Reply(error.outcome, error.message)
    reply.retry_us = error.retry_us
    return reply


async def abort(context: Any, reply: Reply, due_us: int = 0) -> NoReturn:
    """End the call with the outcome's status; grpc does so by an exception."""
    code, sentence, fields = ending(reply, due_us)
    await context.abort(code, sentence, tuple(fields.items()))
    raise AssertionError("grpc's abort has returned")


async def _end_with_bug(context: Any) -> bytes:
    with contextlib.suppress(*GONE):
        await context.abort(grpc.StatusCode.INTERNAL, INTERNAL_ERROR)
    return b""


def fields_of(metadata: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """Return the fields by key. Of a repeated field the last counts; but Cache-Control, tiers, floors,
    timeouts and tracestate all count, as a list."""
    fields = dict(metadata)
    if len(fields) < len(metadata):
        for each in (CACHE_FIELD, TIER_FIELD, ACCURACY_FIELD, TIMEOUT_FIELD, STATE_FIELD):
            if each in fields:
                fields[each] = ",".join(value for key, value in metadata if key == each)
    return fields
