"""A decoupled model for the edges, and a core that answers it as a test says."""

from collections.abc import Sequence
from typing import Any

from tritonclient.grpc import service_pb2

from serving.ports import Reply
from serving.values.specs import TensorSpec
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED
from tests.router.fakes import served
from tests.router.rpc_edge import Core

REPEAT = served(
    "repeat",
    (TensorSpec("IN", "INT32", (-1, -1)),),
    (TensorSpec("OUT", "INT32", (-1, 1)),),
    decoupled=True,
)


class StreamingCore(Core):
    """Keeps every call open, until the test answers it; calls count from 1."""

    def __init__(self) -> None:
        super().__init__(lambda call: None)
        self.models = {**self.models, "repeat": REPEAT}
        self.closed: list[int] = []

    def say(self, number: int, *values: int) -> None:
        """Give a call of `repeat` these answers."""
        take = self.calls[number - 1].on_answer
        assert take is not None
        for value in values:
            take([Tensor("OUT", "INT32", (1, 1), value.to_bytes(4, "little", signed=True))], 0)

    def end(self, number: int, reply: Reply | None = None) -> None:
        """End a call."""
        self.closed.append(number)
        self.open.pop(number)(reply or Reply(COMPLETED))


def repeat_request(values: Sequence[int] = (1, 2), *, final: bool = False, **fields: Any) -> bytes:
    """A request of one row."""
    request = service_pb2.ModelInferRequest(model_name="repeat", **fields)
    tensor = request.inputs.add(name="IN", datatype="INT32", shape=[1, len(values)])
    tensor.contents.int_contents.extend(values)
    if final:
        request.parameters["triton_enable_empty_final_response"].bool_param = True
    return bytes(request.SerializeToString())


def value_of(answer: Any) -> int:
    """The number that a streamed answer holds."""
    (raw,) = answer.infer_response.raw_output_contents
    return int.from_bytes(raw, "little", signed=True)


def is_final(answer: Any) -> bool:
    return bool(answer.infer_response.parameters["triton_final_response"].bool_param)
