"""What is counted of calls that the cache answers: the gateway never sees them."""

from collections.abc import Callable

from serving.ports import Call, Reply
from serving.runtime.caching.cached_models import CachedModels
from serving.runtime.caching.searching import LOOK_US
from serving.runtime.calls.pending_calls import PendingCall
from serving.runtime.clocks.clock import now_us
from serving.runtime.observer import CacheObserver
from serving.scheduler.waiting.requests import Request


class Accounts:
    """`record`: called with every call that does not reach the gateway, and its arrival."""

    __slots__ = ("_kept", "_observer", "_record")

    def __init__(
        self, observer: CacheObserver, record: Callable[[Call, int], None] | None, kept: CachedModels
    ) -> None:
        self._observer = observer
        self._record = record
        self._kept = kept

    def came(self, call: Call, request: Request, now: int) -> None:
        """Record a call that came and that the gateway does not see, for now at least."""
        if self._record is not None:
            self._record(call, request.arrived_us)
        self._observer.parsed(request.model, now - request.arrived_us)

    def told(self, call: Call, request: Request, result: str, now: int) -> None:
        """Record a call that came, and what the cache did with it (`result`)."""
        self.came(call, request, now)
        self.asked(request.model, result, now_us() - now)

    def asked(self, model: str, result: str, took_us: int) -> None:
        """Count that a call asked the cache in memory, and the time that it took."""
        self._observer.cache_asked(model, result, took_us)
        self._kept.worth(model).asked(took_us, result != "miss")

    def searched(self, leader: PendingCall, result: str, now: int) -> None:
        """Count that a call asked the cache, which also looked at other gateways' answers."""
        model = leader.request.model
        self._observer.cache_asked(model, result, now - leader.asked_us)
        self._kept.worth(model).asked(leader.digest_us + LOOK_US, result != "miss")

    def done(self, request: Request, reply: Reply) -> None:
        """Count the answer to a call that the gateway did not answer itself."""
        answered_us = now_us()  # others with the same answer were told before
        latency_us = answered_us - request.arrived_us
        self._observer.request_done(request, reply, latency_us, answered_us <= request.deadline_us)
