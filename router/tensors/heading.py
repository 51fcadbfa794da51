"""What a request says besides its data, and the request that it makes with it."""

from collections.abc import Sequence
from math import prod

from router.tensors.answer.classes import check_classes
from router.tensors.parts.elements import longest_element
from router.tensors.parts.errors import bad_input
from router.tensors.parts.places import Memory, aim
from router.tensors.parts.wording import written
from router.tensors.request.check import ClaimedInput
from router.tensors.request.decoded import Decoded, RequestedOutput
from router.tensors.request.parameters import RequestParameters
from router.tensors.request.sequences import check_rows
from serving.ports import Call
from serving.values.specs import ServedModel, SizeHint
from serving.values.tensor import Tensor

NAME_CHARS_MAX = 128
"""Of a request's name, as `penstock explain --request` finds it."""


class Heading:
    """All of a request but its data, checked; requests that say the same may share one."""

    __slots__ = (
        "_aimed", "_as_text", "_asked", "_hinted", "_id", "_model", "_name", "_rows", "_size", "_texts",
        "_wanted",
    )  # fmt: skip

    def __init__(
        self,
        model: ServedModel,
        claims: Sequence[ClaimedInput],
        request_id: str,
        wanted: tuple[RequestedOutput, ...],
        asked: RequestParameters,
    ) -> None:
        """Build the heading. `claims`: the inputs in the order of the spec, as `check.arrange` left them."""
        check_classes(wanted, model.spec, claims[0].shape[0])
        if asked.step is not None:
            check_rows(model, claims[0].shape[0])
        self._model = model
        self._rows = claims[0].shape[0]
        self._id, self._name = request_id, request_id[:NAME_CHARS_MAX]
        self._wanted = wanted
        self._aimed = [each.place for each in wanted if each.place is not None]
        self._asked = asked
        self._texts = tuple(i for i, claim in enumerate(claims) if claim.datatype == "BYTES")
        hint = model.spec.size_hint
        self._as_text = hint is not None and hint.unit == "text"
        names = [claim.name for claim in claims]
        self._hinted = names.index(hint.input) if hint is not None else -1
        fixed = hint is not None and self._hinted not in self._texts
        self._size = _fixed_size(claims[self._hinted], hint) if hint is not None and fixed else 0

    def complete(self, tensors: Sequence[Tensor], memory: Memory | None) -> Decoded:
        """Return the request with its data (in the order of the spec). `memory`: of its caller, None where
        none is served. RequestError for malformed BYTES, and for outputs that have no place there."""
        call = Call(self._model, tensors, self._rows)
        asked = self._asked
        call.timeout_us, call.variant, call.parameters = asked.timeout_us, asked.variant, asked.parameters
        call.sequence, call.priority = asked.step, asked.priority
        call.name = self._name
        call.size = self._size
        for index in self._texts:  # their bytes differ from request to request under one heading
            hinted = index == self._hinted
            longest = longest_element(tensors[index], hinted and self._as_text)
            if hinted:
                call.size = longest
        decoded = Decoded(call, self._id, self._wanted, asked.stated)
        decoded.empty_final = asked.empty_final
        if self._aimed:
            decoded.targets = aim(self._aimed, memory)
        return decoded


def _fixed_size(claim: ClaimedInput, hint: SizeHint) -> int:
    """Return the size of a row that is no BYTES. Raises RequestError for more values than a row may have."""
    values = prod(claim.shape[1:])
    most = hint.buckets[-1]
    if hint.unit == "values" and not 0 < values <= most:
        raise bad_input(
            f"input '{claim.name}': shape {written(claim.told[:16])} has {values} values a row; "
            f"1 to {most} are accepted (size_hint of the model)"
        )
    return values if hint.unit == "values" else claim.data_bytes // claim.shape[0]
