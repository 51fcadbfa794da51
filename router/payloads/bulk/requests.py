"""Large requests and answers over REST and gRPC, made small enough for the event loop."""

from router.payloads.bulk.pool import Bulk
from router.protocol.rest import (
    INLINE_BYTES,
    INLINE_PACKED_BYTES,
    Fields,
    HttpError,
    Made,
    coding_of,
    json_length_of,
)
from router.tensors.answer.storing import stored_bytes, storing
from router.tensors.parts.compression import coding_of_message, deflate, framing, inflate, unknown_coding
from router.tensors.request.decoded import Decoded
from router.tensors.rest import Body, encode_parts, joined, size_of
from serving.ports import Reply
from serving.values.specs import ServedModel
from serving.values.tensor import Buffer
from serving.values.vocabulary import BAD_INPUT

Opened = tuple[Buffer, Fields]
"""A request's body and header fields."""

_AT_ONCE_BYTES = 2048  # inflates in less time than a thread takes to wake


async def open_rest(bulk: Bulk, body: Buffer, fields: Fields, model: ServedModel) -> Opened:
    """Return the same request without Content-Encoding and with little JSON; its body and header fields.

    Raises RequestError for what cannot be read, and BulkError.
    """
    changed = dict(fields)
    coding = changed.pop(b"content-encoding", b"")
    window = framing(coding)
    if window is None:
        raise HttpError(415, BAD_INPUT, unknown_coding(coding))
    if window:
        body = await _inflated(bulk, body, coding)
    json_length = json_length_of(changed)
    if (len(body) if json_length is None else json_length) > INLINE_BYTES:
        bulk.admit(len(body))
        order = bytes(body), json_length, model, bulk.limits
        body, json_length = await bulk.run("unfold_rest", len(body), *order)
        changed[b"inference-header-content-length"] = b"%d" % json_length
    return body, changed


async def open_body(bulk: Bulk, body: Buffer, fields: Fields) -> Buffer:
    """Return a body without its Content-Encoding; RequestError for what cannot be read."""
    coding = fields.get(b"content-encoding", b"")
    window = framing(coding)
    if window is None:
        raise HttpError(415, BAD_INPUT, unknown_coding(coding))
    return await _inflated(bulk, body, coding) if window else body


async def pack_body(bulk: Bulk, body: bytes, fields: Fields) -> tuple[bytes, bytes]:
    """Return a body in the coding that the client accepts, and that coding, b"" for none."""
    coding = coding_of(fields, len(body))
    if not coding:
        return body, b""
    if len(body) <= INLINE_PACKED_BYTES:
        return deflate(body, coding), coding
    return await bulk.in_thread(len(body), deflate, body, coding), coding


async def open_rpc(bulk: Bulk, message: bytes) -> bytes:
    """Return a gRPC message without its compression; RequestError where it is damaged or becomes too
    large."""
    coding = coding_of_message(message)
    return await _inflated(bulk, message, coding) if coding else message


async def _inflated(bulk: Bulk, body: Buffer, coding: bytes) -> bytes:
    if len(body) <= _AT_ONCE_BYTES:
        return inflate(body, coding, bulk.limits)
    bulk.admit(len(body))
    inflated = await bulk.in_thread(len(body), inflate, body, coding, bulk.limits)
    bulk.admit(len(inflated))
    return inflated


async def make_rest(bulk: Bulk, decoded: Decoded, reply: Reply, fields: Fields) -> Made:
    """Return an answer's body, as `router.protocol.rest.make` makes it; what goes to the client's memory is
    there."""
    if decoded.targets:
        await bulk.in_turns(stored_bytes(decoded, reply), storing(decoded, reply))
    if all(each.binary for each in decoded.wanted):
        body, json_length = encode_parts(decoded, reply)
    else:
        outputs = [(each.name, each.datatype, each.shape, bytes(each.data)) for each in reply.outputs]
        wanted = [(each.index, each.binary, each.classes, each.place) for each in decoded.wanted]
        size = sum(len(data) for *_, data in outputs)
        order = decoded.call.model, decoded.id, wanted, outputs
        body, json_length = await bulk.run("fold_rest", size, *order)
    size = size_of(body)
    coding = coding_of(fields, size)
    if coding:
        body = await bulk.in_thread(size, _deflated, body, coding)
    return body, json_length, coding


def _deflated(body: Body, coding: bytes) -> bytes:
    return deflate(joined(body), coding)
