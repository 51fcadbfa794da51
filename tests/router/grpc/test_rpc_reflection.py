"""Server reflection, under both of its names: what clients such as grpcurl ask before they call."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any  # grpc's clients and messages carry no types

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from router.grpc.rpc import SERVICE
from router.grpc.rpc.reflection import PATHS
from router.security.auth.guard import KeyGuard
from router.security.auth.keys import KeyFile
from serving.values.specs import Limits
from tests.router.rpc_edge import Edge, error_of, serve

pytestmark = pytest.mark.usefixtures("both_servers")

Request = reflection_pb2.ServerReflectionRequest
HEALTH = "grpc.health.v1.Health"


@contextlib.asynccontextmanager
async def talk(path: str = PATHS[0], limits: Limits | None = None) -> AsyncIterator[tuple[Edge, Any]]:
    async with serve(limits=limits) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        serialize, parse = Request.SerializeToString, reflection_pb2.ServerReflectionResponse.FromString
        yield edge, channel.stream_stream(path, serialize, parse)(timeout=60)


async def ask(stream: Any, **asked: Any) -> Any:
    await stream.write(Request(**asked))
    return await stream.read()


@pytest.mark.parametrize("path", PATHS)
async def test_a_client_learns_the_services_and_asks_on_in_the_same_stream(path: str) -> None:
    async with talk(path) as (edge, stream):
        listed = (await ask(stream, list_services="")).list_services_response.service
        names = [each.name for each in listed]
        assert names[:2] == [SERVICE, HEALTH]
        assert names[2:] == [
            "grpc.reflection.v1alpha.ServerReflection",
            "grpc.reflection.v1.ServerReflection",
        ]
        for name in names:
            pool = DescriptorPool()
            found = await ask(stream, file_containing_symbol=name)
            for file in reversed(found.file_descriptor_response.file_descriptor_proto):
                pool.AddSerializedFile(file)  # what it imports comes after it
            assert pool.FindServiceByName(name).methods
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() == grpc.StatusCode.OK
        async with asyncio.timeout(60):
            await edge.server.calls.answered.wait()


async def test_grpcs_own_client_finds_a_method_and_its_messages() -> None:
    async with serve() as edge:

        def look() -> tuple[list[str], str]:
            with grpc.insecure_channel(edge.address) as channel:
                database = ProtoReflectionDescriptorDatabase(channel)
                service = DescriptorPool(database).FindServiceByName(SERVICE)
                return list(database.get_services()), service.FindMethodByName("ModelInfer").input_type.name

        services, request = await asyncio.to_thread(look)
        assert SERVICE in services
        assert request == "ModelInferRequest"


async def test_what_is_not_there_is_said_and_the_stream_goes_on() -> None:
    async with talk() as (_, stream):
        extension = {"containing_type": "inference.ModelConfig", "extension_number": 7}
        for asked in (
            {"file_containing_symbol": "absent.Service"},
            {"file_by_filename": "absent.proto"},
            {"file_by_filename": "google/protobuf/descriptor.proto"},  # in this process, but not served
            {"all_extension_numbers_of_type": "absent"},
            {"file_containing_extension": extension},
        ):
            error = (await ask(stream, **asked)).error_response
            assert error.error_code == grpc.StatusCode.NOT_FOUND.value[0]
            assert next(iter(asked)) in error.error_message
        error = (await ask(stream)).error_response
        assert error.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        found = await ask(stream, all_extension_numbers_of_type="inference.ModelConfig")
        assert found.all_extension_numbers_response.base_type_name == "inference.ModelConfig"
        assert (await ask(stream, file_by_filename="grpc_service.proto")).HasField("file_descriptor_response")


async def test_a_damaged_message_ends_the_stream_with_a_sentence() -> None:
    async with serve() as edge, grpc.aio.insecure_channel(edge.address) as channel:
        stream = channel.stream_stream(PATHS[0])(timeout=60)
        await stream.write(b"\xff")
        status, sentence = await error_of(stream.read())
        assert (status, sentence) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "the message is no ServerReflectionRequest",
        )


async def test_a_silent_client_is_not_waited_for_for_ever() -> None:
    async with talk(limits=Limits(slow_client_s=0.1)) as (_, stream):
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() == grpc.StatusCode.OK


async def test_an_open_stream_does_not_hold_the_end_of_the_gateway_up() -> None:
    async with talk() as (edge, stream):
        await ask(stream, list_services="")
        async with asyncio.timeout(30):
            await edge.server.stop(60)
        assert await stream.read() is grpc.aio.EOF


async def test_with_keys_a_caller_without_one_learns_nothing() -> None:
    async with serve(guard=KeyGuard(KeyFile(()))) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        stream = channel.stream_stream(PATHS[0])(timeout=60)
        status, _ = await error_of(stream.read())
        assert status == grpc.StatusCode.UNAUTHENTICATED
