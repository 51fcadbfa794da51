"""The memory of headers: it may make requests cheaper, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.tensors import proto, rest
from router.tensors.messages import outline
from router.tensors.parts.errors import RequestError
from router.tensors.parts.recent import Recent
from serving.values.specs import Limits, ServedModel
from serving.values.vocabulary import BAD_INPUT, TOO_LARGE
from tests.router.tensors.requests import (
    ANYTHING,
    LIMITS,
    SIMPLE,
    TEXT,
    body,
    completed,
    entry,
    model,
    parts,
    refusal,
    simple_body,
    simple_message,
)

texts = st.lists(st.text("ab", max_size=3), min_size=2, max_size=2)


def answer(content: bytes, json_length: int | None, limits: Limits = LIMITS) -> object:
    """All of what decode says, as a value."""
    try:
        decoded = rest.decode(content, json_length, TEXT, limits)
    except RequestError as refused:
        return refused.outcome, refused.message
    call = decoded.call
    wanted = [(output.index, output.binary) for output in decoded.wanted]
    asked = (call.timeout_us, call.variant, call.parameters)
    return [parts(t) for t in call.inputs], call.rows, call.size, asked, decoded.id, wanted


def fresh_answer(content: bytes, json_length: int | None) -> object:
    kept, rest._PLANS = rest._PLANS, Recent(4)
    try:
        return answer(content, json_length)
    finally:
        rest._PLANS = kept


@given(texts, texts, st.integers(-2, 2), st.binary(max_size=3), st.sampled_from(["", "a", "b"]))
def test_a_known_header_answers_as_an_unknown_one(
    first: list[str], second: list[str], shift: int, tail: bytes, request_id: str
) -> None:
    """The bodies share headers whenever their sizes agree, but not their data nor their faults."""
    parameters = {"timeout": 5, "variant": "large"}
    for values in (first, second):
        content, json_length = body(
            entry("TEXT", "BYTES", (2, 1), values), id=request_id, parameters=parameters
        )
        rest.decode(content, json_length, TEXT, LIMITS)  # now the header is known
        for mutant in (
            content,
            content + tail,
            content[:-1],
            content[:json_length] + b"\1" + content[json_length + 1 :],
        ):
            for stated in (json_length, json_length + shift):
                assert answer(mutant, stated) == fresh_answer(mutant, stated)


def test_a_known_header_of_one_model_says_nothing_about_another() -> None:
    content, json_length = simple_body()
    rest.decode(content, json_length, SIMPLE, LIMITS)
    twin = model(*SIMPLE.spec.inputs)
    assert rest.decode(content, json_length, twin, LIMITS).call.model is twin
    assert len(rest.decode(content, json_length, twin, LIMITS).wanted) == 1


def test_a_known_header_is_checked_again_under_other_limits() -> None:
    content, json_length = simple_body(rows=2)
    rest.decode(content, json_length, SIMPLE, LIMITS)
    strict = Limits(rows_per_request=1)
    assert "has 2 rows" in refusal(lambda: rest.decode(content, json_length, SIMPLE, strict), TOO_LARGE)


def test_a_known_header_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    content, json_length = simple_body(id="known")
    first = rest.decode(content, json_length, SIMPLE, LIMITS)
    monkeypatch.delattr(rest, "_decode_parsed")
    again = rest.decode(content, json_length, SIMPLE, LIMITS)
    assert [parts(t) for t in again.call.inputs] == [parts(t) for t in first.call.inputs]


def test_a_header_length_beyond_the_body_is_refused_though_the_header_is_known() -> None:
    content, json_length = body(entry("X", "FP32", (1, 0), []))
    rest.decode(content, json_length, ANYTHING, LIMITS)
    beyond = refusal(lambda: rest.decode(content, json_length + 1, ANYTHING, LIMITS), BAD_INPUT)
    assert beyond.startswith("Inference-Header-Content-Length says")


def test_two_requests_of_one_header_share_no_data() -> None:
    content, json_length = simple_body()
    other = content[:json_length] + bytes(32)
    first = rest.decode(content, json_length, SIMPLE, LIMITS)
    second = rest.decode(other, json_length, SIMPLE, LIMITS)
    assert bytes(second.call.inputs[0].data) == bytes(16)
    assert bytes(first.call.inputs[0].data) == content[json_length : json_length + 16]
    assert first.call is not second.call


def test_headers_that_never_repeat_leave_bounded_memory() -> None:
    for number in range(1300):
        rest.decode(*simple_body(id=str(number)), SIMPLE, LIMITS)
    assert len(rest._PLANS) <= 1024


def test_long_headers_are_not_kept() -> None:
    before = len(rest._PLANS)
    content, json_length = simple_body(id="x" * rest.PLANNED_HEADER_BYTES)
    decoded = rest.decode(content, json_length, SIMPLE, LIMITS)
    assert len(decoded.id) == rest.PLANNED_HEADER_BYTES
    assert len(rest._PLANS) == before


def test_shapes_of_answers_leave_bounded_memory() -> None:
    decoded = rest.decode(
        *simple_body(outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": True}}]), SIMPLE, LIMITS
    )
    tensor = decoded.call.inputs[0]
    for rows in range(1300):
        tensor.shape = (rows, 4)
        rest.encode(decoded, completed(tensor))
    assert len(rest._BINARY_OUTPUTS) <= 1024


def rpc_answer(message: bytes, key: tuple[bytes, int] | None, served: ServedModel = SIMPLE) -> object:
    """All of what decode says of a gRPC request, as a value: by its plan where it has one."""
    found = outline(message, LIMITS)
    plan = proto.recall(key, LIMITS)
    try:
        if plan is not None and plan.model is served:
            decoded = plan.take(message, found)
        else:
            request, apart = proto.parse(message, found)
            decoded = proto.decode(request, served, LIMITS, apart, key)
    except RequestError as refused:
        return refused.outcome, refused.message
    call = decoded.call
    wanted = [(output.index, output.binary) for output in decoded.wanted]
    asked = (call.timeout_us, call.variant, call.parameters)
    return [parts(t) for t in call.inputs], call.rows, call.size, asked, decoded.id, wanted


@given(st.lists(st.binary(max_size=20), min_size=2, max_size=2), st.sampled_from(["", "a"]), st.booleans())
def test_a_known_grpc_request_answers_as_an_unknown_one(
    datas: list[bytes], request_id: str, shuffled: bool
) -> None:
    good = simple_message()
    good.id = request_id
    if shuffled:
        good.inputs.reverse()
    first = good.SerializeToString()
    found = outline(first, LIMITS)
    key = proto.key_of(first, found)
    assert key is not None
    rpc_answer(first, key)
    assert proto.recall(key, LIMITS) is not None
    del good.raw_input_contents[:]
    good.raw_input_contents.extend(datas)
    mutant = good.SerializeToString()
    assert proto.key_of(mutant, outline(mutant, LIMITS)) == key
    assert rpc_answer(mutant, key) == rpc_answer(mutant, None)
    assert rpc_answer(first, key) == rpc_answer(first, None)


def test_a_grpc_plan_is_of_its_model_and_its_limits() -> None:
    message = simple_message().SerializeToString()
    key = proto.key_of(message, outline(message, LIMITS))
    rpc_answer(message, key)
    plan = proto.recall(key, LIMITS)
    assert plan is not None
    assert plan.model is SIMPLE
    assert proto.recall(key, Limits()) is None


def test_a_grpc_request_whose_data_do_not_end_it_has_no_plan() -> None:
    message = simple_message().SerializeToString() + b"\x1a\x02id"
    assert proto.key_of(message, outline(message, LIMITS)) is None
    long = simple_message()
    long.id = "x" * 3_000
    raw = long.SerializeToString()
    assert proto.key_of(raw, outline(raw, LIMITS)) is None
