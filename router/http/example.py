"""One request to try, printed when the gateway starts: made from the specs, so it always fits."""

from collections.abc import Iterable
from math import prod
from typing import Final

import numpy as np
import orjson

from serving.values.specs import ModelSpec, TensorSpec

EXAMPLE_TEXT = "a request to try"

LINE_CHARS: Final = 200
"""Of the printed line: people read it, and paste it into a terminal. Linux takes 131,072 for one argument."""


def example_curl(url: str, specs: Iterable[ModelSpec], options: str = "") -> str:
    """Return a line for a shell, for the model with the least to read, of those with fixed shapes if any;
    `options`: more of curl's.

    Its request is written out where the line has at most LINE_CHARS, else asked of the gateway itself.
    """
    spec = min(specs, key=_effort)
    model = f"{url}/v2/models/{spec.model_name}"
    if _effort(spec)[1] <= LINE_CHARS:
        line = f"curl -s{options} {model}/infer -d '{example_body(spec).decode()}'"
        if len(line) <= LINE_CHARS:
            return line
    return f"m={model}; curl -s{options} $m/example | curl -s{options} $m/infer -d @-"


def example_body(spec: ModelSpec) -> bytes:
    """Return the JSON of a request of one row; with sequences, of a whole sequence of one request."""
    document: dict[str, object] = {"inputs": [_example(tensor, spec) for tensor in spec.inputs]}
    if spec.sequence is not None:
        name: int | str = "a" if spec.sequence.id_datatype == "BYTES" else 1
        document["parameters"] = {"sequence_id": name, "sequence_start": True, "sequence_end": True}
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def _effort(spec: ModelSpec) -> tuple[int, int]:
    tensors = (*spec.inputs, *spec.outputs)
    free = sum(dimension == -1 for tensor in tensors for dimension in tensor.shape[1:])
    return free, sum(_elements(tensor) for tensor in tensors)


def _example(tensor: TensorSpec, spec: ModelSpec) -> dict[str, object]:
    count = _elements(tensor)
    datatype = "FP32" if tensor.datatype == "ANY" else tensor.datatype
    data: object
    if datatype == "BYTES":
        data = [EXAMPLE_TEXT] * count
    elif datatype == "BOOL":
        data = [True] * count
    else:
        data = np.resize(np.arange(10), count)
    shape = [max(dimension, 1) for dimension in spec.told(tensor)]
    return {"name": tensor.name, "shape": shape, "datatype": datatype, "data": data}


def _elements(tensor: TensorSpec) -> int:
    return prod(max(dimension, 1) for dimension in tensor.shape)
