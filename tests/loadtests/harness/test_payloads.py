"""Requests match the metadata that they were made from, byte for byte."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.harness.payloads import COLUMNS, Contents, Question, Target, make_questions, stated_slo_ms

SIZES = {"FP32": 4, "ANY": 4, "INT32": 4, "INT64": 8, "FP16": 2, "BOOL": 1, "UINT8": 1}


def metadata(*inputs: tuple[str, list[int]]) -> dict[str, object]:
    return {"inputs": [{"name": f"I{n}", "datatype": kind, "shape": shape} for n, (kind, shape) in
                       enumerate(inputs)]}  # fmt: skip


def split(question: Question) -> tuple[dict[str, Any], bytes]:  # Any: JSON, read by key
    size = int(question.headers["Inference-Header-Content-Length"])
    return json.loads(question.body[:size]), question.body[size:]


@given(st.sampled_from(sorted(SIZES)), st.lists(st.sampled_from([-1, 1, 3]), max_size=2), st.integers(1, 4))
def test_tensors_have_the_stated_shape_and_size(kind: str, shape: list[int], rows: int) -> None:
    contents = Contents(rows=rows, distinct=2)
    for question in make_questions(Target("m"), metadata((kind, [-1, *shape])), contents):
        header, raw = split(question)
        tensor = header["inputs"][0]
        assert tensor["shape"] == [rows, *(COLUMNS if size == -1 else size for size in shape)]
        count = rows
        for size in shape:
            count *= COLUMNS if size == -1 else size
        assert tensor["parameters"] == {"binary_data_size": len(raw)}
        assert len(raw) == count * SIZES[kind]


@pytest.mark.slow
@given(st.integers(1, 5), st.integers(0, 5), st.integers(0, 9))
def test_texts_have_a_number_of_words_within_the_bounds(low: int, more: int, seed: int) -> None:
    contents = Contents(rows=2, words=(low, low + more), distinct=3, seed=seed)
    for question in make_questions(Target("m"), metadata(("BYTES", [-1, 1])), contents):
        _, raw = split(question)
        for _ in range(2):
            (size,) = struct.unpack("<I", raw[:4])
            assert low <= len(raw[4 : 4 + size].decode().split()) <= low + more
            raw = raw[4 + size :]
        assert not raw


def test_contents_follow_the_seed_and_differ_among_themselves() -> None:
    described = metadata(("FP32", [-1, 64]))
    first, again = (make_questions(Target("m"), described, Contents(distinct=50)) for _ in range(2))
    assert first == again
    assert len({question.body for question in first}) == 50
    assert make_questions(Target("m"), described, Contents(distinct=50, seed=1)) != first


def test_tenant_variant_and_deadline_are_sent() -> None:
    target = Target("m", variant="fast", tenant="noisy")
    question = make_questions(target, metadata(("FP32", [-1, 4])), Contents(distinct=1), timeout_ms=12.5)[0]
    assert (question.headers["x-tenant"], question.headers["x-request-timeout-ms"]) == ("noisy", "12.5")
    assert split(question)[0]["parameters"] == {"binary_data_output": True, "variant": "fast"}
    assert b"POST /v2/models/m/infer HTTP/1.1\r\n" in question.request


def test_the_slo_is_read_where_it_is_stated() -> None:
    assert stated_slo_ms({"parameters": {"slo_ms": 25.0}}) == 25.0
    stated = {"parameters": {"slo_ms": 25.0, "objective": {"slo_rows": 4}}}
    assert [stated_slo_ms(stated, rows) for rows in (1, 4, 5, 32)] == [25.0, 25.0, 50.0, 200.0]
    unstated = {"parameters": {"slo_ms": 25.0, "objective": {"slo_rows": None}}}
    assert stated_slo_ms(unstated, 32) == 25.0
    assert stated_slo_ms({"parameters": {}}) is None
    assert stated_slo_ms({}) is None


def test_inputs_that_cannot_be_made_up_are_refused() -> None:
    with pytest.raises(ValueError, match="no contents are known for datatype 'FP4'"):
        make_questions(Target("m"), metadata(("FP4", [-1, 4])), Contents())
    with pytest.raises(ValueError, match="the metadata of 'm' names no inputs"):
        make_questions(Target("m"), metadata(), Contents())
