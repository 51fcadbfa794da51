"""Open Inference Protocol over REST: JSON and the binary tensor extension, both directions.

A binary request repeats its JSON header from call to call and changes only the data. So a header
whose inputs are all binary is parsed and checked once, and kept with its plan: which bytes of the
body are which tensor. Tensors are slices of the body, which must not change after `decode`.
"""

import orjson

from router.tensors import fields
from router.tensors.answer.answered import parameters_of, plain_outputs
from router.tensors.answer.classes import classify
from router.tensors.heading import Heading
from router.tensors.parts.elements import list_elements, one_element, pack_elements
from router.tensors.parts.errors import bad_input, too_large
from router.tensors.parts.nesting import booleans_possible, flatten
from router.tensors.parts.places import Memory, Place, fill, place_parameters, placed_inputs
from router.tensors.parts.recent import Recent
from router.tensors.parts.wording import written
from router.tensors.request.check import ClaimedInput, arrange, check_size, in_one_row, left_out
from router.tensors.request.decoded import Decoded, RequestedOutput
from router.tensors.request.parameters import read
from serving.ports import Reply
from serving.values.specs import Limits, ServedModel
from serving.values.tensor import ANY, ITEM_BYTES, Buffer, Tensor
from serving.values.versions import ONLY, model_of

PLANNED_HEADER_BYTES = 2048
"""Longer JSON headers are parsed each time; with the 1024 of _PLANS they bound its memory (about 10 MiB)."""

SHARED_BODY_BYTES = 8192
"""Bodies above this are sliced as memoryviews: a view costs 0.17 us, a copy 0.08 us for 256 bytes,
0.13 us for 3 KiB and 0.42 us for 16 KiB (joining either for the worker costs the same)."""

BESIDES_BYTES = 1 << 16
"""Of what a request says besides its tensors, once they are unfolded: the event loop parses it."""

JOIN_MAX_BYTES = 1 << 16
"""Up to here one copy is cheaper than a second buffer on its way to the socket."""

Body = bytes | tuple[Buffer, ...]
"""An answer's body; of a large one its parts, which nobody copies."""

_JSON = orjson.OPT_SERIALIZE_NUMPY


class _Plan:
    """A checked JSON header, and where the tensors (in the order of the spec) lie after it."""

    __slots__ = ("_heading", "_pieces", "_placed", "body_bytes", "json_length", "limits")

    def __init__(
        self,
        heading: Heading,
        pieces: list[tuple[ClaimedInput, int, int]],
        placed: list[tuple[int, Place]],
        extent: tuple[int, int],
        limits: Limits,
    ) -> None:
        """Build the plan. `placed`: which of the `pieces` lie in the client's memory. `extent`: the bytes of
        the body, and of its JSON."""
        self._heading = heading
        self._pieces = [(claim.name, claim.datatype, claim.shape, start, end) for claim, start, end in pieces]
        self._placed = placed
        self.body_bytes, self.json_length = extent
        self.limits = limits

    def take(self, body: Buffer, memory: Memory | None) -> Decoded:
        if self.body_bytes > SHARED_BODY_BYTES:
            body = memoryview(body)
        tensors = [
            Tensor(name, datatype, shape, body[start:end])
            for name, datatype, shape, start, end in self._pieces
        ]
        if self._placed:
            fill(tensors, self._placed, memory)
        return self._heading.complete(tensors, memory)


_PLANS: Recent[tuple[int, bytes], _Plan] = Recent(512)
"""By model and header. A plan holds its model (in its heading), so no other can come to have its id."""

_OPENINGS: Recent[tuple[str, int], bytes] = Recent(256)
_BINARY_OUTPUTS: Recent[tuple[str, str, tuple[int, ...], int], bytes] = Recent(512)
_PLACED_OUTPUTS: Recent[tuple[str, str, tuple[int, ...], int, Place], bytes] = Recent(512)


