"""What every transport asks of a request's tensors before it touches their data.

Nothing is allocated from a client's figures: sizes are Python integers until they have passed.
"""

from collections.abc import Sequence
from math import prod

from router.tensors.parts.errors import RequestError, bad_input, too_large
from router.tensors.parts.wording import listed, quoted, suggestion, written
from serving.values.specs import Limits, ModelSpec, ServedModel, TensorSpec
from serving.values.tensor import ABSENT, ANY, DATATYPES, ITEM_BYTES


class ClaimedInput:
    """What a client says that an input is. `absent`: the client leaves it out. `told`: its shape in the
    client's words, which has no batch dimension where the model has none."""

    __slots__ = ("absent", "datatype", "name", "shape", "told")

    def __init__(self, name: str, datatype: str, shape: tuple[int, ...], absent: bool = False) -> None:
        self.name = name
        self.datatype = datatype
        self.shape = self.told = shape
        self.absent = absent

    @property
    def data_bytes(self) -> int:
        """Exact bytes of the data; for BYTES the least that its elements' lengths take."""
        return 0 if self.absent else prod(self.shape) * (ITEM_BYTES[self.datatype] or 4)


def arrange(model: ServedModel, claims: Sequence[ClaimedInput], limits: Limits) -> list[int]:
    """Return where each input of the spec stands in `claims`; RequestError unless they fit the spec and
    limits."""
    spec = model.spec
    places: dict[str, int] = {}
    for place, claim in enumerate(claims):
        if claim.name in places:
            raise bad_input(f"input {quoted(claim.name)} is given twice")
        places[claim.name] = place
    known = [tensor.name for tensor in spec.inputs]
    for name in places:
        if name not in known:
            missing = [tensor for tensor in known if tensor not in places]
            raise _unknown("input", name, missing, known, spec)
    if len(places) < len(known):
        raise _missing([tensor for tensor in spec.inputs if tensor.name not in places], spec)
    order = [places[name] for name in known]
    for tensor, place in zip(spec.inputs, order, strict=True):
        _fits(claims[place], tensor, spec)
    _rows([claims[place] for place in order], limits)
    _same_sizes(spec, [claims[place] for place in order])
    for claim in claims:
        _bounded(claim, claim.data_bytes, limits)
        if claim.datatype == "BYTES" and prod(claim.shape) > limits.bytes_count:
            raise too_large(
                f"input '{claim.name}': BYTES {written(claim.told)} has {prod(claim.shape)} elements; "
                f"at most {limits.bytes_count} are accepted (limits.bytes_count)"
            )
    return order


def in_one_row(model: ServedModel, claims: Sequence[ClaimedInput]) -> None:
    """Add the batch dimension to the inputs of a model that has none for its clients."""
    if model.spec.unbatched:
        for claim in claims:
            claim.shape = (1, *claim.told)


def left_out(model: ServedModel, claims: Sequence[ClaimedInput]) -> list[ClaimedInput]:
    """Return a claim for each optional input that the request leaves out: of its rows, and without data."""
    optional = [tensor.name for tensor in model.spec.inputs if tensor.optional]
    if not optional:
        return []
    given = [claim.name for claim in claims]
    rows = claims[0].shape[:1] if claims else ()
    return [ClaimedInput(name, ABSENT, rows, absent=True) for name in optional if name not in given]


def find_outputs(model: ServedModel, names: Sequence[str]) -> list[int]:
    """Return the indices of the outputs that a client asks for by name. Raises RequestError for unknown or
    repeated names."""
    known = [tensor.name for tensor in model.spec.outputs]
    indices: list[int] = []
    for name in names:
        if name not in known:
            raise _unknown("output", name, known, known, model.spec)
        index = known.index(name)
        if index in indices:
            raise bad_input(f"output '{name}' is asked for twice")
        indices.append(index)
    return indices


def check_size(claim: ClaimedInput, size: int, limits: Limits) -> None:
    """Raise RequestError unless raw data of `size` bytes can be what the claim says (BYTES: not yet its
    elements)."""
    _bounded(claim, size, limits)
    if claim.datatype != "BYTES" and size != claim.data_bytes:
        raise bad_input(
            f"input '{claim.name}': {claim.datatype} {written(claim.told)} takes "
            f"{claim.data_bytes} bytes, got {size}"
        )


