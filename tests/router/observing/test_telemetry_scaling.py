"""Metrics of replicas and their cost: for people, and for scalers outside."""

from collections.abc import Mapping

import pytest

from router.observing.telemetry import Present, ScalePresent, Telemetry, demand
from serving.scheduler.commands import RunBatch
from serving.values.vocabulary import COMPLETED, OVERLOAD
from tests.builders import model_spec, served
from tests.router.happenings import end, key, request, samples

MINUTE_US = 60_000_000


def new(scaling: ScalePresent, now_us: int = 5 * MINUTE_US) -> Telemetry:
    telemetry = Telemetry([served(model_spec("a")), served(model_spec("b"))])
    telemetry.read_present = lambda: Present(now_us=now_us, scaling=scaling)
    return telemetry


def ran(telemetry: Telemetry, model: str, slice_name: str, compute_us: int) -> None:
    batch = RunBatch(1, slice_name, [], 1)
    batch.model, batch.variant = model, "cnn"
    telemetry.batch_done(batch, compute_us, compute_us)


def named(found: Mapping[tuple[str, frozenset[tuple[str, str]]], float], name: str) -> list[float]:
    return [value for (each, _), value in found.items() if each == name]


def test_pressure_and_desired_replicas_are_told_of_each_model() -> None:
    found = samples(new(ScalePresent(demands={"a": (1.25, 3), "b": (0.0, 0)})))
    assert found[key("penstock_slo_pressure", model="a")] == 1.25
    assert found[key("penstock_desired_replicas", model="a")] == 3
    assert found[key("penstock_slo_pressure", model="b")] == 0
    assert found[key("penstock_desired_replicas", model="b")] == 0


@pytest.mark.parametrize(
    ("load", "slices", "pressure", "desired"),
    [(0.0, 2, 0.0, 1), (0.8, 3, 1.0, 3), (0.81, 3, 1.0125, 4), (4.0, 2, 5.0, 10), (0.2, 1, 0.25, 1)],
)
def test_slices_are_enough_up_to_the_share_of_their_time_that_is_planned_with(
    load: float, slices: int, pressure: float, desired: int
) -> None:
    assert demand(load, slices) == pytest.approx((pressure, desired))


def test_changes_are_counted_by_their_direction() -> None:
    found = samples(new(ScalePresent(changes={"a": (3, 1)})))
    assert found[key("penstock_scaling_changes_total", model="a", direction="up")] == 3
    assert found[key("penstock_scaling_changes_total", model="a", direction="down")] == 1


def test_held_slices_are_told_by_kind_and_whether_they_are_spot() -> None:
    found = samples(new(ScalePresent(held={("cpu-x", True): 2, ("cpu-x", False): 1})))
    assert found[key("penstock_held_slices", kind="cpu-x", spot="true")] == 2
    assert found[key("penstock_held_slices", kind="cpu-x", spot="false")] == 1


def test_costs_are_of_what_is_held_and_add_up_over_models() -> None:
    telemetry = new(ScalePresent(resident={"s": ("a", "b"), "t": ("b",)}, cost_max=9.5))
    telemetry.slices_held({"s": 4.0, "t": 1.0}, 0)
    ran(telemetry, "a", "s", 3_000)
    ran(telemetry, "b", "s", 1_000)
    found = samples(telemetry)
    assert found[key("penstock_cost_per_hour")] == 5.0
    assert found[key("penstock_cost_total")] == pytest.approx(5.0 * 5 / 60)
    assert found[key("penstock_model_cost_per_hour", model="a")] == 3.0
    assert found[key("penstock_model_cost_per_hour", model="b")] == 2.0
    assert found[key("penstock_cost_ceiling_per_hour")] == 9.5


def test_a_million_requests_in_time_cost_what_the_last_minutes_cost_over_those_that_were() -> None:
    telemetry = new(ScalePresent(resident={"s": ("a",)}))
    telemetry.slices_held({"s": 3.6}, 0)
    ran(telemetry, "a", "s", 1_000)
    for outcome in (COMPLETED, COMPLETED, COMPLETED, OVERLOAD):
        end(telemetry, request("a", arrived_us=MINUTE_US), outcome)
    found = samples(telemetry)
    assert found[key("penstock_cost_per_million_good", model="a")] == pytest.approx(3.6 / 12 / 3 * 1e6)
    assert key("penstock_cost_per_million_good", model="b") not in found


def test_without_good_answers_or_a_ceiling_there_is_no_sample_of_them() -> None:
    telemetry = new(ScalePresent(resident={"s": ("a",)}))
    telemetry.slices_held({"s": 3.6}, 0)
    end(telemetry, request("a", arrived_us=MINUTE_US), OVERLOAD)
    found = samples(telemetry)
    assert named(found, "penstock_cost_per_million_good") == []
    assert named(found, "penstock_cost_ceiling_per_hour") == []
