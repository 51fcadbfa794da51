"""The request parameters of sequences: `sequence_id`, `sequence_start` and `sequence_end`.

Their meaning and the wording of what is refused are Triton's (its sequence extension, and Enqueue in
`sequence_batch_scheduler.cc`); what follows a semicolon is this gateway's.
"""

from collections.abc import Mapping
from typing import Final

from router.tensors.parts.errors import bad_input
from router.tensors.parts.wording import quoted
from serving.values.sequences import ID_CHARS_MAX, SequenceId, SequenceStep
from serving.values.specs import ServedModel

SEQUENCE: Final = ("sequence_id", "sequence_start", "sequence_end")
_MOST: Final = {"UINT64": 2**64 - 1, "INT64": 2**63 - 1, "UINT32": 2**32 - 1, "INT32": 2**31 - 1}


def read_step(values: Mapping[str, object], model: ServedModel) -> SequenceStep | None:
    """Return what a request says of its sequence; None for a model without sequences. RequestError for what
    is not valid."""
    spec = model.spec.sequence
    if spec is None:
        return None
    found = values.get("sequence_id")
    if found is None or found == "" or (found == 0 and not isinstance(found, bool)):
        raise bad_input(
            f"inference request to model '{model.name}' must specify a non-zero or non-empty correlation ID;"
            " state sequence_id"
        )
    return SequenceStep(_id(found, model, spec.id_datatype), _flag(values, "start"), _flag(values, "end"))


def check_rows(model: ServedModel, rows: int) -> None:
    """Raise RequestError if a request of a sequence has several rows."""
    if rows != 1:
        raise bad_input(
            f"inference request to model '{model.name}' must specify batch-size 1 due to requirements of"
            f" sequence batcher; got {rows} rows"
        )


def _id(found: object, model: ServedModel, datatype: str) -> SequenceId:
    if isinstance(found, str) and datatype in ("", "BYTES"):
        try:
            size = len(found.encode())
        except UnicodeEncodeError:
            raise bad_input(f"parameter 'sequence_id' must be UTF-8 text, got {quoted(found)}") from None
        if size > ID_CHARS_MAX:
            raise bad_input(f"parameter 'sequence_id' must have up to {ID_CHARS_MAX} bytes, got {size}")
        return found
    most = _MOST.get(datatype, 0 if datatype else _MOST["UINT64"])
    if type(found) is int and 0 < found <= most:
        return found
    expected = "text" if datatype == "BYTES" else f"a whole number from 1 to {most}"
    expected += "" if datatype else f", or text of up to {ID_CHARS_MAX} bytes"
    raise bad_input(
        f"parameter 'sequence_id' of model '{model.name}' must be {expected}, got {quoted(found)}"
    )


def _flag(values: Mapping[str, object], word: str) -> bool:
    found = values.get(f"sequence_{word}")
    if found is None:
        return False
    if not isinstance(found, bool):
        raise bad_input(f"parameter 'sequence_{word}' must be true or false, got {quoted(found)}")
    return found
