"""An answer as the cache keeps it."""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.values.tensor import Tensor

ENTRY_BYTES = 410
TENSOR_BYTES = 200
"""Memory of an entry with its key and its place in a store, and of each tensor besides its data.

The measured memory is up to a sixth less.
"""


@dataclass(frozen=True, slots=True, eq=False)
class KeptAnswer:
    """A model's answer: `outputs` in the order of its spec, computed by `variant`, since `stored_us`.

    `bytes`: its memory, with all that keeps it. `rehearsed`: it was made up, and stays in this gateway.
    """

    model: str
    variant: str
    outputs: tuple[Tensor, ...]
    stored_us: int
    bytes: int
    rehearsed: bool = False


def entry_of(
    model: str, variant: str, outputs: Sequence[Tensor], stored_us: int, rehearsed: bool = False
) -> KeptAnswer:
    """Return the entry for an answer, with its own copy of the bytes.

    `outputs` are views of a whole batch's result, and would keep all of that result alive. The bytes of an
    entry never change, so hits may share them.
    """
    own = tuple(Tensor(each.name, each.datatype, each.shape, bytes(each.data)) for each in outputs)
    held = sum(TENSOR_BYTES + len(tensor.data) for tensor in own)
    return KeptAnswer(model, variant, own, stored_us, ENTRY_BYTES + held, rehearsed)
