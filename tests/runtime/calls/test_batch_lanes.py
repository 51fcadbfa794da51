"""What the gateway makes of parameters that are times: how much longer a batch takes than by default."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.ports import Call
from serving.runtime.calls.batch_lanes import Lanes
from serving.scheduler.waiting.requests import Request
from serving.values.specs import Parameters, ParameterSpec, Priorities, TensorSpec
from serving.values.tensor import ABSENT, Tensor
from tests.builders import model_spec, served

PARAMETERS = (
    ParameterSpec("pause_s", "float", 0.0, 0, 2, "s"),
    ParameterSpec("top_k", "int", 5, 1, 50),
    ParameterSpec("warm_us", "int", 200, 0, None, "us"),
)
DEFAULTS = {each.name: each.default for each in PARAMETERS}
MODEL = served(replace(model_spec("m"), parameters=PARAMETERS), ())


def described(parameters: Parameters) -> Request:
    call = Call(MODEL, [], 1)
    call.parameters = parameters
    return Lanes(MODEL).describe(call, 1, 0, 0)


@pytest.mark.parametrize(
    ("given", "declared_us"),
    [
        ({}, 0),
        ({"top_k": 50}, 0),
        ({"pause_s": 0.25}, 250_000),
        ({"warm_us": 201}, 1),
        ({"pause_s": 0.0000001}, 1),  # never less than it says
        ({"pause_s": 1, "warm_us": 1200, "top_k": 1}, 1_001_000),
        ({"warm_us": 0}, 0),
        ({"pause_s": 0.0001, "warm_us": 0}, 0),
    ],
)
def test_times_add_up_beyond_the_defaults_that_profiles_are_measured_with(
    given: dict[str, float], declared_us: int
) -> None:
    request = described(tuple((DEFAULTS | given).items()))
    assert request.declared_us == declared_us


def test_requests_share_a_batch_only_where_they_leave_out_the_same_inputs() -> None:
    inputs = (TensorSpec("X", "FP32", (-1, 4)), TensorSpec("MASK", "BOOL", (-1, 4), optional=True))
    model = served(replace(model_spec("m"), inputs=inputs), ())
    x, mask = Tensor("X", "FP32", (1, 4), bytes(16)), Tensor("MASK", "BOOL", (1, 4), bytes(4))
    without = Tensor("MASK", ABSENT, (1,), b"")
    lanes = Lanes(model)
    whole, other, lacking = (
        lanes.describe(Call(model, [x, each], 1), 1, 0, 0).lane_key for each in (mask, mask, without)
    )
    assert whole == other != lacking


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(0, 4000)), min_size=2, max_size=2))
def test_what_declares_another_time_shares_no_batch(values: list[tuple[float, int]]) -> None:
    one, other = (
        described(tuple((DEFAULTS | {"pause_s": pause_s, "warm_us": warm_us}).items()))
        for pause_s, warm_us in values
    )
    assert one.declared_us == other.declared_us or one.lane_key != other.lane_key
    assert one.declared_us == other.declared_us or one.kin != other.kin


def test_a_stated_level_is_a_rank_only_where_the_model_has_levels() -> None:
    levelled = replace(MODEL, spec=replace(MODEL.spec, priorities=Priorities(levels=3, default=2)))
    for model, stated, rank in ((levelled, 1, 1), (levelled, 3, -1), (levelled, 0, 0), (MODEL, 1, 0)):
        call = Call(model, [], 1)
        call.priority = stated
        assert Lanes(model).describe(call, 1, 0, 0).rank == rank
