import struct

import orjson
import pytest

from router.tensors import rest
from serving.values.tensor import Tensor
from serving.values.vocabulary import BAD_INPUT
from tests.router.tensors.requests import (
    ANYTHING,
    LIMITS,
    SIMPLE,
    body,
    completed,
    entry,
    refusal,
    simple_body,
)

SUM = Tensor("OUTPUT0", "INT32", (1, 4), struct.pack("<4i", 1, 2, 3, 4))
DIFFERENCE = Tensor("OUTPUT1", "INT32", (1, 4), memoryview(struct.pack("<4i", 5, 6, 7, 8)))


def test_json_outputs_are_flat_lists_and_there_is_no_header_length() -> None:
    decoded = rest.decode(*simple_body(id="q"), SIMPLE, LIMITS)
    answer, json_length = rest.encode(decoded, completed(SUM, DIFFERENCE))
    assert json_length is None
    assert orjson.loads(answer) == {
        "model_name": "simple",
        "model_version": "1",
        "id": "q",
        "outputs": [
            {"name": "OUTPUT0", "datatype": "INT32", "shape": [1, 4], "data": [1, 2, 3, 4]},
            {"name": "OUTPUT1", "datatype": "INT32", "shape": [1, 4], "data": [5, 6, 7, 8]},
        ],
    }


def test_binary_outputs_follow_the_json_in_the_order_asked() -> None:
    outputs = [{"name": "OUTPUT1"}, {"name": "OUTPUT0"}]
    decoded = rest.decode(
        *simple_body(outputs=outputs, parameters={"binary_data_output": True}), SIMPLE, LIMITS
    )
    answer, json_length = rest.encode(decoded, completed(SUM, DIFFERENCE))
    document = orjson.loads(answer[:json_length])
    assert "id" not in document
    assert [output["name"] for output in document["outputs"]] == ["OUTPUT1", "OUTPUT0"]
    assert [output["parameters"] for output in document["outputs"]] == [{"binary_data_size": 16}] * 2
    assert answer[json_length:] == bytes(DIFFERENCE.data) + bytes(SUM.data)


def test_one_output_may_be_binary_beside_one_in_json() -> None:
    outputs = [{"name": "OUTPUT0"}, {"name": "OUTPUT1", "parameters": {"binary_data": True}}]
    decoded = rest.decode(*simple_body(outputs=outputs), SIMPLE, LIMITS)
    answer, json_length = rest.encode(decoded, completed(SUM, DIFFERENCE))
    first, second = orjson.loads(answer[:json_length])["outputs"]
    assert first["data"] == [1, 2, 3, 4]
    assert "data" not in second
    assert answer[json_length:] == bytes(DIFFERENCE.data)


def test_a_rendered_answer_follows_the_tensor_not_the_last_one() -> None:
    decoded = rest.decode(
        *simple_body(outputs=[{"name": "OUTPUT0"}], parameters={"binary_data_output": True}), SIMPLE, LIMITS
    )
    for rows in (1, 2, 1):
        data = bytes(16 * rows)
        answer, json_length = rest.encode(decoded, completed(Tensor("OUTPUT0", "INT32", (rows, 4), data)))
        (output,) = orjson.loads(answer[:json_length])["outputs"]
        assert output["shape"] == [rows, 4]
        assert output["parameters"]["binary_data_size"] == 16 * rows


@pytest.mark.parametrize("request_id", ['"', "\\", "ü\n"])
def test_an_id_comes_back_as_it_was(request_id: str) -> None:
    for binary in (True, False):
        asked = simple_body(id=request_id, parameters={"binary_data_output": binary})
        decoded = rest.decode(*asked, SIMPLE, LIMITS)
        answer, json_length = rest.encode(decoded, completed(SUM, DIFFERENCE))
        assert orjson.loads(answer[:json_length])["id"] == request_id


def test_bytes_that_are_no_text_must_be_asked_for_as_binary() -> None:
    request = body(entry("X", "BYTES", (1, 2), ["a", "b"]))
    decoded = rest.decode(*request, ANYTHING, LIMITS)
    reply = completed(Tensor("X", "BYTES", (1, 2), b"\1\0\0\0a\2\0\0\0\xff\xfe"))
    sentence = refusal(lambda: rest.encode(decoded, reply), BAD_INPUT)
    assert sentence == (
        "output 'X': element [0,1] is not UTF-8 text, which JSON needs; "
        "ask for this output with binary_data true"
    )
