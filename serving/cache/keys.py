"""What makes two calls the same question."""

from hashlib import sha256

from serving.ports import Call

DIGEST_BYTES_MAX = 1 << 20
"""Inputs of more bytes are not asked of the cache: SHA-256 takes 0.56 us a kilobyte (one core of an AMD EPYC,
Zen 4), so that of these it takes 0.6 ms of the event loop, in which nobody else is served."""


def variants_of(call: Call) -> tuple[str, ...]:
    """Those that may answer: the pinned one, else those that the call's objective allows."""
    return (call.variant,) if call.variant else call.objective.variants


def question_key(call: Call, shared: bool) -> bytes:
    """32 bytes that are equal for calls that any answer to one of them answers, and for no others.

    Over the model, the variants that may answer (the pinned one, else those of the call's objective) and
    their builds, the tenant unless answers are `shared` among tenants, the parameters, and of each input its
    name, datatype, shape and bytes. SHA-256, as a key stands for the question: nobody can forge an equal one
    (Clipper's had 64 bits).
    """
    spec = call.model.spec
    variants = variants_of(call)
    head = repr(
        (
            call.model.name,
            variants,
            [spec.variant(name).build for name in variants],
            None if shared else call.tenant,
            call.parameters,
            [(tensor.name, tensor.datatype, tensor.shape, len(tensor.data)) for tensor in call.inputs],
        )
    ).encode()  # repr quotes strings and tells 1, 1.0, True and "1" apart; it says where each input ends
    digest = sha256(len(head).to_bytes(8, "little"))
    digest.update(head)
    for tensor in call.inputs:
        digest.update(tensor.data)
    return digest.digest()
