"""An answer as it is kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.tensor import Tensor

ENTRY_BYTES = 400
TENSOR_BYTES = 200
"""What an entry takes with its key and its place in a store, and each tensor beside its data: measured, up to
a sixth less."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptAnswer:
    """What a model answered: `outputs` in the order of its spec, computed by `variant`, since `stored_us`.

    `bytes`: what it takes in memory with all that keeps it.
    """

    model: str
    variant: str
    outputs: tuple[Tensor, ...]
    stored_us: int
    bytes: int


def entry_of(model: str, variant: str, outputs: Sequence[Tensor], stored_us: int) -> KeptAnswer:
    """The entry for an answer, with bytes of its own: outputs are views of a whole batch's result, which they
    would keep alive. As its bytes never change, hits may share them."""
    own = tuple(Tensor(each.name, each.datatype, each.shape, bytes(each.data)) for each in outputs)
    held = sum(TENSOR_BYTES + len(tensor.data) for tensor in own)
    return KeptAnswer(model, variant, own, stored_us, ENTRY_BYTES + held)