def decode(
    body: Buffer, json_length: int | None, model: ServedModel, limits: Limits, memory: Memory | None = None
) -> Decoded:
    """Return the request in `body`; `json_length` is its Inference-Header-Content-Length, None without one.

    0 says that the whole body is the data of the model's one input, for one row. `memory`: what its caller
    has registered, None where no shared memory is served. RequestError for everything that cannot be served
    as it stands; CopyFirst.
    """
    length = len(body) if json_length is None and memory is not None else json_length
    if length and length <= PLANNED_HEADER_BYTES:
        plan = _PLANS.get((id(model), bytes(body[:length])))
        if (
            plan is not None
            and plan.body_bytes == len(body)
            and plan.json_length == length
            and plan.limits is limits
        ):
            return plan.take(body, memory)
    if json_length == 0:
        return _decode_raw(body, model, limits)
    return _decode_parsed(body, _json_length(body, json_length), model, limits, memory)


def unfold(body: Buffer, json_length: int | None, model: ServedModel, limits: Limits) -> tuple[bytes, int]:
    """Return the same request with all its tensors binary: its body, and the bytes of its JSON. RequestError
    for what `decode` refuses of its inputs, and for JSON that stays large without them."""
    json_length = _json_length(body, json_length)
    text = bytes(body[:json_length])
    document = fields.parse(text, limits)
    fields.check_model(document, model)
    inputs = fields.inputs(document, limits)
    claims = [entry.claim for entry in inputs]
    in_one_row(model, claims)
    arrange(model, [*claims, *left_out(model, claims)], limits)
    ends = _ends(inputs, json_length, len(body), limits)
    booleans = booleans_possible(text)
    entries: list[dict[str, object]] = []
    parts: list[Buffer] = []
    for place, (claim, entry) in enumerate(zip(claims, inputs, strict=True)):
        if entry.place is not None:
            entries.append(_placed_entry(claim, entry.place))
            continue
        data = _data(claim, entry, body, ends[place], limits, booleans)
        size = {"binary_data_size": len(data)}
        entries.append(
            {"name": claim.name, "datatype": claim.datatype, "shape": claim.told, "parameters": size}
        )
        parts.append(data)
    kept: dict[str, object] = {name: document[name] for name in fields.REQUEST if name in document}
    kept["inputs"] = entries
    header = orjson.dumps(kept)
    if len(header) > BESIDES_BYTES:
        raise too_large(
            f"the request has {len(header)} bytes of JSON besides its tensors; "
            f"at most {BESIDES_BYTES} are accepted"
        )
    return b"".join((header, *parts)), len(header)


def encode(decoded: Decoded, reply: Reply) -> tuple[bytes, int | None]:
    """Return the answer as `encode_parts` does, with the body in one piece."""
    body, json_length = encode_parts(decoded, reply)
    return joined(body), json_length


def encode_parts(decoded: Decoded, reply: Reply) -> tuple[Body, int | None]:
    """Return the body of the answer to a COMPLETED request, and the bytes of its JSON if data follows it.

    The bytes of its JSON go into the response's Inference-Header-Content-Length; they are None (no such
    header) if all outputs are in the JSON. There, NaN and infinities read null. Raises RequestError
    (BAD_INPUT) if a BYTES output that was asked for as JSON is no UTF-8 text.
    """
    spec = decoded.call.model.spec
    told = spec.name, reply.version or spec.version
    parts = [_OPENINGS.get(told) or _opening(told)]
    if decoded.id:
        parts += (b'"id":', orjson.dumps(decoded.id), b",")
    if parameters := parameters_of(decoded, reply.outputs):
        parts += (b'"parameters":', orjson.dumps(parameters), b",")
    separator = b'"outputs":['
    data: list[Buffer] = []
    for wanted in decoded.wanted:
        tensor = reply.outputs[wanted.index]
        if wanted.classes:
            tensor = classify(tensor, spec.outputs[wanted.index], wanted.classes)
        if spec.unbatched:
            tensor = tensor.without_batch()
        parts.append(separator)
        separator = b","
        if wanted.place is not None:
            parts.append(_placed_output(tensor, wanted.place))
        elif wanted.binary:
            key = (tensor.name, tensor.datatype, tensor.shape, len(tensor.data))
            parts.append(_BINARY_OUTPUTS.get(key) or _binary_output(key))
            data.append(tensor.data)
        else:
            parts.append(_json_output(tensor))
    parts.append(b"]}")
    if not data:
        return b"".join(parts), None
    json_length = sum(map(len, parts))
    if sum(map(len, data)) > JOIN_MAX_BYTES and all(map(_is_most, data)):
        return (b"".join(parts), *data), json_length
    parts += data  # type: ignore[arg-type]  # bytes.join takes any buffer
    return b"".join(parts), json_length


