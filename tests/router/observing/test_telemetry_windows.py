"""Windows: totals over a sliding past are what one would count from time stamps, to one interval."""

from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.observing.telemetry import Present, Telemetry
from router.observing.telemetry.counting.windows import INTERVALS, WINDOWS_S, burn_rate
from serving.values.objectives import Needs
from serving.values.specs import DEFAULT_TENANT
from serving.values.vocabulary import COMPLETED, OVERLOAD
from tests.builders import model_spec, served
from tests.router.happenings import Key, end, key, request, samples

SECOND_US = 1_000_000
GRAINS_US = [seconds * SECOND_US // INTERVALS for seconds in WINDOWS_S.values()]

# gaps around whole intervals and whole windows of every size, where an event could fall on the wrong side
gaps_us = st.one_of(
    st.integers(0, 3),
    st.builds(
        lambda unit, count, off: max(0, unit * count + off),
        st.sampled_from(GRAINS_US),
        st.sampled_from([1, 2, INTERVALS - 1, INTERVALS, INTERVALS + 1, 3 * INTERVALS]),
        st.integers(-1, 1),
    ),
)
starts_us = st.builds(lambda count, off: max(0, GRAINS_US[-1] * count + off), *[st.integers(-1, 50)] * 2)
events = st.lists(st.tuples(gaps_us, st.booleans()), max_size=40)


def new() -> Telemetry:
    return Telemetry([served(model_spec("a"))])


@pytest.mark.slow
@given(starts_us, events, gaps_us)
@example(720 * SECOND_US, [(0, True), (GRAINS_US[0], True), (1, True)], 300 * SECOND_US - 1)
def test_a_window_holds_the_events_of_its_intervals_and_no_others(
    start_us: int, happening: list[tuple[int, bool]], rest_us: int
) -> None:
    telemetry, now_us, past = new(), start_us, []
    for gap_us, is_good in happening:
        now_us += gap_us
        end(telemetry, request("a", arrived_us=now_us), COMPLETED if is_good else OVERLOAD, 0)
        past.append((now_us, is_good))
    now_us += rest_us
    found = telemetry._ledger.models["a"].flow(DEFAULT_TENANT).window_counts(now_us)
    for grain_us, counts in zip(GRAINS_US, found, strict=True):
        since_us = (now_us // grain_us - INTERVALS) * grain_us
        held = [good for at_us, good in past if at_us >= since_us]
        assert counts == (len(held), sum(held))


def test_each_interval_is_a_whole_number_of_those_of_the_window_before() -> None:
    assert [coarse % fine for fine, coarse in pairwise(GRAINS_US)] == [0, 0, 0]


def test_a_burn_of_one_uses_the_budget_up_exactly() -> None:
    assert burn_rate(1000, 990, 0.99) == pytest.approx(1)
    assert burn_rate(10, 10, 0.99) == 0
    assert burn_rate(10, 0, 0.99) == pytest.approx(100)
    assert burn_rate(100, 95, 0.9) == pytest.approx(0.5)


def test_who_promises_all_requests_has_no_budget_but_a_burn_that_is_a_number() -> None:
    assert burn_rate(10, 10, 1.0) == 0
    assert 1000 < burn_rate(10, 9, 1.0) < inf


def shares(telemetry: Telemetry, name: str) -> dict[str, float]:
    """A gauge of the one flow, by window."""
    found: dict[Key, float] = dict(samples(telemetry))
    keys = {window: key(name, model="a", tenant="default", window=window) for window in WINDOWS_S}
    return {window: found[where] for window, where in keys.items() if where in found}


def test_attainment_and_burn_are_exported_by_window() -> None:
    telemetry = new()
    hour_us = 3600 * SECOND_US
    for _ in range(3):
        end(telemetry, request("a", arrived_us=hour_us), OVERLOAD)
    end(telemetry, request("a", arrived_us=hour_us), COMPLETED)
    end(telemetry, request("a", arrived_us=2 * hour_us), COMPLETED)
    telemetry.read_present = lambda: Present(2 * hour_us + 60 * SECOND_US)
    attainment = shares(telemetry, "penstock_slo_attainment_ratio")
    assert attainment == {"5m": 1, "30m": 1, "1h": 0.4, "6h": 0.4}  # an hour and one interval at most
    burn = shares(telemetry, "penstock_slo_burn_rate")
    assert burn == {"5m": 0, "30m": 0, "1h": 60, "6h": 60}


def test_a_model_burns_the_budget_of_its_own_percentile() -> None:
    telemetry = new()
    lax = replace(served(model_spec("a")), needs=Needs(percentile=90.0))
    telemetry.serve(lax)
    for count, outcome in ((8, COMPLETED), (2, OVERLOAD)):
        for _ in range(count):
            end(telemetry, request("a", arrived_us=SECOND_US), outcome)
    telemetry.read_present = lambda: Present(2 * SECOND_US)
    assert samples(telemetry)[key("penstock_slo_objective_ratio", model="a")] == 0.9
    assert set(shares(telemetry, "penstock_slo_burn_rate").values()) == {2.0}
    assert dict(telemetry.snapshot(2 * SECOND_US))["a"]["burn"]["1h"] == pytest.approx(2)


def test_a_window_in_which_nothing_was_offered_has_no_sample() -> None:
    telemetry = new()
    end(telemetry, request("a", arrived_us=SECOND_US))
    telemetry.read_present = lambda: Present(2000 * SECOND_US)
    assert list(shares(telemetry, "penstock_slo_burn_rate")) == ["1h", "6h"]
