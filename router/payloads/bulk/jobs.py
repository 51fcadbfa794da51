"""What a bulk process does: pure functions of bytes, each with its name on the wire."""

import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final  # Any: arguments and results are of any kind that travels

from router.protocol.dialects.catalogue import ENDPOINTS
from router.protocol.dialects.preparing import prepare
from router.protocol.dialects.question import Prepared, Question, Row, Stamp
from router.tensors import proto, rest
from router.tensors.parts.errors import RequestError
from router.tensors.parts.places import Place
from router.tensors.request.decoded import Decoded, RequestedOutput
from serving.ports import Call, Reply
from serving.values.specs import Limits, ServedModel
from serving.values.tensor import Buffer, Tensor
from serving.values.vocabulary import ALL_OUTCOMES, COMPLETED

Output = tuple[str, str, tuple[int, ...], bytes]
"""Name, datatype, shape, raw data."""

LENGTH: Final = struct.Struct("<Q")
"""Of an order or an answer, before it."""

DONE, REFUSED = "done", "refused"


def unfold_rest(
    body: Buffer, json_length: int | None, model: ServedModel, limits: Limits
) -> tuple[bytes, int]:
    """See `router.tensors.rest.unfold`."""
    return rest.unfold(body, json_length, model, limits)


def unfold_rpc(message: bytes, model: ServedModel, limits: Limits) -> bytes:
    """See `router.tensors.proto.unfold`."""
    return proto.unfold(message, model, limits)


def fold_rest(
    model: ServedModel,
    request_id: str,
    wanted: Sequence[tuple[int, bool, int, Place | None]],
    outputs: Sequence[Output],
) -> tuple[bytes, int | None]:
    """See `router.tensors.rest.encode`."""
    decoded = Decoded(Call(model, (), 1), request_id, tuple(RequestedOutput(*each) for each in wanted))
    reply = Reply(COMPLETED)
    reply.outputs = [Tensor(*each) for each in outputs]
    return rest.encode(decoded, reply)


def read_question(endpoint: str, body: bytes, content_type: str, limits: Limits) -> Question:
    """See `router.protocol.dialects.catalogue.Endpoint.read`."""
    return ENDPOINTS[endpoint].read(body, content_type, limits)


def prepare_question(question: Question, model: ServedModel, limits: Limits) -> Prepared:
    """See `router.protocol.dialects.preparing.prepare`."""
    return prepare(question, model, limits)


def write_answer(
    endpoint: str,
    question: Question,
    model: ServedModel,
    outputs: Sequence[Row],
    tokens: int,
    stamp: Stamp,
) -> bytes:
    """See `router.protocol.dialects.catalogue.Endpoint.write`."""
    tensors = [Tensor(*each) for each in outputs]
    return ENDPOINTS[endpoint].write(question, model.spec, tensors, tokens, stamp)


JOBS: Final[Mapping[str, Callable[..., object]]] = {
    each.__name__: each
    for each in (unfold_rest, unfold_rpc, fold_rest, read_question, prepare_question, write_answer)
}


def perform(order: bytes) -> bytes:
    """Return the result of a pickled `(name, arguments)`, pickled; `result_of` reads it."""
    name, arguments = pickle.loads(order)  # noqa: S301  # of the gateway that started this process
    try:
        return pickle.dumps((DONE, JOBS[name](*arguments)), pickle.HIGHEST_PROTOCOL)
    except RequestError as error:
        return pickle.dumps((REFUSED, str(error.outcome.reason), error.message))


def result_of(answer: bytes) -> Any:
    """Return what the job returned; raises the RequestError that it raised."""
    kind, *found = pickle.loads(answer)  # noqa: S301  # of a process that this one started
    if kind == REFUSED:
        reason, message = found
        raise RequestError(next(each for each in ALL_OUTCOMES if str(each.reason) == reason), message)
    return found[0]