def _is_most(data: Buffer) -> bool:
    """Return whether it is at least half of the memory that it keeps: a slow reader of one row is not to keep
    the rows of a whole batch."""
    return not isinstance(data, memoryview) or 2 * data.nbytes >= memoryview(data.obj).nbytes


def size_of(body: Body) -> int:
    """Return its bytes."""
    return len(body) if isinstance(body, bytes) else sum([len(part) for part in body])


def joined(body: Body) -> bytes:
    """Return the body in one piece: a copy of a large body."""
    return body if isinstance(body, bytes) else b"".join(body)


def _placed_entry(claim: ClaimedInput, place: Place) -> dict[str, object]:
    """Return the JSON of an input that lies in the client's memory."""
    said = place_parameters(place, place.size)
    return {"name": claim.name, "datatype": claim.datatype, "shape": claim.told, "parameters": said}


def _decode_parsed(
    body: Buffer, json_length: int, model: ServedModel, limits: Limits, memory: Memory | None
) -> Decoded:
    text = bytes(body[:json_length])
    document = fields.parse(text, limits)
    fields.check_model(document, model)
    inputs = fields.inputs(document, limits)
    in_one_row(model, [each.claim for each in inputs])
    inputs += [fields.Input(claim, None, 0) for claim in left_out(model, [each.claim for each in inputs])]
    claims = [entry.claim for entry in inputs]
    order = arrange(model, claims, limits)
    ends = _ends(inputs, json_length, len(body), limits)
    parameters = fields.parameters(document, "the request")
    heading = Heading(
        model,
        [claims[place] for place in order],
        fields.request_id(document),
        fields.wanted(document, model, limits),
        read(parameters, model),
    )
    placed = placed_inputs([inputs[at].place for at in order])
    if all(entry.binary_bytes is not None or entry.place is not None for entry in inputs):
        pieces = [
            (claims[place], ends[place] - (inputs[place].binary_bytes or 0), ends[place]) for place in order
        ]
        plan = _Plan(heading, pieces, placed, (len(body), json_length), limits)
        decoded = plan.take(body, memory)
        if json_length <= PLANNED_HEADER_BYTES:
            _PLANS.put((id(model), text), plan)
        return decoded
    booleans = booleans_possible(text)
    tensors: list[Tensor] = []
    for place in order:
        claim, entry = claims[place], inputs[place]
        data = b"" if entry.place else _data(claim, entry, body, ends[place], limits, booleans)
        tensors.append(Tensor(claim.name, claim.datatype, claim.shape, data))
    if placed:
        fill(tensors, placed, memory)
    return heading.complete(tensors, memory)


def _json_length(body: Buffer, stated: int | None) -> int:
    if stated is None:
        return len(body)
    if not 0 < stated <= len(body):
        raise bad_input(
            f"Inference-Header-Content-Length says {stated} bytes of JSON, but the body has {len(body)} bytes"
        )
    return stated


def _data(
    claim: ClaimedInput, entry: fields.Input, body: Buffer, end: int, limits: Limits, booleans: bool
) -> Buffer:
    """Return the raw data of an input, from its JSON or from the body, where it ends at `end`."""
    if entry.binary_bytes is not None:
        return memoryview(body)[end - entry.binary_bytes : end]
    elements = flatten(claim.name, claim.told, entry.data)
    data = pack_elements(claim.name, claim.datatype, claim.told, elements, booleans=booleans)
    check_size(claim, len(data), limits)
    return data


