"""The regions that clients have registered, each caller's apart from all others'.

A caller is a key of `auth:`; where no keys are asked for, all clients are one caller, as in Triton.
"""

import os
from collections.abc import Callable, Sequence
from enum import Enum
from mmap import mmap
from typing import Any, Final, Protocol  # Any: the state of an application has no types

from router.payloads.bulk.pool import Bulk
from router.payloads.regions.region import Aimed, KeyRefusedError, OpenFile, Region, clashing, open_file
from router.security.auth.identity import Identity
from router.settings.values.client_shm import REGION_COUNT_MAX, ClientShm
from router.tensors.parts.errors import RequestError, bad_input, too_large
from router.tensors.parts.places import CopyFirst, Memory, Place, Target
from router.tensors.parts.wording import quoted
from serving.policy.limits.memory import SMALL_BYTES
from serving.values.specs import Limits
from serving.values.tensor import Buffer
from serving.worker.frames.shared import PORTION_BYTES

NAME_CHARS_MAX: Final = 255

_Found = tuple[Region, int, int]
"""A region, and which bytes of its file: the first, and how many."""


class Fault(Enum):
    """Why a registration is refused."""

    INVALID = "invalid"
    EXISTS = "exists"
    FULL = "full"


class RegistrationRefusedError(Exception):
    """The text says what failed, and what would be right."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class Regions:
    """All regions of a gateway."""

    def __init__(
        self, bounds: ClientShm, body_bytes: int, bulk: Bulk, refusal: Callable[[], RequestError | None]
    ) -> None:
        """Build the registry. `body_bytes`: what one request may have there. `bulk` counts what is copied
        beside the event loop's other work. `refusal`: why no large request is taken now."""
        self.bounds = bounds
        self.body_bytes = body_bytes
        self.bulk = bulk
        self.refusal = refusal
        self._callers: dict[str, CallerMemory] = {}
        self._owners: dict[tuple[int, int], tuple[str, int]] = {}  # of a file: its caller, and its regions
        self.count = 0

    def of(self, identity: Identity | None) -> "CallerMemory":
        """Return what a caller has registered; `identity` is None where no keys are asked for."""
        name = "" if identity is None else identity.name
        found = self._callers.get(name)
        if found is None:
            found = self._callers[name] = CallerMemory(self, name)
        return found

    def enter(self, owner: str, file: OpenFile) -> None:
        """Count a region of that caller. RegistrationRefusedError where another caller has the file, so that
        no key reads what another key's clients write."""
        other, number = self._owners.get(file.identity, (owner, 0))
        if other != owner:
            raise RegistrationRefusedError(Fault.INVALID, "the file of its key is in use by another caller")
        if self.count >= REGION_COUNT_MAX:
            message = f"all callers together have the limit of {REGION_COUNT_MAX} regions; unregister some"
            raise RegistrationRefusedError(Fault.FULL, message)
        self._owners[file.identity] = owner, number + 1
        self.count += 1

    def leave(self, region: Region) -> None:
        """Count a region out."""
        owner, number = self._owners.pop(region.identity)
        if number > 1:
            self._owners[region.identity] = owner, number - 1
        self.count -= 1


def open_registry(
    bounds: ClientShm | None, limits: Limits, bulk: Bulk, refusal: Callable[[], RequestError | None]
) -> Regions | None:
    """Return the registry of a gateway; None where clients may register nothing."""
    return None if bounds is None else Regions(bounds, limits.body_bytes, bulk, refusal)


class Application(Protocol):
    """An ASGI application with a state, as Starlette's."""

    @property
    def state(self) -> Any:
        """What it keeps."""
        ...


def keep_regions(app: Application, regions: Regions | None) -> None:
    """Let the routes of the application find the registry."""
    app.state.regions = regions


def regions_of(app: Application) -> Regions | None:
    """Return the registry of an application; None where no shared memory is served."""
    found: Regions | None = getattr(app.state, "regions", None)
    return found


