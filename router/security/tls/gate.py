"""Handshakes of all ports of a gateway: how many there may be, how long each may take, and who computes them.

A handshake with an RSA key takes a millisecond or more of CPU. So a thread beside the event loop computes
them, one after the other: OpenSSL lets go of the interpreter meanwhile. A flood of them takes one core, and
no other connection waits for it.
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from router.logs.logs import Seldom
from router.security.tls.certificates import Certificates
from router.security.tls.stream import ENDS, LEFT, TOO_MANY, TlsTransport
from serving.policy.limits.crowding import leavers
from serving.values.specs import Limits

logger = logging.getLogger(__name__)

HANDSHAKES_MAX: Final = 256
"""At one time. One more pushes out the oldest of the address that has most."""
HANDSHAKE_S: Final = 10.0
"""For a whole handshake, or `limits.slow_client_s` where that is less."""

MakeProtocol = Callable[[], asyncio.Protocol]


class Gate:
    """One of a gateway. `ended`: how many handshakes ended without a connection, by why; `done`: how many
    became one."""

    def __init__(self, certificates: Certificates, limits: Limits) -> None:
        self.certificates = certificates
        self.done = 0
        self.ended: Counter[str] = Counter(dict.fromkeys(ENDS, 0))
        self.handshake_s = min(HANDSHAKE_S, limits.slow_client_s)
        self._under_way: dict[TlsTransport, float] = {}  # since when, the oldest first
        self._thread = ThreadPoolExecutor(1, "tls")
        self._says = Seldom(logger)

    @property
    def under_way(self) -> int:
        """How many handshakes there are at this moment."""
        return len(self._under_way)

    def behind(self, make: MakeProtocol, protocols: Callable[[], Sequence[str]]) -> MakeProtocol:
        """Return a factory of protocols for a listener: each makes a connection by `make` once its client has
        shaken hands. `protocols` returns the names of ALPN that the port speaks, the dearest first."""

        def connect() -> asyncio.Protocol:
            context = self.certificates.context(protocols())
            return TlsTransport(self, context, make)  # type: ignore[return-value]  # both sides of a connection

        return connect

    def enter(self, comer: TlsTransport) -> None:
        """Begin a handshake. The oldest of the address that has most goes where there are too many."""
        now_s = asyncio.get_running_loop().time()
        if len(self._under_way) >= HANDSHAKES_MAX:
            under_way = list(self._under_way.items())
            seen = [(each.address(), now_s - since_s) for each, since_s in under_way]
            places = leavers(seen, comer.address(), 0.0, 1) or [0]
            under_way[places[0]][0].give_up(TOO_MANY)
        self._under_way[comer] = now_s

    def leave(self, guest: TlsTransport, why: str = "") -> None:
        """End a handshake. `why`: one of `router.security.tls.stream.ENDS`, "" where there is a connection
        now."""
        if self._under_way.pop(guest, None) is None:
            return
        if why:
            self.ended[why] += 1
        else:
            self.done += 1

    def failed(self, guest: TlsTransport, error: ssl.SSLError) -> None:
        """Say why a handshake failed, now and then: clients can cause as many as they like."""
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = f"the client's certificate is refused: {error.verify_message}"
        self._says.warning(f"a TLS handshake with {guest.address() or 'a client'} failed: {reason}")

    def compute(self, step: Callable[[], None]) -> "asyncio.Future[None]":
        """Return what is done when the thread has made a step of a handshake."""
        return asyncio.get_running_loop().run_in_executor(self._thread, step)

    def close(self) -> None:
        """End what is under way, and the thread."""
        for each in tuple(self._under_way):
            each.give_up(LEFT)
        self._thread.shutdown(wait=False)
