"""One account of what clients make the gateway hold, over REST and gRPC: uploads, messages, bulk work, calls,
unsent answers.

`serving/policy/limits/memory.py` decides what is done as it fills up; this counts, asks, and does it.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, cast

from router.tensors.parts.errors import RequestError, memory_full
from serving.policy.limits.memory import PAUSE_SHARE, RESUME_SHARE, HeldMemory, Level, level_of, relieve
from serving.values.specs import Limits

STEP_SHARE: Final = 1 / 256
"""Of the limit, what must have come in since the last look at all uploads before the next: each look takes
some microseconds an upload."""


class Holder(Protocol):
    """What holds memory for a client, and can let go of it."""

    def held_bytes(self) -> int:
        """Return what it holds now."""
        ...

    def address(self) -> str:
        """Return the address of its client."""
        ...

    def give_up(self, _sentence: str) -> None:
        """Let go of it; an upload is refused with that sentence."""
        ...


class Upload(Holder, Protocol):
    """A request's body that comes in, or waits for its turn."""

    def is_growing(self) -> bool:
        """Return whether more of the upload is to come, and is being read."""
        ...

    def hold_back(self) -> None:
        """Read no more of it."""
        ...

    def go_on(self) -> None:
        """Read on."""
        ...


class Account:
    """One per gateway. `given_up`: uploads and answers ended for want of memory; `paused_count`: uploads that
    were held back."""

    def __init__(self, limits: Limits) -> None:
        self.limit_bytes = limits.held_bytes
        self.given_up = 0
        self.paused_count = 0
        self._uploads: dict[Upload, int] = {}
        self._upload_bytes = 0
        self._paused: dict[Upload, None] = {}
        self._readers: dict[Holder, int] = {}  # the one that stands still for longest comes first
        self._reader_bytes = 0  # as they fell behind: at least what they hold
        self._besides: dict[str, Callable[[], int]] = {}
        self._pause_bytes = int(limits.held_bytes * PAUSE_SHARE)
        self._step_bytes = max(1, int(limits.held_bytes * STEP_SHARE))
        self._review_bytes = self._pause_bytes  # what must be held before all uploads are looked at again

    def count(self, name: str, read: Callable[[], int]) -> None:
        """Count a further holder under this name; `read` returns how many bytes it holds now."""
        self._besides[name] = read

    @property
    def held_bytes(self) -> int:
        """All of it."""
        return self._upload_bytes + self._reader_bytes + self._besides_bytes()

    @property
    def level(self) -> Level:
        """How full it is."""
        return level_of(self.held_bytes, self.limit_bytes)

    def refusal(self) -> RequestError | None:
        """Return why no new large request is taken now; None where it is."""
        held_bytes = self.held_bytes
        if level_of(held_bytes, self.limit_bytes) < Level.REFUSE:
            return None
        share = held_bytes / self.limit_bytes
        return memory_full(
            f"the gateway holds {share:.0%} of the {self.limit_bytes} bytes that all its clients may make it "
            "hold (limits.held_mb); from 90% on only small requests are taken, of at most 64 KB"
        )

    def hold(self, upload: Upload, size: int) -> None:
        """Note that an upload has grown to `size` bytes; any upload may be paused or given up before this
        returns."""
        self._upload_bytes += size - self._uploads.get(upload, 0)
        self._uploads[upload] = size
        self._grown()

    def release(self, upload: Upload) -> None:
        """Release an upload that has been read or refused."""
        self._upload_bytes -= self._uploads.pop(upload, 0)
        if upload in self._paused:
            del self._paused[upload]
            upload.go_on()
        self.look()

    def fall_behind(self, reader: Holder) -> None:
        """Note that a client does not take its answers as they come; this client, or others, may be given
        up."""
        size = reader.held_bytes()
        self._reader_bytes += size - self._readers.get(reader, 0)
        self._readers[reader] = size
        self._grown()

    def catch_up(self, reader: Holder) -> None:
        """Note that a client has taken its answers, or has left."""
        size = self._readers.pop(reader, 0)
        if size:
            self._reader_bytes -= size
            self.look()

    def look(self) -> None:
        """Let paused uploads go on if less is held now."""
        if self._review_bytes == self._pause_bytes and not self._paused:
            return
        held_bytes = self.held_bytes
        self._review_bytes = min(self._review_bytes, max(self._pause_bytes, held_bytes + self._step_bytes))
        if held_bytes < RESUME_SHARE * self.limit_bytes:
            freed = tuple(self._paused)
        elif self._paused and not any(each.is_growing() for each in self._uploads):
            freed = (min(self._paused, key=self._uploads.__getitem__),)
        else:
            return
        for each in freed:
            self._paused.pop(each, None)
            each.go_on()

    def refresh(self) -> None:
        """Look at what readers have taken meanwhile; now and then, as nothing tells of it."""
        if self._readers:
            self._measure_readers()
        self.look()

    def by_kind(self) -> Mapping[str, int]:
        """Return the bytes held now, by kind."""
        self._measure_readers()
        found = {"uploads": self._upload_bytes, "answers": self._reader_bytes}
        return found | {name: read() for name, read in self._besides.items()}

    def _besides_bytes(self) -> int:
        return sum([read() for read in self._besides.values()])

    def _measure_readers(self) -> None:
        for each in self._readers:
            self._readers[each] = each.held_bytes()
        self._reader_bytes = sum(self._readers.values())

    def _grown(self) -> None:
        held_bytes = self.held_bytes
        if held_bytes > self.limit_bytes or held_bytes >= self._review_bytes:
            self._review()

    def _review(self) -> None:
        self._measure_readers()
        found: list[HeldMemory] = []
        for reader, size in self._readers.items():
            found.append(HeldMemory(reader.address(), size, False, True))
        for upload, size in self._uploads.items():
            found.append(HeldMemory(upload.address(), size, upload.is_growing(), False))
        relief = relieve(found, self._besides_bytes(), self.limit_bytes)
        holders: list[Holder] = [*self._readers, *self._uploads]
        uploads = [*self._uploads]
        if relief.paused >= 0:
            paused = uploads[relief.paused - len(self._readers)]
            self._paused[paused] = None
            self.paused_count += 1
            paused.hold_back()
        for place in relief.ended:
            self._end(holders[place])
        if relief.ended:
            self.look()
        self._review_bytes = max(self._pause_bytes, self.held_bytes + self._step_bytes)

    def _end(self, holder: Holder) -> None:
        upload = cast(Upload, holder)  # or it is in neither of these
        self._upload_bytes -= self._uploads.pop(upload, 0)
        self._paused.pop(upload, None)
        self._reader_bytes -= self._readers.pop(holder, 0)
        self.given_up += 1
        holder.give_up(
            f"the gateway holds {self.limit_bytes} bytes at most for all its clients (limits.held_mb); "
            f"of all uploads, those from {holder.address()} were the largest"
        )
