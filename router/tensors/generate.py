"""Triton's generate extension: a flat JSON object as a request, and answers as flat JSON objects.

docs/protocol/extension_generate.md of triton-inference-server/server: what names an input is its data, all
else are parameters, and an answer has each output under its name.
"""

from collections.abc import Sequence
from typing import Final

import orjson

from router.tensors.answer.answered import parameters_of
from router.tensors.fields import parse_object
from router.tensors.parts.elements import list_elements
from router.tensors.parts.errors import bad_input, too_large
from router.tensors.parts.wording import quoted, written
from router.tensors.request.decoded import Decoded
from serving.values.specs import Limits, ServedModel, TensorSpec
from serving.values.tensor import ANY, Tensor

BODY_BYTES_MAX: Final = 1 << 16
"""Of a request, which the event loop parses; an answer has at most as many bytes of tensors."""

_ID, _PARAMETERS = "id", "parameters"
_KINDS: Final = ((bool, "BOOL"), (int, "INT64"), (float, "FP64"), (str, "BYTES"))
_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY


def protocol_request(body: bytes, model: ServedModel, limits: Limits) -> bytes:
    """Return the same request as the protocol's JSON. RequestError for what is no flat object; what its
    values have to be is checked with the result."""
    if len(body) > BODY_BYTES_MAX:
        raise too_large(
            f"the request has {len(body)} bytes; generate takes at most {BODY_BYTES_MAX}: send it to infer"
        )
    document = parse_object(body, limits)
    specs = {spec.name: spec for spec in model.spec.inputs}
    nested = document.get(_PARAMETERS)
    if nested is not None and (_PARAMETERS not in specs) and not isinstance(nested, dict):
        raise bad_input(f"'{_PARAMETERS}' must be an object, got {quoted(nested)}")
    inputs: list[dict[str, object]] = []
    parameters: dict[str, object] = {}
    found: dict[str, object] = {"inputs": inputs, _PARAMETERS: parameters}
    entries = list(document.items())
    if isinstance(nested, dict):
        entries += list(nested.items())
    for name, value in entries:
        spec = specs.get(name)
        if spec is not None:
            inputs.append(_input(spec, value))
        elif name == _ID and value is not None:
            found[_ID] = value
        elif name != _PARAMETERS and value is not None:
            parameters[name] = value
    return orjson.dumps(found)


def _input(spec: TensorSpec, value: object) -> dict[str, object]:
    """Return a tensor of one row; dimensions that the value lacks are 1."""
    dims: list[int] = []
    first = value
    while isinstance(first, list):
        dims.append(len(first))
        first = first[0] if first else None
    wanted = len(spec.shape)
    if len(dims) > wanted:
        raise bad_input(
            f"input '{spec.name}' has {len(dims)} dimensions; its shape {written(spec.shape)} has {wanted}"
        )
    dims[:0] = [1] * (wanted - len(dims))
    datatype = spec.datatype
    if datatype == ANY:
        datatype = next((name for kind, name in _KINDS if isinstance(first, kind)), "FP32")
    data = value if isinstance(value, list) else [value]
    return {"name": spec.name, "datatype": datatype, "shape": dims, "data": data}


def flat_answer(decoded: Decoded, outputs: Sequence[Tensor], version: int = 0) -> bytes:
    """Return an answer as a flat JSON object: a single element by itself, several as a list. RequestError
    (BAD_INPUT) if it is too large for that, or no text. `version`: see `Reply.version`."""
    spec = decoded.call.model.spec
    stated = str(version) if version else spec.model_version
    found: dict[str, object] = {"model_name": spec.model_name, "model_version": stated}
    if decoded.id:
        found[_ID] = decoded.id
    size = sum(len(outputs[wanted.index].data) for wanted in decoded.wanted)
    if size > BODY_BYTES_MAX:
        raise bad_input(
            f"the answer has {size} bytes; generate gives at most {BODY_BYTES_MAX}: ask for it by infer"
        )
    for wanted in decoded.wanted:
        elements = list_elements(outputs[wanted.index])
        found[outputs[wanted.index].name] = elements[0] if len(elements) == 1 else elements
    found |= parameters_of(decoded, outputs)
    return orjson.dumps(found, option=_OPTIONS)
