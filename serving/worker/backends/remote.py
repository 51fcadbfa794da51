"""Models of another server: any that speaks the Open Inference Protocol over gRPC, such as Triton, MLServer,
OpenVINO Model Server, KServe or another Penstock.

The variant's options name it: `url: HOST:PORT`, `model: NAME` and, if one is wanted, `version: "2"`. Penstock
batches and schedules; the other server computes. Turn its own batching off: two queues keep no deadline.

A batch of traced requests takes a trace along (`traceparent`, `tracestate`): the one that the gateway chose.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from serving.values.specs import ParameterValue
from serving.values.traces import TraceContext
from serving.worker.backends.contract import BadInputError, LoadedModel
from serving.worker.backends.signature import Signature, SignatureError, Tensor, sample_of, sizes_of, unstated
from serving.worker.backends.unbatched import as_ordered
from serving.worker.frames.arrays import Arrays
from serving.worker.frames.orders import LoadOrder
from serving.worker.process.batch_trace import BATCH_TRACE

URL, MODEL, VERSION = "url", "model", "version"
ANSWER_S: Final = 30.0
"""The longest wait for an answer. The gateway gives a late batch up by itself; this ends the call."""
CONNECT_S: Final = 5.0
"""The longest wait for a server that is asked what it serves."""
MISSING: Final = "tritonclient is not installed here; try `pip install 'penstock[remote]'`"
AWAY: Final = "StatusCode.UNAVAILABLE"
INVALID: Final = "StatusCode.INVALID_ARGUMENT"


class RemoteModel:
    """A model of another server, asked over one connection. gRPC connects again by itself."""

    def __init__(self, grpc: Any, order: LoadOrder) -> None:
        options = dict(order.options)
        self._grpc = grpc
        self._model, self._version = str(options[MODEL]), str(options.get(VERSION, ""))
        self._client = grpc.InferenceServerClient(str(options[URL]))
        self._inputs = {each.name: each for each in order.inputs}
        self._outputs = [grpc.InferRequestedOutput(each.name) for each in order.outputs]
        self._order = order
        self._tensors = described(self._client, self._model, self._version).inputs

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:
        """Return the outputs by name. A call that did not reach the server is made once more.

        Raises BadInputError if the other server says so, else what tritonclient raises, with that server's
        own sentence.
        """
        given = [self._input(name, array) for name, array in inputs.items()]
        try:
            answer = self._infer(given, parameters)
        except self._grpc.InferenceServerException as error:
            if error.status() == INVALID:
                raise BadInputError(error.message()) from error
            if error.status() != AWAY:
                raise
            answer = self._infer(given, parameters)
        return {each.name(): answer.as_numpy(each.name()) for each in self._outputs}

    def _infer(self, given: list[Any], parameters: dict[str, ParameterValue]) -> Any:
        return self._client.infer(
            self._model, given, self._version, outputs=self._outputs,
            parameters=parameters or None, client_timeout=ANSWER_S, headers=_headers(BATCH_TRACE.context),
        )  # fmt: skip

    def _input(self, name: str, array: Any) -> Any:
        given = self._grpc.InferInput(name, array.shape, self._inputs[name].datatype)
        given.set_data_from_numpy(array)
        return given

    def sample(self, rows: int, size: int) -> Arrays:
        """See `sample_of`."""
        return sample_of(self._order, self._tensors, rows, size)


class RemoteBackend:
    """It executes no code, so there is nothing to prepare, to set up or to forget."""

    def prepare(self, order: LoadOrder) -> None: ...
    def settle(self) -> None: ...
    def keep(self, orders: Collection[LoadOrder]) -> None: ...

    def load(self, order: LoadOrder) -> LoadedModel:
        """Connect. Raises ValueError if the options name no server, and what tritonclient raises if it does
        not answer, or does not serve the model."""
        for name in (URL, MODEL):
            if name not in dict(order.options):
                message = f"variant {order.variant} has no option {name!r}; expected {URL} and {MODEL}"
                raise ValueError(message)
        model = RemoteModel(_client(), order)
        return as_ordered(model, order)


def parts_of(artifact: str) -> tuple[str, str]:
    """Return HOST:PORT and the model of HOST:PORT/MODEL."""
    url, _, model = artifact.partition("/")
    return url, model


def signature_of(artifact: str, options: Mapping[str, ParameterValue]) -> Signature:
    """Return what HOST:PORT/MODEL takes and answers. Raises SignatureError if no server answers there."""
    url, model = parts_of(artifact)
    grpc = _client()
    try:
        found = described(grpc.InferenceServerClient(url), model, "")
    except grpc.InferenceServerException as error:
        raise SignatureError(f"{url} does not say what {model!r} is: {error.message()}") from None
    unstated(found, sizes_of(tuple(options.items())))
    return found


def described(client: Any, model: str, version: str) -> Signature:
    """Return what another server says of a model. Free dimensions are named by their place: `X.1`."""
    told = client.get_model_metadata(model, version, client_timeout=CONNECT_S)
    return Signature(tuple(map(_tensor, told.inputs)), tuple(map(_tensor, told.outputs)))


def _headers(trace: TraceContext) -> dict[str, str] | None:
    """Return the metadata of a call that belongs to a trace; None for one that belongs to none."""
    if not trace.parent:
        return None
    return {"traceparent": trace.parent, **({"tracestate": trace.state} if trace.state else {})}


def _tensor(told: Any) -> Tensor:
    sides = [int(side) if side >= 0 else f"{told.name}.{at}" for at, side in enumerate(told.shape)]
    return Tensor(told.name, told.datatype, tuple(sides))


def _client() -> Any:
    try:
        from tritonclient import grpc
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING) from error
    return grpc
