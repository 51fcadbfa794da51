"""What all connections of one REST server share: the core, limits, paths, answer heads, the sweep."""

import asyncio
from collections.abc import Callable, Mapping
from email.utils import formatdate

from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

from router.account import Account
from router.auth.guard import KeyGuard
from router.bulk.pool import Bulk
from router.fastpath.hangups import HangupWatch
from router.fastpath.paths import InferPaths
from router.fastpath.places import Places
from router.fastpath.sweep import IdleSweep
from router.fastpath.turns import ENDS_A_TURN, READS_A_TURN, Turns
from router.regions.registry import Regions
from serving.ports import Reply, Serving
from serving.specs import Limits, ServedModel


class FastEdge:
    """One per server. `closed` is set while it has no connection; `direct` False leaves every request
    to the ASGI application (the contract tests compare both ways). `access`: takes a line of the access log
    for each answer, as `router.access.say_access`; None where there is none. `bulk` reads and writes what is
    large. `guard`: None where no caller needs a key. `regions`: of clients' shared memory, None where none is
    served."""

    def __init__(self, serving: Serving, limits: Limits, state: ServerState, *, direct: bool = True) -> None:
        self.serving = serving
        self.limits = limits
        self.state = state
        self._direct = direct
        self.paths = InferPaths({})
        self.serve(serving.models)
        self.draining = False  # connections still in the kernel's queue are closed as they come
        self.access: Callable[[object, str, int, int, int], None] | None = None
        self.bulk = Bulk(limits)
        self.guard: KeyGuard | None = None
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
