"""Questions, answers and keys, short to write."""

from collections.abc import Sequence
from hashlib import sha256

from serving.cache.entries import KeptAnswer
from serving.ports import Call
from serving.values.specs import Parameters
from serving.values.tensor import Tensor
from tests.builders import model_spec, served

TTL_US = 1_000_000


def key_of(number: int) -> bytes:
    """A key, uniform as a digest is."""
    return sha256(number.to_bytes(8, "little")).digest()


def entry(size: int = 1000, stored_us: int = 0, model: str = "m") -> KeptAnswer:
    """An answer that says to take so many bytes; the store believes it."""
    return KeptAnswer(model, "a", (), stored_us, size)


def question(
    inputs: Sequence[Tensor],
    model: str = "m",
    variant: str = "",
    tenant: str = "t",
    parameters: Parameters = (),
) -> Call:
    """A call of a model with variants a (its own) and b."""
    call = Call(served(model_spec(model, ("a", "b"))), inputs, inputs[0].shape[0])
    call.variant, call.tenant, call.parameters = variant, tenant, parameters
    return call
