from collections.abc import Mapping
from dataclasses import replace

import pytest

from router.tensors import proto, rest
from router.tensors.request.parameters import LONGEST_US, RequestParameters, Stated, read
from serving.values.specs import ParameterSpec, Priorities, SizeHint, TensorSpec
from serving.values.vocabulary import BAD_INPUT, NEVER_US
from tests.router.tensors.requests import (
    LIMITS,
    SIMPLE,
    TEXT,
    body,
    entry,
    message,
    model,
    parameter,
    refusal,
    simple_body,
    simple_message,
)

TUNED = model(
    TensorSpec("X", "FP32", (-1, 1)),
    parameters=(
        ParameterSpec("top_k", "int", 5, 1, 10),
        ParameterSpec("execute_delay_ms", "float", 0.0, 0, 100),
        ParameterSpec("prompt", "string", ""),
        ParameterSpec("exact", "bool", False),
        ParameterSpec("wait_ms", "int", 0, 0, 2500.0, "ms", "50% of limits.stall_s"),
    ),
)
DEFAULTS = (("exact", False), ("execute_delay_ms", 0.0), ("prompt", ""), ("top_k", 5), ("wait_ms", 0))


@pytest.mark.parametrize(
    ("stated", "timeout_us"),
    [
        (1, 1),
        (5000, 5000),
        ("5000", 5000),
        (5e3, 5000),
        (2**64 - 1, LONGEST_US),
        ("9" * 20, LONGEST_US),
        (0, None),
        ("0", None),
    ],
)
def test_a_timeout_is_microseconds_as_number_or_digits_and_0_is_none(
    stated: object, timeout_us: int | None
) -> None:
    assert read({"timeout": stated}, TUNED).timeout_us == timeout_us
    assert timeout_us is None or timeout_us < NEVER_US


@pytest.mark.parametrize("stated", [-1, "-5", "5ms", "", "٣", "9" * 5000, 0.5, float("inf"), True, None, [5]])
def test_a_timeout_that_is_none_is_refused(stated: object) -> None:
    sentence = refusal(lambda: read({"timeout": stated}, TUNED), BAD_INPUT)
    assert sentence.startswith("parameter 'timeout' must be a whole number of microseconds, 0 for none, got ")


@pytest.mark.parametrize(
    ("values", "stated"),
    [
        ({}, None),
        ({"tier": ""}, Stated("", 0.0)),
        ({"tier": " gold "}, Stated("gold", 0.0)),
        ({"accuracy_min": 0.9}, Stated("", 0.9)),
        ({"accuracy_min": "0.9", "tier": "gold"}, Stated("gold", 0.9)),
        ({"accuracy_min": 1}, Stated("", 1.0)),
        ({"accuracy_min": -0.0}, Stated("", 0.0)),
    ],
)
def test_a_tier_is_a_name_and_a_floor_a_share(values: Mapping[str, object], stated: Stated | None) -> None:
    assert read(values, TUNED).stated == stated


@pytest.mark.parametrize(
    "stated",
    [-0.1, 1.1, 95, "95", "", "high", float("nan"), "nan", "inf", True, None, [0.9], 10**400, "9" * 5000],
)
def test_a_floor_that_is_no_share_is_refused(stated: object) -> None:
    sentence = refusal(lambda: read({"accuracy_min": stated}, TUNED), BAD_INPUT)
    assert sentence.startswith("parameter 'accuracy_min' must be a number from 0 to 1 (0.95 for 95 %), got ")


@pytest.mark.parametrize("stated", [7, True, None, ["gold"]])
def test_a_tier_that_is_no_name_is_refused(stated: object) -> None:
    sentence = refusal(lambda: read({"tier": stated}, TUNED), BAD_INPUT)
    assert sentence.startswith("parameter 'tier' must be a string, got ")


def test_both_wires_hand_on_tier_and_floor_a_known_header_too() -> None:
    given = {"tier": "gold", "accuracy_min": 0.5}
    over_rest = body(entry("X", "FP32", (1, 1), [1.0]), parameters=given)
    request = message(("X", "FP32", (1, 1), [1.0]), parameters={k: parameter(v) for k, v in given.items()})
    first, again = (rest.decode(*over_rest, TUNED, LIMITS) for _ in range(2))
    for decoded in (first, again, proto.decode(request, TUNED, LIMITS)):
        assert decoded.stated == Stated("gold", 0.5)


def test_a_variant_must_be_one_that_is_served() -> None:
    assert read({"variant": "large"}, TUNED).variant == "large"
    sentence = refusal(lambda: read({"variant": "larg"}, TUNED), BAD_INPUT)
    assert sentence == "model 'simple' serves no variant 'larg'; did you mean 'large'?"
    sentence = refusal(lambda: read({"variant": "fp8"}, TUNED), BAD_INPUT)
    assert sentence == "model 'simple' serves no variant 'fp8'; its variants are 'small', 'large'"
    assert "serves no variant 7" in refusal(lambda: read({"variant": 7}, TUNED), BAD_INPUT)


