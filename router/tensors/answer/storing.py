"""The outputs of a completed request that go to the client's own memory."""

from collections.abc import Iterator

from router.tensors.request.decoded import Decoded
from serving.ports import Reply


def storing(decoded: Decoded, reply: Reply) -> Iterator[int]:
    """Write the outputs of a completed request that go to the client's memory, a portion at each step.

    Nothing is written before all places are known to be large enough. Later calls for the same request do
    nothing. Raises RequestError.
    """
    targets = decoded.targets
    decoded.targets = ()
    tensors = [reply.outputs[each.index] for each in decoded.wanted if each.place is not None]
    if targets:
        for target, tensor in zip(targets, tensors, strict=True):
            target.check(tensor)
        for target, tensor in zip(targets, tensors, strict=True):
            yield from target.writing(tensor.data)


def store(decoded: Decoded, reply: Reply) -> None:
    """Do all that `storing` does, at once."""
    if decoded.targets:
        for _ in storing(decoded, reply):
            pass


def stored_bytes(decoded: Decoded, reply: Reply) -> int:
    """Return how many bytes `store` has to write."""
    if not decoded.targets:
        return 0
    return sum(len(reply.outputs[each.index].data) for each in decoded.wanted if each.place is not None)
