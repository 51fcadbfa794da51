"""What a decoder hands to an edge: the call for the core, and what its answer has to look like."""

from collections.abc import Sequence

from router.tensors.parts.places import Place, Target
from router.tensors.request.parameters import Stated
from serving.ports import Call


class RequestedOutput:
    """An output that the client asked for: `index` into the spec's outputs, binary or as JSON.

    `classes`: the number of each row's largest values to return in place of the output; 0 for the output
    itself. `place`: where the client wants its data, None for in the answer.
    """

    __slots__ = ("binary", "classes", "index", "place")

    def __init__(self, index: int, binary: bool, classes: int = 0, place: Place | None = None) -> None:
        self.index = index
        self.binary = binary
        self.classes = classes
        self.place = place

    def __repr__(self) -> str:
        classes = f", classes={self.classes}" if self.classes else ""
        return f"Wanted({self.index}, binary={self.binary}{classes})"


class Decoded:
    """A checked request: the call, the client's `id` ("" where it gave none) and the outputs it wants.

    `wanted` is in the order in which the client asked, or all outputs in the order of the spec; `stated` is
    what the request's parameters say of tier and floor, None for nothing. `empty_final`: of a model with any
    number of answers, the end is to be told by an answer of its own. `targets`: the places of those wanted
    outputs that go to the client's memory, in their order, until they are written.
    """

    __slots__ = ("call", "empty_final", "id", "stated", "targets", "wanted")

    def __init__(
        self,
        call: Call,
        id: str,  # noqa: A002
        wanted: tuple[RequestedOutput, ...],
        stated: Stated | None = None,
    ) -> None:
        self.call = call
        self.id = id
        self.wanted = wanted
        self.stated = stated
        self.empty_final = False
        self.targets: Sequence[Target] = ()
