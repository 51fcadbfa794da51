"""The messages of the gRPC edge, as Python classes, from `served.binpb`: protoc makes it of the .proto files.

    cd router/tensors/protos
    python -m grpc_tools.protoc -I . --descriptor_set_out=served.binpb *.proto

They lie in a pool of their own, as a process may also load tritonclient, whose messages have the same names.
"""

from importlib.resources import files
from types import SimpleNamespace
from typing import Any, Final  # Any: protobuf's messages carry no types

from google.protobuf.descriptor_pb2 import FileDescriptorSet  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

OIP: Final = "inference"
_SET: Final[Any] = FileDescriptorSet.FromString(files(__package__).joinpath("served.binpb").read_bytes())
FILES: Final[tuple[Any, ...]] = tuple(
    sorted(_SET.file, key=lambda each: (each.package != OIP, len(each.dependency)))
)
"""The descriptors of all files: the protocol's first, and before each those that it imports."""
POOL: Final = DescriptorPool()
for _file in FILES:
    POOL.AddSerializedFile(_file.SerializeToString())


def messages_of(package: str) -> Any:
    """Return the messages and enums of a package by name, as attributes."""
    found: dict[str, Any] = {}
    for each in FILES:
        if each.package == package:
            file = POOL.FindFileByName(each.name)
            found |= {name: GetMessageClass(told) for name, told in file.message_types_by_name.items()}
            found |= {name: EnumTypeWrapper(told) for name, told in file.enum_types_by_name.items()}
    return SimpleNamespace(**found)


oip: Final[Any] = messages_of(OIP)
"""The Open Inference Protocol's, with Triton's extensions and its ModelConfig."""
health: Final[Any] = messages_of("grpc.health.v1")
reflection: Final[Any] = messages_of("grpc.reflection.v1alpha")
