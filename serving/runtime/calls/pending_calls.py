"""A call that waits for an answer, by itself or for others."""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from math import inf

from serving.cache.entries import KeptAnswer
from serving.ports import Call, Reply, TakeAnswer
from serving.runtime.clocks.alarm import Alarm
from serving.scheduler.waiting.requests import Request
from serving.values.objectives import MOST_ACCURATE
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED

logger = logging.getLogger(__name__)

Deliver = Callable[[Reply], None]


class PendingCall:
    """A call that waits, as leader (with the `request_id` of its request) or joiner (0).

    `request` is how it is counted where it never becomes one of the gateway's; `timed`: its own deadline is
    among those that are watched here; `settled`: the gateway has answered it. `asked_us`: when it asked the
    cache; `digest_us`: what that took before an answer was looked for elsewhere. `least`: how accurate the
    answer is that is kept already and was not good enough, -inf where there was none.
    """

    __slots__ = (
        "asked_us", "call", "deliver", "digest_us", "epoch", "flight", "id", "key", "least",
        "request", "request_id", "settled", "timed",
    )  # fmt: skip

    def __init__(self, member_id: int, call: Call, request: Request, deliver: Deliver) -> None:
        self.id = member_id
        self.call = call
        self.request = request
        self.deliver = deliver
        self.request_id = 0
        self.timed = False
        self.settled = False
        self.asked_us = 0
        self.digest_us = 0
        self.key = b""
        self.epoch = 0  # of the store
        self.flight = b""
        self.least = -inf


def describe(call: Call, now: int) -> Request:
    """Return the request that counts a call; its arrival is fixed."""
    arrived_us = call.arrived_us = call.arrived_us or now
    request = Request(0, call.model.name, call.rows, arrived_us, arrived_us + call.due_us)
    request.tier = call.objective.tier
    if call.timeout_us is not None:
        request.expires_us = arrived_us + call.timeout_us
    request.tenant, request.name, request.trace = call.tenant, call.name, call.trace
    return request


def flight_of(call: Call, key: bytes, epoch: int) -> bytes:
    """Return a name for the calls that wait for the same answer. After an invalidation no call joins what
    began before. If several variants may answer, no call joins another for which a different variant is
    best."""
    flight = key + epoch.to_bytes(8, "little")
    wish = call.objective
    if call.variant or len(wish.variants) == 1 or (wish.optimize == MOST_ACCURATE and wish.cost_max == inf):
        return flight
    return flight + f"{wish.optimize} {wish.cost_max}".encode()


def reply_of(call: Call, entry: KeptAnswer, cache: str, age_us: int = 0) -> Reply:
    """Return a kept answer for a call. It is no downgrade: a better one is not to be had at present."""
    reply = Reply(COMPLETED)
    reply.outputs, reply.variant, reply.cache, reply.age_us = entry.outputs, entry.variant, cache, age_us
    reply.accuracy, reply.rehearsed = call.model.accuracy(entry.variant), entry.rehearsed
    return reply


def joined(computed: Reply) -> Reply:
    """Return the answer to another call, for one that waited for it."""
    reply = Reply(COMPLETED)
    reply.outputs, reply.variant, reply.cache = computed.outputs, computed.variant, "join"
    reply.accuracy, reply.downgrade = computed.accuracy, computed.downgrade
    reply.rehearsed, reply.version = computed.rehearsed, computed.version
    return reply


class Expiries:
    """The deadlines of waiting calls, by id. `passed(now_us)` is called when a deadline has passed. The
    deadlines of calls that no longer wait leave lazily."""

    __slots__ = ("_alarm", "_heap")

    def __init__(self, passed: Callable[[int], None]) -> None:
        self._alarm = Alarm(passed)
        self._heap: list[tuple[int, int]] = []

    def add(self, expires_us: int, member: int, waiting: Collection[int], now: int) -> None:
        """Add a deadline; `waiting`: the calls that still wait."""
        if len(self._heap) > 2 * len(waiting) + 64:
            self._heap[:] = [each for each in self._heap if each[1] in waiting]
            heapify(self._heap)
        heappush(self._heap, (expires_us, member))
        self._alarm.set(self._heap[0][0], now)

    def take(self, now: int) -> Iterator[int]:
        """Yield the ids with deadlines that have come."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            yield heappop(heap)[1]
        if heap:
            self._alarm.set(heap[0][0], now)


def hand_over(deliver: Deliver, reply: Reply, model: str) -> None:
    """Give a call's edge its answer."""
    try:
        deliver(reply)
    except Exception:  # a bug of one edge must cost neither the other answers nor the worker's link
        logger.exception("an answer of %s could not be delivered", model)


def stating(version: int, call: Call, deliver: Deliver) -> Deliver:
    """Return what delivers the call's answer, and have its parts given so too: with this version, where they
    state no other."""
    if call.on_answer is not None:
        call.on_answer = partial(_give_part, version, call.on_answer)
    return partial(_give, version, deliver)


def _give(version: int, deliver: Deliver, reply: Reply) -> None:
    reply.version = reply.version or version
    deliver(reply)


def _give_part(version: int, take: TakeAnswer, outputs: Sequence[Tensor], stated: int) -> None:
    take(outputs, stated or version)
