"""A profile that is no longer right is measured anew: alone on its device, while that idles, if it may be."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from serving.control.commands import Command, KeepProfile, Measure, Route
from serving.control.control import Control
from serving.control.measuring import REFINE_IDLE_TICKS, RENEW_EVERY_US
from serving.control.state.replicas import ReplicaRecord
from serving.control.state.rules import Rules
from serving.policy.estimates.freshness import Freshness
from serving.profile.derived.latency import Latency
from serving.profile.sweeping.sweep import REFINED_COUNT
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits, ServedModel
from serving.values.vocabulary import NEVER_US
from tests.builders import KIND, model_spec, profile, served
from tests.control.test_control import bring_up, only

ROW_US = 130  # 100 is what is profiled
STALE = Freshness.STALE


def house(
    slices: Sequence[str] = ("s",), remeasure: bool = True, devices: Sequence[str] = ("cpu", "cpu")
) -> Control:
    """The model "m" on all slices; its profile is known as well as can be, and its replicas are ready."""
    base = served(model_spec(batch_max=4))
    model = ServedModel(base.spec, base.slo_us, base.variants, tuple(slices))
    specs = [SliceSpec(name, (), device=device) for name, device in zip(slices, devices, strict=False)]
    measured = profile(rows=4, count=REFINED_COUNT)
    known = {(each.name, "m", "a"): replace(measured, share=each.share) for each in specs}
    control = Control(specs, [model], known, Limits(), lambda _: KIND, Rules(remeasure))
    bring_up(control)
    refine(control, 100)
    return control


def idle(control: Control, now_us: int, busy: Sequence[str] = ()) -> list[Command]:
    """What is asked for once slices have been idle for long enough."""
    return [
        command
        for _ in range(REFINE_IDLE_TICKS)
        for command in control.tick(now_us, [name for name in control.slices if name not in busy])
    ]


def refine(control: Control, row_us: int, now_us: int = 0) -> list[Command]:
    """Let it measure on idle slices until nothing is left; rows take `row_us`. All that it asked for."""
    asked: list[Command] = []
    while only(commands := idle(control, now_us), Measure):
        asked += commands
        assert len(asked) < 1000
        for measure in only(commands, Measure):
            wanted = measure.measurement
            took = [row_us * wanted.rows] * wanted.repeats
            asked += control.measured(measure.slice, (wanted.rows, wanted.size), took, now_us)
    return asked


def replica(control: Control, slice_name: str = "s") -> ReplicaRecord:
    return next(iter(control.slices[slice_name].replicas.values()))


def flag(control: Control, freshness: Freshness, now_us: int = 0, slice_name: str = "s") -> None:
    assert control.profile_flagged(slice_name, replica(control, slice_name).id, freshness, now_us) == []


def test_a_stale_profile_is_measured_anew_on_an_idle_slice_stored_and_starts_anew() -> None:
    control = house()
    assert control.wake_us == NEVER_US
    flag(control, STALE, 5)
    assert control.wake_us < NEVER_US
    asked = refine(control, ROW_US, 10)
    assert {measure.measurement.rows for measure in only(asked, Measure)} == {1, 2, 3, 4}
    latency = Latency(only(asked, Route)[-1].profile)
    assert [latency.predict_us(rows) for rows in (1, 2, 3, 4)] == [130, 260, 390, 520]
    assert only(asked, KeepProfile)[-1].profile == only(asked, Route)[-1].profile
    assert replica(control).freshness is Freshness.FRESH
    assert min(point.count for point in replica(control).sweep.points()) >= REFINED_COUNT


def test_what_is_routed_meanwhile_is_of_one_level_and_is_not_stored() -> None:
    control = house()
    flag(control, STALE)
    asked: list[Command] = []
    (measure,) = only(idle(control, 0), Measure)
    while replica(control).sweep.renewing:
        assert not only(asked, KeepProfile)
        wanted = measure.measurement
        took = [ROW_US * wanted.rows] * wanted.repeats
        asked += control.measured("s", (wanted.rows, wanted.size), took, 0)
        (measure,) = only(idle(control, 0), Measure)
    assert len(only(asked, KeepProfile)) == 1
    routed = only(asked, Route)
    for route in routed:
        ratios = [point.p50_us / (100 * point.rows) for point in route.profile.points]
        assert ratios == pytest.approx([ratios[0]] * len(ratios))
    assert len(routed) > 2


@pytest.mark.parametrize("freshness", [Freshness.INTERFERED, Freshness.FRESH])
def test_where_the_neighbours_are_to_blame_nothing_is_measured(freshness: Freshness) -> None:
    control = house()
    flag(control, freshness)
    assert control.wake_us == NEVER_US
    assert idle(control, 10**9) == []


def test_where_it_is_forbidden_nothing_is_measured() -> None:
    control = house(remeasure=False)
    flag(control, STALE)
    assert control.wake_us == NEVER_US
    assert idle(control, 10**9) == []


@pytest.mark.parametrize("busy", ["s", "t"])
def test_while_any_slice_of_the_device_has_traffic_nothing_is_measured(busy: str) -> None:
    control = house("st")
    flag(control, STALE)
    for second in range(1, 20):
        assert not only(idle(control, second * 10**6, busy=[busy]), Measure)
    assert [measure.slice for measure in only(idle(control, 10**8), Measure)] == ["s"]


def test_traffic_on_another_device_disturbs_no_measurement() -> None:
    control = house("st", devices=("cuda:0", "cuda:1"))
    flag(control, STALE)
    assert only(idle(control, 10**6, busy=["t"]), Measure)


def test_one_slice_of_a_device_is_measured_at_a_time() -> None:
    control = house("st")
    flag(control, STALE)
    flag(control, STALE, slice_name="t")
    assert len(only(idle(control, 0), Measure)) == 1
    assert not only(idle(control, 1), Measure)


def test_one_that_stays_stale_whatever_is_measured_is_measured_once_an_hour() -> None:
    control = house()
    flag(control, STALE)
    refine(control, 100, 1000)
    flag(control, STALE, 2000)
    assert control.wake_us == 1000 + RENEW_EVERY_US
    assert idle(control, RENEW_EVERY_US) == []
    assert only(idle(control, 1000 + RENEW_EVERY_US), Measure)


def test_one_that_turns_fresh_half_way_is_measured_to_the_end() -> None:
    control = house()
    flag(control, STALE)
    (measure,) = only(idle(control, 0), Measure)
    control.measured("s", (measure.measurement.rows, 0), [ROW_US] * measure.measurement.repeats, 0)
    flag(control, Freshness.FRESH)
    refine(control, ROW_US)
    assert not replica(control).sweep.renewing
    assert {point.p50_us / point.rows for point in replica(control).sweep.points()} == {ROW_US}


def test_a_batch_that_takes_longer_than_an_idle_slice_may_be_kept_is_scaled_like_the_rest() -> None:
    control = house()
    limit_us = 25_000  # half the SLO
    flag(control, STALE)
    asked = refine(control, 10_000)
    assert max(measure.measurement.rows for measure in only(asked, Measure)) * 10_000 <= 2 * limit_us
    assert not replica(control).sweep.renewing
    latency = Latency(only(asked, Route)[-1].profile)
    assert [latency.predict_us(rows) for rows in (1, 2, 4)] == [10_000, 20_000, 40_000]


def test_a_worker_that_dies_half_way_goes_on_where_it_was() -> None:
    control = house()
    flag(control, STALE)
    assert only(idle(control, 0), Measure)
    control.worker_lost("s", "killed", 1)
    control.tick(control.wake_us, ())
    bring_up(control, 10**6)
    refine(control, ROW_US, 2 * 10**6)
    assert {point.p50_us / point.rows for point in replica(control).sweep.points()} == {ROW_US}
