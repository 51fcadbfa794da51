"""Tensors in memory of the client: what a request says of where they lie (Triton's extensions for shared
memory).

A codec reads the places, and a `Memory` reaches the bytes. What the codecs know of it is in here; the regions
themselves are in `router/payloads/regions`.
"""

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from router.tensors.parts.errors import RequestError, bad_input
from router.tensors.parts.wording import quoted
from serving.values.tensor import Buffer, Tensor

REGION: Final = "shared_memory_region"
OFFSET: Final = "shared_memory_offset"
SIZE: Final = "shared_memory_byte_size"
PLACE: Final = (REGION, OFFSET, SIZE)
"""The parameters of an input or an output that state its place."""

DISABLED: Final = "Client shared memory is disabled"
"""As Triton begins; its clients look for it."""
ENABLE: Final = "set `server: {client_shm: true}` in penstock.yaml"

WHOLE_MAX: Final = (1 << 64) - 1


class Place(NamedTuple):
    """Where a tensor lies: `size` bytes from `offset` on, in the region of that name."""

    region: str
    offset: int
    size: int


class Target(Protocol):
    """The place of an output, found and checked."""

    def check(self, tensor: Tensor) -> None:
        """Raise RequestError if the place is too small for the tensor."""
        ...

    def writing(self, data: Buffer) -> Iterator[int]:
        """Write the data, a portion at each step. Raises RequestError if the region can no longer take it."""
        ...


class Memory(Protocol):
    """The memory that a caller has registered."""

    def take(self, places: Sequence[Place]) -> Sequence[Buffer]:
        """Return copies of what lies there now. Raises RequestError, or CopyFirst for more than the event
        loop copies at once."""
        ...

    def aim(self, places: Sequence[Place]) -> Sequence[Target]:
        """Return the places of outputs. Raises RequestError."""
        ...


class CopyFirst(Exception):  # noqa: N818  # it is no error: there is work to do first
    """The inputs are more than the event loop copies at once.

    `copy` copies them in portions; it takes the bytes that the caller holds beside them meanwhile. With the
    Memory that it returns, the request is decoded again.
    """

    def __init__(self, copy: Callable[[int], Coroutine[Any, Any, Memory]]) -> None:
        super().__init__("the inputs in shared memory are to be copied first")
        self.copy = copy


def read_place(asked: Mapping[str, object], what: str) -> Place | None:
    """Return the place that the parameters of a tensor state, None for none; `what` is the tensor."""
    region = asked.get(REGION)
    if region is None or region == "":
        for name in (OFFSET, SIZE):
            if asked.get(name):
                raise bad_input(f"{what} states '{name}' without '{REGION}'; state the region's name")
        return None
    if not isinstance(region, str):
        raise bad_input(f"'{REGION}' of {what} must be a string, got {quoted(region)}")
    offset = _whole(asked.get(OFFSET) or 0, OFFSET, what)
    size = asked.get(SIZE)
    if size is None:
        raise bad_input(f"{what} states '{REGION}' without '{SIZE}'; state how many bytes it has there")
    return Place(region, offset, _whole(size, SIZE, what))


def _whole(value: object, name: str, what: str) -> int:
    if type(value) is not int or not 0 <= value <= WHOLE_MAX:
        raise bad_input(f"'{name}' of {what} must be a whole number of bytes, got {quoted(value)}")
    return value


def refuse_disabled(place: Place) -> NoReturn:
    """Refuse a tensor in shared memory, where none is served."""
    raise bad_input(
        f"{DISABLED}: a tensor names the region {quoted(place.region)}; send its data in the request, "
        f"or {ENABLE}"
    )


def placed_inputs(places: Sequence[Place | None]) -> list[tuple[int, Place]]:
    """Return which inputs of the spec lie in the client's memory, and where; `places` has one for each."""
    found: list[tuple[int, Place]] = []
    for index, place in enumerate(places):
        if place is not None:
            found.append((index, place))
    return found


def fill(tensors: Sequence[Tensor], placed: Sequence[tuple[int, Place]], memory: Memory | None) -> None:
    """Give the tensors with these indices their data."""
    if memory is None:
        refuse_disabled(placed[0][1])
    found = memory.take([place for _, place in placed])
    for (index, _), data in zip(placed, found, strict=True):
        tensors[index].data = data


def aim(places: Sequence[Place], memory: Memory | None) -> Sequence[Target]:
    """Return where the outputs of a request go."""
    if memory is None:
        refuse_disabled(places[0])
    return memory.aim(places)


def place_parameters(place: Place, size: int) -> dict[str, object]:
    """Return what an answer says of an output there, of which it has `size` bytes."""
    said: dict[str, object] = {REGION: place.region, SIZE: size}
    if place.offset:
        said[OFFSET] = place.offset
    return said


def refused_classes(what: str) -> RequestError:
    """Return the refusal of classes in shared memory, as Triton words it."""
    return bad_input(f"{what} can't set both '{REGION}' and 'classification'; ask for one of them")