def check_count(what: str, number: int, limits: Limits) -> None:
    """Raise RequestError (TOO_LARGE) for more tensors of a kind than `limits.tensor_count`; called before any
    tensor is looked at."""
    if number > limits.tensor_count:
        raise too_large(
            f"the request names {number} {what}; at most {limits.tensor_count} "
            "are accepted (limits.tensor_count)"
        )


def _missing(tensors: Sequence[TensorSpec], spec: ModelSpec) -> RequestError:
    names = " and ".join(f"'{tensor.name}'" for tensor in tensors)
    expected = ", ".join(f"{tensor.datatype} {written(spec.told(tensor))}" for tensor in tensors)
    subject, are = ("inputs", "are") if len(tensors) > 1 else ("input", "is")
    return bad_input(f"{subject} {names} of model '{spec.name}' {are} missing: expected {expected}")


def _fits(claim: ClaimedInput, tensor: TensorSpec, spec: ModelSpec) -> None:
    if claim.absent:
        return
    expected = DATATYPES if tensor.datatype == ANY else (tensor.datatype,)
    if claim.datatype not in expected:
        hint = suggestion(claim.datatype, DATATYPES) if claim.datatype not in DATATYPES else ""
        raise bad_input(
            f"input '{claim.name}': expected datatype {' or '.join(expected)}, "
            f"got {quoted(claim.datatype)}{hint}"
        )
    shape = claim.shape
    if min(shape, default=0) < 0:
        raise bad_input(
            f"input '{claim.name}': shape {written(claim.told[:16])} has a negative dimension; "
            "a request says how many there are"
        )
    if len(shape) == len(tensor.shape) and all(
        wanted in (-1, dim) for dim, wanted in zip(shape, tensor.shape, strict=True)
    ):
        return
    # The beginning is Triton's own sentence, which its clients and tests look for.
    message = (
        f"unexpected shape for input '{claim.name}' for model '{spec.name}': "
        f"expected {written(spec.told(tensor))}, got {written(claim.told[:16])}"
    )
    if spec.unbatched:
        message += "; this model has no batch dimension"
    elif len(shape) == len(tensor.shape) - 1:
        message += f"; the batch dimension comes first: one row is {written((1, *shape))}"
    raise bad_input(message)


def _rows(claims: Sequence[ClaimedInput], limits: Limits) -> None:
    first = claims[0]
    rows = first.shape[0]
    for claim in claims:
        if claim.absent:
            continue
        if claim.shape[0] == 0:
            raise bad_input(
                f"input '{claim.name}': shape {written(claim.shape)} has no rows; send at least one"
            )
        if claim.shape[0] != rows:
            raise bad_input(
                f"inputs differ in their rows: '{first.name}' has {rows}, "
                f"'{claim.name}' has {claim.shape[0]}; the first dimension must be the same"
            )
    if rows > limits.rows_per_request:
        raise too_large(
            f"the request has {rows} rows; at most {limits.rows_per_request} "
            "are accepted (limits.rows_per_request)"
        )


def _same_sizes(spec: ModelSpec, claims: Sequence[ClaimedInput]) -> None:
    """Raise RequestError if dimensions of one name differ; `claims` are in the order of the spec."""
    seen: dict[str, tuple[int, str]] = {}
    for tensor, claim in zip(spec.inputs, claims, strict=True):
        if claim.absent:
            continue
        for name, size in zip(tensor.names, claim.shape, strict=False):
            first, other = seen.setdefault(name, (size, claim.name)) if name else (size, "")
            if size != first:
                told = f"shape {written(claim.told[:16])} has the size {size} for '{name}'"
                raise bad_input(f"input '{claim.name}': {told}; expected {first}, as input '{other}' has")


def _bounded(claim: ClaimedInput, size: int, limits: Limits) -> None:
    if size > limits.tensor_bytes:
        raise too_large(
            f"input '{claim.name}': {claim.datatype} {written(claim.told)} of {size} bytes; "
            f"at most {limits.tensor_bytes} are accepted (limits.tensor_mb)"
        )


def _unknown(
    kind: str, name: str, likely: Sequence[str], known: Sequence[str], spec: ModelSpec
) -> RequestError:
    hint = suggestion(name, likely) or f"; its {kind}s are {listed(known)}"
    return bad_input(f"model '{spec.name}' has no {kind} {quoted(name)}{hint}")
