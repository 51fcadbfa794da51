"""A batch that a worker has, and what its answer must look like."""

from serving.values.specs import TensorSpec
from serving.values.tensor import ANY
from serving.worker.frames.batches import BatchResult
from serving.worker.frames.wire import ProtocolError


class Flight:
    """What the answer to a batch must look like. `decoupled`: its rows' answers come in
    frames of their own, and its end may have none."""

    __slots__ = ("any_datatype", "decoupled", "outputs", "rows")

    def __init__(
        self, rows: int, outputs: tuple[TensorSpec, ...], any_datatype: str, decoupled: bool
    ) -> None:
        self.rows = rows
        self.outputs = outputs
        self.any_datatype = any_datatype
        self.decoupled = decoupled


def check(result: BatchResult, flight: Flight, rows: int) -> None:
    specs = flight.outputs if result.outputs or not flight.decoupled else ()
    if result.rows != rows or len(result.outputs) != len(specs):
        raise ProtocolError(
            f"batch {result.batch_id} has {result.rows} rows of {len(result.outputs)} outputs,"
            f" expected {rows} of {len(specs)}"
        )
    for spec, output in zip(specs, result.outputs, strict=True):
        datatype = flight.any_datatype if spec.datatype == ANY else spec.datatype
        dims = spec.shape[1:]
        if output.datatype != datatype or not _fits(output.dims, dims):
            raise ProtocolError(
                f"output {spec.name!r} is {output.datatype} {list(output.dims)} a row,"
                f" expected {datatype} {list(dims)}"
            )


def _fits(dims: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return dims == wanted or (
        len(dims) == len(wanted) and all(want in (-1, dim) for want, dim in zip(wanted, dims, strict=True))
    )
