"""The parameters of sequences mean the same over REST and gRPC, and are refused in Triton's words."""

from dataclasses import replace

import pytest
from tritonclient.grpc import service_pb2

from router.tensors import proto, rest
from router.tensors.request.parameters import read
from serving.values.sequences import ControlSpec, SequenceSpec, SequenceStep
from serving.values.specs import ServedModel, TensorSpec
from serving.values.vocabulary import BAD_INPUT
from tests.router.tensors.requests import LIMITS, body, entry, message, model, parameter, refusal


def of(datatype: str = "") -> SequenceSpec:
    controls = (ControlSpec("corrid", "ID", datatype),) if datatype else ()
    return SequenceSpec("oldest", 4, 1_000_000, controls)


def taking(datatype: str = "") -> ServedModel:
    """A model with sequences that gets ids of that datatype, "" for none."""
    plain = model(ONE)
    return replace(plain, spec=replace(plain.spec, sequence=of(datatype)))


InferParameter = service_pb2.InferParameter
ONE = TensorSpec("X", "FP32", (-1, 1))
ANY_ID = taking()


@pytest.mark.parametrize("name", [1, 2**64 - 1, "a", "5", "ü" * 64])
@pytest.mark.parametrize(("start", "end"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_step_is_the_same_over_rest_and_grpc(name: int | str, start: bool, end: bool) -> None:
    said: dict[str, object] = {"sequence_id": name, "sequence_start": start, "sequence_end": end}
    sent = rest.decode(*body(entry("X", "FP32", (1, 1), [1.0]), parameters=said), ANY_ID, LIMITS)
    request = message(("X", "FP32", (1, 1), [1.0]))
    for key, value in said.items():
        large = isinstance(value, int) and value >= 2**63
        request.parameters[key].MergeFrom(
            InferParameter(**({"uint64_param": value} if large else parameter(value)))
        )
    for call in (sent.call, proto.decode(request, ANY_ID, LIMITS).call):
        assert call.sequence == SequenceStep(name, start, end)
        assert call.parameters == ()


def test_flags_may_be_left_out() -> None:
    assert read({"sequence_id": 3}, ANY_ID).step == SequenceStep(3)


@pytest.mark.parametrize("said", [{}, {"sequence_id": 0}, {"sequence_id": ""}, {"sequence_start": True}])
def test_a_request_without_an_id_is_refused_in_tritons_words(said: dict[str, object]) -> None:
    sentence = refusal(lambda: read(said, ANY_ID), BAD_INPUT)
    wanted = "inference request to model 'simple' must specify a non-zero or non-empty correlation ID"
    assert sentence.startswith(wanted)


def test_a_request_of_several_rows_is_refused_in_tritons_words() -> None:
    said = {"sequence_id": 1, "sequence_start": True}
    two = body(entry("X", "FP32", (2, 1), [1.0, 2.0]), parameters=said)
    sentence = refusal(lambda: rest.decode(*two, ANY_ID, LIMITS), BAD_INPUT)
    assert "must specify batch-size 1 due to requirements of sequence batcher; got 2 rows" in sentence


@pytest.mark.parametrize(
    ("datatype", "name", "expected"),
    [
        ("", -1, "a whole number from 1 to 18446744073709551615, or text of up to 128 bytes"),
        ("", True, "a whole number from 1"),
        ("", 1.5, "a whole number from 1"),
        ("", 2**64, "a whole number from 1"),
        ("", "x" * 129, "must have up to 128 bytes, got 129"),
        ("", "\ud800", "UTF-8"),
        ("INT32", 2**31, "a whole number from 1 to 2147483647"),
        ("UINT64", "a", "a whole number from 1 to 18446744073709551615, got 'a'"),
        ("BYTES", 5, "must be text, got 5"),
    ],
)
def test_an_id_that_the_model_does_not_take_is_refused(datatype: str, name: object, expected: str) -> None:
    assert expected in refusal(lambda: read({"sequence_id": name}, taking(datatype)), BAD_INPUT)


def test_a_flag_that_is_no_flag_is_refused() -> None:
    sentence = refusal(lambda: read({"sequence_id": 1, "sequence_end": 1}, ANY_ID), BAD_INPUT)
    assert sentence == "parameter 'sequence_end' must be true or false, got 1"


def test_a_model_without_sequences_refuses_what_asks_for_one_and_takes_what_asks_for_none() -> None:
    plain = model(ONE)
    assert read({"sequence_id": 0, "sequence_start": False, "sequence_end": False}, plain).step is None
    assert "the model has no sequences" in refusal(lambda: read({"sequence_id": 5}, plain), BAD_INPUT)
