"""Sizes with a name: a request keeps to them, and to the size hint of its values."""

import json

import pytest

from router.tensors.parts.errors import RequestError
from router.tensors.rest import decode
from serving.values.specs import Limits
from tests.worker.replicas.test_padding import MODEL


def decoded(ids: list[list[int]], mask: list[list[bool]] | None = None) -> int:
    """The size of the request's largest row."""
    inputs: list[object] = [
        {"name": "ids", "datatype": "INT64", "shape": [len(ids), len(ids[0])], "data": ids},
        {"name": "fixed", "datatype": "FP32", "shape": [len(ids), 2], "data": [[0.0, 1.0]] * len(ids)},
    ]
    if mask is not None:
        shape = [len(mask), len(mask[0])]
        inputs.append({"name": "mask", "datatype": "BOOL", "shape": shape, "data": mask})
    body = json.dumps({"id": "mine", "inputs": inputs}).encode()
    call = decode(body, None, MODEL, Limits(), None).call
    assert call.name == "mine"
    return call.size


def test_the_values_of_a_row_are_counted_and_a_mask_may_be_left_out() -> None:
    assert decoded([[1, 2, 3]] * 2) == 3
    assert decoded([[1, 2, 3]], [[True, True, False]]) == 3


@pytest.mark.parametrize(
    ("tokens", "mask", "said"),
    [
        (3, 2, "input 'mask': shape [1,2] has the size 2 for 'tokens'; expected 3, as input 'ids' has"),
        (
            65,
            0,
            "input 'ids': shape [1,65] has 65 values a row; 1 to 64 are accepted (size_hint of the model)",
        ),
        (0, 0, "input 'ids': shape [1,0] has 0 values a row; 1 to 64 are accepted"),
    ],
)
def test_another_size_is_refused_by_its_name(tokens: int, mask: int, said: str) -> None:
    with pytest.raises(RequestError) as refused:
        decoded([[1] * tokens], [[True] * mask] if mask else None)
    assert said in str(refused.value)
