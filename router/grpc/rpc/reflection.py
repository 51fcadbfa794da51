"""Server reflection: a client such as grpcurl asks which services there are, and gets their descriptors.

Versions v1 and v1alpha (github.com/grpc/grpc/blob/master/doc/server-reflection.md): one protocol under two
names, and the messages are the same on the wire.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final  # Any: neither grpc nor the generated messages carry types

import grpc
from google.protobuf import text_format  # type: ignore[import-untyped]
from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from router.grpc.rpc.calls import Calls, plain
from router.security.auth.rights import CLIENTS
from router.tensors.parts.errors import RequestError
from router.tensors.parts.wording import quoted
from router.tensors.protos.files import FILES, reflection

OLD, NEW = "grpc.reflection.v1alpha", "grpc.reflection.v1"
PATHS: Final = tuple(f"/{package}.ServerReflection/ServerReflectionInfo" for package in (NEW, OLD))
_Answer = reflection.ServerReflectionResponse
_NOT_FOUND: Final = grpc.StatusCode.NOT_FOUND.value[0]
_BAD: Final = grpc.StatusCode.INVALID_ARGUMENT.value[0]


class Reflection:
    """What the edge says of its services. It knows their files, and no others of this process."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._pool, self._services = _served()
        self._answers: Mapping[str, Callable[[Any, Any], None]] = {
            "list_services": self._list,
            "file_by_filename": partial(self._file, self._pool.FindFileByName),
            "file_containing_symbol": partial(self._file, self._pool.FindFileContainingSymbol),
            "file_containing_extension": partial(self._file, self._extended),
            "all_extension_numbers_of_type": self._extensions,
        }

    def handlers(self) -> dict[str, Any]:
        """Return the handlers by path."""
        return dict.fromkeys(PATHS, self._calls.stream(self._talk, CLIENTS, counted=False))

    async def _talk(self, context: Any) -> None:
        """Answer each question, until the client ends the stream, or is silent for too long."""
        while (raw := await self._calls.next(context)) is not None:
            try:
                asked = reflection.ServerReflectionRequest.FromString(plain(raw))
            except (RequestError, DecodeError):
                sentence = "the message is no ServerReflectionRequest"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, sentence)
            await context.write(self.answer(asked).SerializeToString())

    def answer(self, asked: Any) -> Any:
        """Return the ServerReflectionResponse to a ServerReflectionRequest."""
        found = _Answer(valid_host=asked.host, original_request=asked)
        kind = asked.WhichOneof("message_request")
        if kind is None:
            found.error_response.error_code = _BAD
            found.error_response.error_message = (
                f"the request asks for nothing; expected one of {', '.join(self._answers)}"
            )
            return found
        try:
            self._answers[kind](getattr(asked, kind), found)
        except KeyError:
            found.error_response.error_code = _NOT_FOUND
            said = str(getattr(asked, kind)).strip()
            found.error_response.error_message = (
                f"{kind}: {quoted(said)} is not found; ask list_services for what there is"
            )
        return found

    def _list(self, _asked: str, found: Any) -> None:
        for name in self._services:
            found.list_services_response.service.add(name=name)

    def _file(self, find: Callable[[Any], Any], asked: Any, found: Any) -> None:
        """Say the file that `find` returns, and those that it imports."""
        waiting, seen = [find(asked)], set()
        while waiting:
            file = waiting.pop()
            if file.name not in seen:
                seen.add(file.name)
                found.file_descriptor_response.file_descriptor_proto.append(file.serialized_pb)
                waiting += file.dependencies

    def _extended(self, asked: Any) -> Any:
        owner = self._pool.FindMessageTypeByName(asked.containing_type)
        return self._pool.FindExtensionByNumber(owner, asked.extension_number).file

    def _extensions(self, asked: str, found: Any) -> None:
        numbers = [
            each.number for each in self._pool.FindAllExtensions(self._pool.FindMessageTypeByName(asked))
        ]
        found.all_extension_numbers_response.base_type_name = asked
        found.all_extension_numbers_response.extension_number.extend(numbers)


def _served() -> tuple[DescriptorPool, list[str]]:
    """Return a pool with the files of what is served, and the names of the services in them."""
    pool, services = DescriptorPool(), []
    (old,) = (each for each in FILES if each.package == OLD)
    renamed = (
        text_format.MessageToString(old).replace("v1alpha", "v1").replace("reflection.proto", "v1.proto")
    )
    for proto in (*FILES, text_format.Parse(renamed, FileDescriptorProto())):
        pool.AddSerializedFile(proto.SerializeToString())
        services += [f"{proto.package}.{each.name}" for each in proto.service]
    return pool, services
