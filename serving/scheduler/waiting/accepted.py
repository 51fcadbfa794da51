"""Requests accepted and not yet answered, with their own deadlines and the bytes that they hold."""

from heapq import heapify, heappop, heappush

from serving.scheduler.waiting.requests import Request
from serving.values.vocabulary import NEVER_US


class Accepted:
    """By id; those that a client gave a deadline can be asked for as they expire."""

    __slots__ = ("_expiries", "_requests", "held_bytes")

    def __init__(self) -> None:
        self._requests: dict[int, Request] = {}
        self._expiries: list[tuple[int, int]] = []  # heap of (instant, id); the outdated leave lazily
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._requests

    def get(self, request_id: int) -> Request | None:
        """Return the request, None where it is unknown or answered."""
        return self._requests.get(request_id)

    def add(self, request: Request) -> None:
        """Add an accepted request."""
        self._requests[request.id] = request
        self.held_bytes += request.payload_bytes
        self.expire(request, request.expires_us)

    def expire(self, request: Request, expires_us: int) -> None:
        """Set when a request expires; an earlier time no longer holds."""
        request.expires_us = expires_us
        if expires_us != NEVER_US:
            if len(self._expiries) > 2 * len(self._requests) + 64:  # forget those that ended before
                self._expiries = [entry for entry in self._expiries if entry[1] in self._requests]
                heapify(self._expiries)
            heappush(self._expiries, (expires_us, request.id))

    def remove(self, request: Request) -> bool:
        """Remove an answered request. Return False if it was answered before."""
        if self._requests.pop(request.id, None) is None:
            return False
        self.held_bytes -= request.payload_bytes
        return True

    @property
    def next_expiry_us(self) -> int:
        """The first instant at which a request may expire."""
        return self._expiries[0][0] if self._expiries else NEVER_US

    def pop_expired(self, now_us: int) -> Request | None:
        """Return an accepted request with a passed deadline of its own; None if there is no (other) such
        request."""
        while self._expiries and self._expiries[0][0] <= now_us:
            request = self._requests.get(heappop(self._expiries)[1])
            if request is not None and request.expires_us <= now_us:
                return request
        return None
