"""What a stream's answers add to ModelInferResponse: ModelStreamInferResponse, as it is sent.

An answer says whether it is its request's last by the parameter `triton_final_response`, as Triton's do
(triton-inference-server/server, src/grpc/stream_infer_handler.cc, `StreamInferResponseComplete`).
"""

from typing import Final

from router.tensors.protos.files import oip
from serving.values.specs import ModelSpec
from serving.values.versions import ONLY

FINAL: Final = "triton_final_response"

_ANSWER: Final = oip.ModelStreamInferResponse.DESCRIPTOR.fields_by_name["infer_response"].number << 3 | 2


def _parameter(final: bool) -> bytes:
    response = oip.ModelInferResponse()
    response.parameters[FINAL].bool_param = final
    return bytes(response.SerializeToString())


_LAST: Final = _parameter(True)
_MORE: Final = _parameter(False)


def stream_answer(answer: bytes, final: bool) -> bytes:
    """Return a stream's answer that is this ModelInferResponse; the order of fields does not matter."""
    parameter = _LAST if final else _MORE
    head = [_ANSWER]
    size = len(parameter) + len(answer)
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return b"".join((bytes(head), parameter, answer))


def stream_end(request_id: str, spec: ModelSpec, version: int = 0) -> bytes:
    """Return the answer without outputs that ends a request of a model with any number of answers."""
    answer = oip.ModelInferResponse(
        id=request_id, model_name=spec.model_name, model_version=str(version or spec.model_version)
    )
    return stream_answer(bytes(answer.SerializeToString()), True)


def stream_error(sentence: str, request_id: str, model: str, version: str = ONLY) -> bytes:
    """Return the answer to a request that failed; the stream goes on. `model`: "" where it is unknown."""
    response = oip.ModelStreamInferResponse(error_message=sentence)
    answer = response.infer_response
    answer.id = request_id
    if model:
        answer.model_name, answer.model_version = model, version
    answer.parameters[FINAL].bool_param = True
    return bytes(response.SerializeToString())