def test_declared_parameters_come_sorted_with_their_defaults() -> None:
    assert read({"binary_data_output": True}, TUNED) == RequestParameters(None, "", DEFAULTS)
    assert read({"top_k": 1}, TUNED).parameters[3] == ("top_k", 1)
    given = {"top_k": 10, "execute_delay_ms": 2, "prompt": "hi", "exact": True}
    expected = (("exact", True), ("execute_delay_ms", 2.0), ("prompt", "hi"), ("top_k", 10))
    assert read(given, TUNED).parameters == (*expected, DEFAULTS[-1])
    assert type(read(given, TUNED).parameters[1][1]) is float


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"top_k": 0}, "parameter 'top_k' must be at least 1, got 0"),
        ({"top_k": 11}, "parameter 'top_k' must be at most 10, got 11"),
        ({"top_k": 2.0}, "parameter 'top_k' must be of type int, got 2.0"),
        ({"top_k": True}, "parameter 'top_k' must be of type int, got true"),
        ({"execute_delay_ms": 100.5}, "parameter 'execute_delay_ms' must be at most 100, got 100.5"),
        ({"wait_ms": 2501}, "parameter 'wait_ms' must be at most 2500 (50% of limits.stall_s), got 2501"),
        ({"execute_delay_ms": float("nan")}, "parameter 'execute_delay_ms' must be of type float, got nan"),
        ({"prompt": 1}, "parameter 'prompt' must be of type string, got 1"),
        ({"exact": 1}, "parameter 'exact' must be of type bool, got 1"),
        ({"exact": None}, "parameter 'exact' must be of type bool, got null"),
    ],
)
def test_declared_parameters_are_held_to_type_and_range(values: Mapping[str, object], sentence: str) -> None:
    assert refusal(lambda: read(values, TUNED), BAD_INPUT) == sentence


def test_both_wires_carry_parameters_to_the_call() -> None:
    given = {"timeout": 700, "variant": "large", "top_k": 3, "execute_delay_ms": 1.5, "prompt": "p"}
    over_rest = rest.decode(*body(entry("X", "FP32", (1, 1), [1.0]), parameters=given), TUNED, LIMITS)
    request = message(("X", "FP32", (1, 1), [1.0]), parameters={k: parameter(v) for k, v in given.items()})
    for call in (over_rest.call, proto.decode(request, TUNED, LIMITS).call):
        assert (call.timeout_us, call.variant) == (700, "large")
        expected = (("exact", False), ("execute_delay_ms", 1.5), ("prompt", "p"), ("top_k", 3))
        assert call.parameters == (*expected, DEFAULTS[-1])


@pytest.mark.parametrize("kind", [{"int64_param": 9}, {"uint64_param": 9}, {"string_param": "9"}])
def test_a_grpc_timeout_comes_in_three_kinds(kind: Mapping[str, object]) -> None:
    request = simple_message(parameters={"timeout": kind})
    assert proto.decode(request, SIMPLE, LIMITS).call.timeout_us == 9


def test_a_grpc_parameter_without_a_value_reads_as_none() -> None:
    request = simple_message(parameters={"timeout": {}})
    assert "got null" in refusal(lambda: proto.decode(request, SIMPLE, LIMITS), BAD_INPUT)


def test_without_parameters_nothing_is_asked() -> None:
    for call in (
        rest.decode(*simple_body(), SIMPLE, LIMITS).call,
        proto.decode(simple_message(), SIMPLE, LIMITS).call,
    ):
        assert (call.timeout_us, call.variant, call.parameters, call.size) == (None, "", (), 0)


@pytest.mark.parametrize("binary", [True, False])
def test_the_size_hint_is_the_longest_element_in_bytes(binary: bool) -> None:
    values = ["a", "schön", "ab"]
    text, json_length = body(entry("TEXT", "BYTES", (3, 1), values, binary=binary))
    assert rest.decode(text, json_length, TEXT, LIMITS).call.size == 6
    assert rest.decode(text, json_length, TEXT, LIMITS).call.size == 6  # by the known header
    for typed in (True, False):
        request = message(("TEXT", "BYTES", (3, 1), values), typed=typed)
        assert proto.decode(request, TEXT, LIMITS).call.size == 6


