"""One account of what REST clients make the gateway hold: uploads, tensors of accepted calls, unsent answers.

Above the limit, the client address that holds most loses the largest of its uploads and unsent answers, again
and again until the rest fits: many large uploads at once end each other, and no other client's request.
(Envoy's overload manager resets the largest streams likewise.)
"""

from collections.abc import Callable
from typing import Final, Protocol

from serving.specs import Limits

COUNTED_BYTES: Final = 1 << 16
"""Smaller uploads are not counted: `limits.connection_count` bounds them together."""


class Holder(Protocol):
    """An upload or a connection with unsent answers."""

    def held_bytes(self) -> int:
        """What it holds now."""
        ...

    def address(self) -> str:
        """Of its client."""
        ...

    def give_up(self, _sentence: str) -> None:
        """Let go of it; an upload is refused with that sentence."""
        ...


class Account:
    """One per server. `calls` says what accepted calls hold."""

    def __init__(self, limits: Limits) -> None:
        self.limit_bytes = limits.held_bytes
        self.calls: Callable[[], int] = int
        self.given_up = 0
        self._uploads: dict[Holder, int] = {}
        self._readers: dict[Holder, None] = {}
        self._upload_bytes = 0

    def hold(self, upload: Holder, size: int) -> None:
        """An upload has grown to `size` bytes; it, or others, may be given up before this returns."""
        self._upload_bytes += size - self._uploads.get(upload, 0)
        self._uploads[upload] = size
        if self._upload_bytes + self.calls() > self.limit_bytes or self._readers:
            self._review()

    def release(self, upload: Holder) -> None:
        """It is read, or refused."""
        self._upload_bytes -= self._uploads.pop(upload, 0)

    def fall_behind(self, reader: Holder) -> None:
        """A client does not take its answers as they come; it, or others, may be given up."""
        self._readers[reader] = None
        self._review()

    def catch_up(self, reader: Holder) -> None:
        """It has taken them, or has left."""
        self._readers.pop(reader, None)

    def bytes_by_kind(self) -> tuple[int, int, int]:
        """Held by uploads, accepted calls and unsent answers."""
        return self._upload_bytes, self.calls(), sum([each.held_bytes() for each in self._readers])

    def _review(self) -> None:
        while sum(self.bytes_by_kind()) > self.limit_bytes:
            largest = self._largest()
            if largest is None:
                return
            self.release(largest)
            self.catch_up(largest)
            self.given_up += 1
            largest.give_up(
                f"the gateway holds {self.limit_bytes} bytes at most for all its clients (limits.held_mb); "
                f"of all uploads, those from {largest.address()} were the largest"
            )

    def _largest(self) -> Holder | None:
        """The largest holding of the address that holds most."""
        totals: dict[str, int] = {}
        found: dict[str, Holder] = {}
        for each in (*self._uploads, *self._readers):
            address, size = each.address(), each.held_bytes()
            totals[address] = totals.get(address, 0) + size
            if address not in found or size > found[address].held_bytes():
                found[address] = each
        return found[max(totals, key=totals.__getitem__)] if totals else None