def _ends(inputs: list[fields.Input], json_length: int, body_bytes: int, limits: Limits) -> list[int]:
    """Return where in the body the data of each input ends; it follows the JSON in the order of the
    inputs."""
    ends: list[int] = []
    end = json_length
    for entry in inputs:
        if entry.place is not None:
            check_size(entry.claim, entry.place.size, limits)
        elif entry.binary_bytes is not None:
            check_size(entry.claim, entry.binary_bytes, limits)
            end += entry.binary_bytes
        ends.append(end)
    if end != body_bytes:
        raise bad_input(
            f"the inputs' binary_data_size add up to {end - json_length} bytes, "
            f"but {body_bytes - json_length} bytes follow the JSON of {json_length}"
        )
    return ends


def _decode_raw(body: Buffer, model: ServedModel, limits: Limits) -> Decoded:
    """Decode a body without JSON: one row of the model's only input, with a shape that follows from its size.

    For BYTES the body is the content of one element, without a length before it, as in Triton.
    """
    spec = model.spec
    tensor = spec.inputs[0]
    why = "Inference-Header-Content-Length 0 makes the whole body one input"
    if len(spec.inputs) > 1:
        raise bad_input(f"{why}, but model '{spec.name}' has {len(spec.inputs)} inputs")
    if tensor.datatype == ANY:
        raise bad_input(f"{why}, but input '{tensor.name}' takes any datatype: say in JSON which it is")
    free = tensor.shape[1:].count(-1)
    if free > 1:
        raise bad_input(
            f"{why}, but the shape {written(tensor.shape)} of input '{tensor.name}' "
            "has several free dimensions: say in JSON what they are"
        )
    data = body
    fixed = ITEM_BYTES[tensor.datatype]
    for dim in tensor.shape[1:]:
        fixed *= 1 if dim == -1 else dim
    inferred = len(body) // fixed if fixed else 1
    if tensor.datatype == "BYTES":
        data = one_element(body)
    shape = (1, *(inferred if dim == -1 else dim for dim in tensor.shape[1:]))
    claim = ClaimedInput(tensor.name, tensor.datatype, shape)
    arrange(model, [claim], limits)
    check_size(claim, len(data), limits)
    wanted = tuple(RequestedOutput(index, True) for index in plain_outputs(spec))
    heading = Heading(model, [claim], "", wanted, read({}, model))
    return heading.complete([Tensor(claim.name, claim.datatype, shape, data)], None)


def _opening(told: tuple[str, int]) -> bytes:
    name, version = told
    stated = {"model_name": model_of(name), "model_version": str(version or ONLY)}
    opening = orjson.dumps(stated)[:-1] + b","
    _OPENINGS.put(told, opening)
    return opening


def _binary_output(key: tuple[str, str, tuple[int, ...], int]) -> bytes:
    name, datatype, shape, data_bytes = key
    output = orjson.dumps(
        {
            "name": name,
            "datatype": datatype,
            "shape": shape,
            "parameters": {"binary_data_size": data_bytes},
        }
    )
    _BINARY_OUTPUTS.put(key, output)
    return output


def _placed_output(tensor: Tensor, place: Place) -> bytes:
    key = (tensor.name, tensor.datatype, tensor.shape, len(tensor.data), place)
    output = _PLACED_OUTPUTS.get(key)
    if output is None:
        # Triton's client in C++ asks all outputs with parameters how many bytes follow.
        said = place_parameters(place, len(tensor.data)) | {"binary_data_size": 0}
        output = orjson.dumps(
            {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape, "parameters": said}
        )
        _PLACED_OUTPUTS.put(key, output)
    return output


def _json_output(tensor: Tensor) -> bytes:
    output = {
        "name": tensor.name,
        "datatype": tensor.datatype,
        "shape": tensor.shape,
        "data": list_elements(tensor),
    }
    return orjson.dumps(output, option=_JSON)
