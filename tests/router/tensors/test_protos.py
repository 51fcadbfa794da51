"""The .proto files: they say what the clients of others say, and the file of descriptors is made of them."""

from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_tools import protoc
from tritonclient.grpc import model_config_pb2, service_pb2

from router.tensors.protos.files import POOL, health, oip, reflection

FOLDER = Path(__file__).parents[3] / "router" / "tensors" / "protos"
THEIRS = (service_pb2, model_config_pb2, health_pb2, reflection_pb2)


def shape_of(message: Any) -> dict[str, object]:
    """What is on the wire of a message, and what it is called."""
    fields = {
        each.name: (
            each.number, each.type, each.is_repeated, each.is_packed,
            each.message_type and each.message_type.full_name,
            each.enum_type and each.enum_type.full_name,
            each.containing_oneof and each.containing_oneof.name,
        )
        for each in message.fields
    }  # fmt: skip
    enums = {each.full_name: [(v.name, v.number) for v in each.values] for each in message.enum_types}
    nested = {each.full_name: shape_of(each) for each in message.nested_types}
    return {"fields": fields, "enums": enums, "nested": nested}


MESSAGES = [each for theirs in THEIRS for each in theirs.DESCRIPTOR.message_types_by_name.values()]


@pytest.mark.parametrize("theirs", MESSAGES, ids=lambda each: each.full_name)
def test_each_message_is_as_the_clients_of_others_have_it(theirs: Any) -> None:
    assert shape_of(POOL.FindMessageTypeByName(theirs.full_name)) == shape_of(theirs)


def test_each_method_is_as_the_clients_of_others_have_it() -> None:
    for theirs in THEIRS:
        for name, service in theirs.DESCRIPTOR.services_by_name.items():
            ours = POOL.FindServiceByName(f"{theirs.DESCRIPTOR.package}.{name}")
            assert [(m.name, m.input_type.full_name, m.output_type.full_name) for m in ours.methods] == [
                (m.name, m.input_type.full_name, m.output_type.full_name) for m in service.methods
            ]


def test_the_same_bytes_are_read_on_both_sides() -> None:
    asked = service_pb2.ModelInferRequest(model_name="m", id="7", raw_input_contents=[b"12"])
    asked.parameters["priority"].int64_param = 3
    ours = oip.ModelInferRequest.FromString(asked.SerializeToString())
    assert ours.parameters["priority"].int64_param == 3
    assert service_pb2.ModelInferRequest.FromString(ours.SerializeToString()) == asked
    assert oip.DataType.Value("TYPE_FP32") == model_config_pb2.DataType.Value("TYPE_FP32")
    assert health.HealthCheckResponse(status=1).SerializeToString() == b"\x08\x01"
    assert reflection.ServerReflectionRequest(list_services="").WhichOneof("message_request")


def test_the_descriptors_are_those_of_the_files(tmp_path: Path) -> None:
    made = tmp_path / "served.binpb"
    protos = sorted(each.name for each in FOLDER.glob("*.proto"))
    assert protoc.main(["protoc", f"-I{FOLDER}", f"--descriptor_set_out={made}", *protos]) == 0
    assert made.read_bytes() == (FOLDER / "served.binpb").read_bytes()