class CallerMemory:
    """The regions of one caller (`router.tensors.parts.places.Memory`)."""

    def __init__(self, regions: Regions, owner: str) -> None:
        self._all = regions
        self._owner = owner
        self._regions: dict[str, Region] = {}
        self._bytes = 0

    # registration

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Register `byte_size` bytes from `offset` on of the key's file. Raises RegistrationRefusedError."""
        self._check(name, offset, byte_size)
        try:
            file = open_file(key)
        except KeyRefusedError as error:
            refused = f"Unable to open shared memory region: {quoted(key)}: {error}"
            raise RegistrationRefusedError(Fault.INVALID, refused) from None
        try:
            if offset + byte_size > file.size:
                raise RegistrationRefusedError(
                    Fault.INVALID,
                    f"failed to register shared memory region {quoted(name)}: invalid args: its file has "
                    f"{file.size} bytes, got offset {offset} and {byte_size} bytes",
                )
            self._all.enter(self._owner, file)
        except RegistrationRefusedError:
            os.close(file.fd)
            raise
        self._regions[name] = Region(name, key, file, offset, byte_size)
        self._bytes += byte_size

    def _check(self, name: str, offset: int, byte_size: int) -> None:
        """Raise RegistrationRefusedError for what can be refused before the file is opened."""
        bounds = self._all.bounds
        fault, why = Fault.INVALID, ""
        if not 1 <= len(name) <= NAME_CHARS_MAX:
            why = f"a name has 1 to {NAME_CHARS_MAX} characters, got {len(name)}"
        elif name in self._regions:
            fault = Fault.EXISTS
            raise RegistrationRefusedError(fault, f"shared memory region {quoted(name)} already in manager")
        elif offset < 0 or byte_size < 1:
            why = f"invalid args: expected 1 byte or more, got offset {offset} and {byte_size} bytes"
        elif len(self._regions) >= bounds.regions:
            fault, why = Fault.FULL, f"there is the limit of {bounds.regions} (server.client_shm.regions)"
        elif self._bytes + byte_size > bounds.region_bytes:
            fault = Fault.FULL
            why = (
                f"all regions may have {bounds.region_bytes} bytes (server.client_shm.mb), "
                f"got {byte_size} besides {self._bytes}"
            )
        if why:
            raise RegistrationRefusedError(
                fault, f"failed to register shared memory region {quoted(name)}: {why}"
            )

    def unregister(self, name: str = "") -> None:
        """Forget a region, all of them for "". An unknown one is no fault, as in Triton."""
        for each in [name] if name else [*self._regions]:
            region = self._regions.pop(each, None)
            if region is not None:
                self._bytes -= region.byte_size
                self._all.leave(region)

    def registered(self) -> Sequence[Region]:
        """Return all regions, in the order in which they were registered."""
        return tuple(self._regions.values())

    def find(self, name: str) -> Region | None:
        """Return the region of that name; None where there is none."""
        return self._regions.get(name)

    # tensors

    def take(self, places: Sequence[Place]) -> Sequence[Buffer]:
        """See `router.tensors.parts.places.Memory`."""
        found = [self._locate(place) for place in places]
        total = sum(size for _, _, size in found)
        if total > SMALL_BYTES:
            if total > self._all.body_bytes:
                raise too_large(
                    f"the inputs in shared memory have {total} bytes; at most {self._all.body_bytes} are "
                    "accepted (limits.body_mb)"
                )
            refusal = self._all.refusal()
            if refusal is not None:
                raise refusal
            if total > PORTION_BYTES:
                raise CopyFirst(lambda beside: self._copied(found, total + beside))
        return [region.read(start, size) for region, start, size in found]

    def aim(self, places: Sequence[Place]) -> Sequence[Target]:
        """See `router.tensors.parts.places.Memory`. Raises RequestError, also where two places overlap: one
        output would overwrite the other."""
        aims = [Aimed(self._region(place), place) for place in places]
        if len(aims) > 1 and clashing(aims):
            raise bad_input("outputs overlap in shared memory; give each output a place of its own")
        return aims

    def _region(self, place: Place) -> Region:
        region = self._regions.get(place.region)
        if region is None:
            raise bad_input(f"Unable to find shared memory region: {quoted(place.region)}; register it first")
        return region

    def _locate(self, place: Place) -> _Found:
        region = self._region(place)
        return region, region.start_of(place), place.size

    async def _copied(self, found: Sequence[_Found], held_bytes: int) -> Memory:
        buffers: list[Buffer] = []
        bulk = self._all.bulk
        bulk.admit(held_bytes)
        for region, start, size in found:
            target = memoryview(mmap(-1, size)) if size else memoryview(b"")  # untouched pages cost nothing
            await bulk.in_turns(held_bytes, region.reading(start, target))
            buffers.append(target.toreadonly())
        return _Copied(self, buffers)


class _Copied:
    """The memory of a caller whose inputs for one request are copied."""

    def __init__(self, memory: CallerMemory, buffers: Sequence[Buffer]) -> None:
        self._memory = memory
        self._buffers = buffers

    def take(self, places: Sequence[Place]) -> Sequence[Buffer]:  # noqa: ARG002  # those that were copied
        return self._buffers

    def aim(self, places: Sequence[Place]) -> Sequence[Target]:
        return self._memory.aim(places)
