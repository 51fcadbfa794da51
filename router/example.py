"""One request to try, printed when the gateway starts: made from the specs, so it always fits."""

import json
from collections.abc import Iterable
from math import prod

from serving.specs import ModelSpec, TensorSpec

EXAMPLE_TEXT = "a request to try"


def example_curl(url: str, specs: Iterable[ModelSpec]) -> str:
    """A curl line for the model with the least to type and to read, of those with fixed shapes if any."""
    spec = min(specs, key=_effort)
    body = json.dumps({"inputs": [_example(tensor) for tensor in spec.inputs]}, separators=(",", ":"))
    return f"curl -s {url}/v2/models/{spec.name}/infer -d '{body}'"


def _effort(spec: ModelSpec) -> tuple[int, int]:
    tensors = (*spec.inputs, *spec.outputs)
    free = sum(dimension == -1 for tensor in tensors for dimension in tensor.shape[1:])
    return free, sum(_elements(tensor) for tensor in tensors)


def _example(tensor: TensorSpec) -> dict[str, object]:
    count = _elements(tensor)
    datatype = "FP32" if tensor.datatype == "ANY" else tensor.datatype
    data: list[object]
    if datatype == "BYTES":
        data = [EXAMPLE_TEXT] * count
    elif datatype == "BOOL":
        data = [True] * count
    else:
        data = [number % 10 for number in range(count)]
    shape = [max(dimension, 1) for dimension in tensor.shape]
    return {"name": tensor.name, "shape": shape, "datatype": datatype, "data": data}


def _elements(tensor: TensorSpec) -> int:
    return prod(max(dimension, 1) for dimension in tensor.shape)
