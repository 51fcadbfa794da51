"""What all connections of one REST server share: the core, limits, paths, answer heads, the sweep."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate

from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from router.http.fastpath.hangups import HangupWatch
from router.http.fastpath.paths import InferPaths
from router.http.fastpath.places import Places
from router.http.fastpath.sweep import IdleSweep
from router.http.fastpath.turns import ENDS_A_TURN, READS_A_TURN, Turns
from router.payloads.bulk.pool import Bulk
from router.payloads.regions.registry import Regions
from router.protocol.account import Account
from router.protocol.rest import Fields, Rendered, render_error, stated_tenant
from router.security.auth.guard import KeyGuard
from router.security.auth.identity import Identity, own_tenant
from router.security.auth.rights import CALLERS
from router.tensors.parts.errors import RequestError, too_large
from serving.ports import Reply, Serving
from serving.values.specs import DEFAULT_TENANT, Limits, ServedModel
from serving.values.vocabulary import MEMORY_FULL, TOO_LARGE


class FastEdge:
    """One per server. `closed` is set while it has no connection; `direct` False leaves every request to
    the ASGI application (the contract tests compare both ways). `access`: takes a line of the access log
    for each answer, as `router.logs.access.say_access`; None where there is none. `bulk` reads and writes
    what is large. `guard`: None where no caller needs a key. `cors`: the application answers inference that a
    web page asks for, because it knows which pages may. `http2` makes the protocol of a connection whose
    client begins with HTTP/2's preface; None where the server speaks only HTTP/1.1. `regions`: of clients'
    shared memory, None where none is served."""

    def __init__(self, serving: Serving, limits: Limits, state: ServerState, *, direct: bool = True) -> None:
        self.serving = serving
        self.limits = limits
        self.state = state
        self._direct = direct
        self.paths = InferPaths({})
        self.serve(serving.models)
        self.draining = False  # connections still in the kernel's queue are closed as they come
        self.access: Callable[[object, str, int, int, int, Mapping[str, str]], None] | None = None
        self.bulk = Bulk(limits)
        self.guard: KeyGuard | None = None
        self.cors = False
        self.http2: Callable[[], asyncio.Protocol] | None = None
        self.regions: Regions | None = None
        self.account = Account(limits)
        self.places = Places(limits, lambda: asyncio.get_running_loop().time())
        self._written: list[tuple[str, Reply, int]] = []  # in this turn of the event loop
        self.closed = asyncio.Event()
        self.closed.set()
        self.hangups = HangupWatch()
        self.ends = Turns(ENDS_A_TURN)
        self.reads = Turns(READS_A_TURN)
        self.sweep = IdleSweep(state.connections, limits, self._on_sweep)
        self.refresh_heads()

    def serve(self, models: Mapping[str, ServedModel]) -> None:
        """Let the fast path call these models from now on, and no others."""
        self.paths.serve(models if self._direct else {})

    def answered(self, model: str, reply: Reply, read_us: int) -> None:
        """Note that a completed call's answer was written, and was read for `read_us`. It is counted in the
        loop's next turn: uvloop hands what was written to the kernel at the end of this turn."""
        if not self._written:
            asyncio.get_running_loop().call_soon(self._count_written)
        self._written.append((model, reply, read_us))

    def _count_written(self) -> None:
        now_us = self.serving.now_us()
        for model, reply, read_us in self._written:
            self.serving.answered(model, reply, read_us, now_us - reply.answered_us)
        self._written.clear()

    # what is refused before its body is read, over any version of HTTP

    def head_fault(self, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> str:
        """Return why a whole head is over the limits (RFC 6585, 5); "" if it is within them."""
        limits, count = self.limits, len(headers)
        size = len(target) + sum([len(name) + len(value) + 4 for name, value in headers])
        if size > limits.header_bytes:
            return self.long_head()
        if count > limits.header_count:
            limit = limits.header_count
            return f"the request has {count} header fields, over the limit of {limit} (limits.header_count)"
        return ""

    def long_head(self) -> str:
        """Return the sentence about a head of too many bytes."""
        return f"the request head is over the limit of {self.limits.header_bytes} bytes (limits.header_kb)"

    def identify(
        self, guard: KeyGuard, model: ServedModel, fields: Fields, certificate: Sequence[str] = ()
    ) -> Identity:
        """Return the caller of an inference before any of its body is read. `certificate`: the names of the
        client's.

        Raises RequestError, already counted, if the caller may not call the model.
        """
        identity: Identity | None = None
        try:
            identity = guard.identify(fields.get(b"x-api-key"), fields.get(b"authorization"), certificate)
            guard.require(identity, CALLERS, model.name)
        except RequestError as error:
            tenant = DEFAULT_TENANT if identity is None else identity.tenant
            self.serving.refused(model.name, error.outcome, tenant)
            raise
        return identity

    def over_body(self, model: ServedModel | None, fields: Fields, identity: Identity | None) -> Rendered:
        """Return the answer to a request with too large a body, which is counted if it is an inference."""
        if model is not None:
            tenant = stated_tenant(self.serving, fields, own_tenant(identity))
            self.serving.refused(model.name, TOO_LARGE, tenant)
        limit = self.limits.body_bytes
        return render_error(
            too_large(f"the request body is over the limit of {limit} bytes (limits.body_mb)")
        )

    def no_memory(self, model: ServedModel, fields: Fields) -> Rendered | None:
        """Return the answer to a large inference for which there is no memory; None if there is. Counts
        it."""
        refusal = self.account.refusal()
        if refusal is None:
            return None
        self.serving.refused(model.name, MEMORY_FULL, stated_tenant(self.serving, fields))
        return render_error(refusal)

    def _on_sweep(self) -> None:
        self.refresh_heads()
        self.account.refresh()

    def refresh_heads(self) -> None:
        """Render the constant part of the answers again: RFC 9110 wants a Date, good to the second."""
        date = formatdate(usegmt=True).encode()
        self.state.default_headers = [(b"date", date)]  # what uvicorn puts before an ASGI answer
        self._dated = b"date: " + date + b"\r\n"
        self.json_head = self.head(200, b"application/json") + b"content-length: "
        self.binary_head = self.head(200, b"application/octet-stream") + b"inference-header-content-length: "

    def head(self, status: int, content_type: bytes) -> bytes:
        """Return the status line and the fields that every answer has; the caller adds the rest and the empty
        line."""
        return STATUS_LINE[status] + self._dated + b"content-type: " + content_type + b"\r\n"

    def close(self) -> None:
        """Release the watch and the timer, once the last connection is gone."""
        self.sweep.stop()
        self.hangups.close()
