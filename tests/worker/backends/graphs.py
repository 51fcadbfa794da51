"""Small ONNX graphs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3)
Shape = Sequence[int | str | None]


def write_graph(
    file: Path,
    node: onnx.NodeProto,
    given: tuple[Shape, int],
    answered: tuple[Shape, int],
    weights: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = (),
) -> Path:
    """Write one node from input `x` to output `y`; weights are `w0` and so on."""
    kept = [numpy_helper.from_array(each, f"w{number}") for number, each in enumerate(weights)]
    tensors = [
        helper.make_tensor_value_info(name, kind, list(shape))
        for name, (shape, kind) in (("x", given), ("y", answered))
    ]
    graph = helper.make_graph([node], "g", tensors[:1], tensors[1:], kept)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file)
    return file


def linear(file: Path, rows: int | str = "batch") -> Path:
    """Write y = x @ WEIGHTS."""
    node = helper.make_node("MatMul", ["x", "w0"], ["y"])
    kind = TensorProto.FLOAT
    return write_graph(file, node, ((rows, 4), kind), ((rows, 3), kind), [WEIGHTS])


def mean(file: Path) -> Path:
    """Write the mean over a free dimension named `seq`."""
    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0)
    kind = TensorProto.FLOAT
    return write_graph(file, node, (("batch", "seq", 8), kind), (("batch", 8), kind))


def echo(file: Path) -> Path:
    """Write y = x, of texts."""
    node = helper.make_node("Identity", ["x"], ["y"])
    kind = TensorProto.STRING
    return write_graph(file, node, (("batch", 1), kind), (("batch", 1), kind))
