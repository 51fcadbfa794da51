"""What may stand in the `parameters` of a request, of an input or of an output: the one place that knows.

An answer with status 200 never hides what was not done: what nothing here reads is refused by its name.
Accepted and passed over is only what asks for nothing: a value with which Triton's clients say "none".
"""

from collections.abc import Collection, Mapping
from typing import Final

from router.tensors.parts.errors import bad_input
from router.tensors.parts.places import PLACE
from router.tensors.parts.wording import listed, quoted, suggestion

INPUT: Final = ("binary_data_size", *PLACE)
OUTPUT: Final = ("binary_data", "classification", *PLACE)
"""What the gateway reads of the parameters of an input and of an output."""

_ALONE: Final = "the model has no sequences (sequence: in its model.yaml)"
_OF_TENSORS: Final = "it belongs to an input or an output"

_UNSERVED: Final[Mapping[str, str]] = {
    "sequence_id": _ALONE,
    "sequence_start": _ALONE,
    "sequence_end": _ALONE,
    "priority": "the model has no levels (priorities: in its model.yaml); state 'timeout', or name a tier",
    "headers": "state what the model reads as parameters; server.forward_headers lets header fields do so",
    "triton_enable_empty_final_response": "it is true or false",
    **dict.fromkeys(PLACE, _OF_TENSORS),
    "classification": "it belongs to an output",
}
"""What Triton reads (its extensions for sequences, scheduling policy, shared memory and classification) and
this gateway does not, and what to do instead."""

_KEPT: Final = {"triton_enable_empty_final_response": (False, True)}
"""Values that every answer satisfies: only the answers of a decoupled model have an empty final response."""


def refuse_unread(what: str, parameters: Mapping[str, object], read: Collection[str]) -> None:
    """Raise RequestError if a parameter of `what` is not in `read`, unless it asks for nothing."""
    for name, value in parameters.items():
        if name in read:
            continue
        why = _UNSERVED.get(name)
        if why is None and not name.startswith("triton_"):
            hint = suggestion(name, read) or f"; known are {listed(read)}"
            raise bad_input(f"{what} has an unknown parameter {quoted(name)}{hint}")
        if why is None or not (_asks_nothing(value) or _is_kept(name, value)):
            instead = f": {why}" if why else ""
            raise bad_input(f"{what} asks for {quoted(name)}, which this gateway does not offer{instead}")


def only_binary(what: str, parameters: Mapping[str, object], name: str) -> None:
    """Raise RequestError if outputs are to be no raw bytes, in a protocol that has nothing else."""
    if parameters.get(name, True) is not True:
        found = quoted(parameters[name])
        raise bad_input(f"{name!r} of {what} must be true over gRPC, where outputs are raw, got {found}")


def _asks_nothing(value: object) -> bool:
    return value is None or value is False or (type(value) is int and value == 0) or value == ""


def _is_kept(name: str, value: object) -> bool:
    return isinstance(value, bool) and value in _KEPT.get(name, ())