def test_the_size_hint_reads_its_own_input_and_of_numbers_a_rows_bytes() -> None:
    inputs = (
        TensorSpec("A", "BYTES", (-1, 1)),
        TensorSpec("B", "BYTES", (-1, 1)),
        TensorSpec("N", "FP32", (-1, 3)),
    )
    request = body(
        entry("A", "BYTES", (2, 1), ["four", ""]),
        entry("B", "BYTES", (2, 1), ["eleven more", ""]),
        entry("N", "FP32", (2, 3), [0.0] * 6),
    )
    for name, size in (("A", 4), ("B", 11), ("N", 12)):
        served = model(*inputs, size_hint=SizeHint(name, (8, 16)))
        assert rest.decode(*request, served, LIMITS).call.size == size


NOTHING = {
    "sequence_id": 0,
    "sequence_start": False,
    "sequence_end": False,
    "priority": 0,
    "triton_enable_empty_final_response": False,
}
"""What Triton's clients say where they ask for none of it."""


def both(parameters: Mapping[str, object]) -> tuple[RequestParameters, ...]:
    """What a request with these parameters comes to, over REST and over gRPC."""
    over_rest = rest.decode(*simple_body(parameters=parameters), SIMPLE, LIMITS)
    request = simple_message(parameters={name: parameter(value) for name, value in parameters.items()})
    calls = (over_rest.call, proto.decode(request, SIMPLE, LIMITS).call)
    return tuple(RequestParameters(call.timeout_us, call.variant, call.parameters) for call in calls)


def both_refuse(parameters: Mapping[str, object]) -> str:
    request = simple_message(parameters={name: parameter(value) for name, value in parameters.items()})
    sentences = {
        refusal(lambda: rest.decode(*simple_body(parameters=parameters), SIMPLE, LIMITS), BAD_INPUT),
        refusal(lambda: proto.decode(request, SIMPLE, LIMITS), BAD_INPUT),
    }
    (sentence,) = sentences
    return sentence


def test_what_clients_say_to_ask_for_nothing_is_taken_over_both_wires() -> None:
    assert (
        both(NOTHING | {"timeout": 0, "binary_data_output": True}) == (RequestParameters(None, "", ()),) * 2
    )
    assert both({"sequence_id": ""}) == (RequestParameters(None, "", ()),) * 2


def test_perf_analyzer_may_ask_for_an_end_that_only_several_answers_have() -> None:
    asked = {"triton_enable_empty_final_response": True}
    assert both(asked) == (RequestParameters(None, "", ()),) * 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sequence_id", 7),
        ("sequence_id", "seven"),
        ("sequence_start", True),
        ("sequence_end", True),
        ("priority", 1),
        ("headers", "x"),
        ("triton_enable_empty_final_response", "yes"),
        ("triton_anything", False),
    ],
)
def test_what_triton_offers_and_this_gateway_does_not_is_refused_by_name(name: str, value: object) -> None:
    sentence = both_refuse({name: value})
    assert sentence.startswith(f"the request asks for '{name}', which this gateway does not offer")


@pytest.mark.parametrize("value", [0, False, 2.5, "", "hot"])
def test_a_parameter_that_nothing_reads_is_refused_by_name(value: object) -> None:
    sentence = both_refuse({"temperature": value})
    assert sentence == (
        "the request has an unknown parameter 'temperature'; known are "
        "'timeout', 'variant', 'tier', 'accuracy_min', 'binary_data_output'"
    )
    assert both_refuse({"timeuot": value}).endswith("unknown parameter 'timeuot'; did you mean 'timeout'?")


def test_a_parameter_of_the_model_may_be_meant() -> None:
    sentence = refusal(lambda: read({"topk": 1}, TUNED), BAD_INPUT)
    assert sentence == "the request has an unknown parameter 'topk'; did you mean 'top_k'?"


LEVELLED = replace(SIMPLE, spec=replace(SIMPLE.spec, priorities=Priorities(levels=3, default=2)))


@pytest.mark.parametrize(("stated", "level"), [(1, 1), (0, 0), ("3", 3), (900, 900)])
def test_a_priority_reaches_a_model_with_levels(stated: object, level: int) -> None:
    over_rest = rest.decode(*simple_body(parameters={"priority": stated}), LEVELLED, LIMITS)
    request = simple_message(parameters={"priority": parameter(stated)})
    over_rpc = proto.decode(request, LEVELLED, LIMITS)
    assert over_rest.call.priority == over_rpc.call.priority == level
    assert read({}, LEVELLED).priority == 0


@pytest.mark.parametrize("stated", [-1, 1.5, True, "high", "-1", "9" * 30])
def test_what_is_no_level_is_refused(stated: object) -> None:
    sentence = refusal(lambda: read({"priority": stated}, LEVELLED), BAD_INPUT)
    assert sentence.startswith("'priority' must be a whole number of 0 or more, got ")
