"""Metrics of what runs, what is ready, whether the settings are in force and how busy slices are."""

import platform
from importlib.metadata import version

import pytest

from router.observing.telemetry import ConditionPresent, Present, Telemetry
from serving.compiled import is_compiled
from serving.scheduler.commands import RunBatch
from tests.builders import model_spec, served
from tests.router.happenings import key, samples, text


def new(condition: ConditionPresent | None = None) -> Telemetry:
    telemetry = Telemetry([served(model_spec("a")), served(model_spec("b"))], slices=["cpu0", "cpu1"])
    if condition is not None:
        telemetry.read_present = lambda: Present(condition=condition)
    return telemetry


def ran(telemetry: Telemetry, model: str, slice_name: str, compute_us: int) -> None:
    batch = RunBatch(1, slice_name, [], 1)
    batch.model, batch.variant = model, "cnn"
    telemetry.batch_done(batch, compute_us, compute_us + 300)


def test_one_sample_says_what_runs() -> None:
    decisions = "compiled" if is_compiled() else "interpreted"
    labels = {"version": version("penstock"), "python": platform.python_version(), "decisions": decisions}
    found = {name: value for name, value in samples(new()).items() if name[0] == "penstock_build_info"}
    assert found == {key("penstock_build_info", **labels): 1}


def test_deaths_are_counted_and_own_processes_are_told() -> None:
    found = samples(new(ConditionPresent(isolation={"a": (4, True), "b": (0, False)})))
    assert [found[key("penstock_model_worker_deaths_total", model=name)] for name in "ab"] == [4, 0]
    assert [found[key("penstock_model_isolated", model=name)] for name in "ab"] == [1, 0]


def test_models_and_variants_are_ready_or_not() -> None:
    found = samples(
        new(
            ConditionPresent(
                ready={"a": True, "b": False},
                variants={("a", "cnn"): True, ("a", "mlp"): False},
            )
        )
    )
    assert [found[key("penstock_model_ready", model=name)] for name in "ab"] == [1, 0]
    assert found[key("penstock_variant_ready", model="a", variant="cnn")] == 1
    assert found[key("penstock_variant_ready", model="a", variant="mlp")] == 0


@pytest.mark.parametrize("successful", [True, False])
def test_the_latest_reload_and_the_latest_that_succeeded(successful: bool) -> None:
    found = samples(new(ConditionPresent(reloaded=(successful, 1_790_000_000.25))))
    assert found[key("penstock_config_last_reload_successful")] == successful
    assert found[key("penstock_config_last_reload_success_timestamp_seconds")] == 1_790_000_000.25


def test_edges_are_up_or_not_and_count_their_restarts() -> None:
    found = samples(new(ConditionPresent(edges={"rest": (True, 0), "grpc": (False, 3)})))
    name = "penstock_edge_restarts_total"
    assert [found[key("penstock_edge_up", edge=each)] for each in ("rest", "grpc")] == [1, 0]
    assert [found[key(name, edge=each)] for each in ("rest", "grpc")] == [0, 3]


def test_what_batches_computed_adds_up_by_slice_from_zero() -> None:
    telemetry = new()
    name = "penstock_slice_busy_seconds_total"
    found = samples(telemetry)
    assert [found[key(name, slice=each)] for each in ("cpu0", "cpu1")] == [0, 0]
    ran(telemetry, "a", "cpu0", 1_500_000)
    ran(telemetry, "b", "cpu0", 250_000)
    ran(telemetry, "b", "cpu1", 40)
    found = samples(telemetry)
    assert [found[key(name, slice=each)] for each in ("cpu0", "cpu1")] == [1.75, pytest.approx(40e-6)]


def test_a_slice_that_comes_later_counts_from_zero_and_one_that_went_keeps_its_time() -> None:
    telemetry = new()
    ran(telemetry, "a", "cpu0", 1_000_000)
    telemetry.slices_held({"cpu2": 0.0}, 0)
    found = samples(telemetry)
    name = "penstock_slice_busy_seconds_total"
    assert found[key(name, slice="cpu2")] == 0
    assert found[key(name, slice="cpu0")] == 1


def test_the_names_of_triton_can_be_left_out() -> None:
    telemetry = new()
    assert "nv_inference_count{" in text(telemetry)
    telemetry.triton_names = False
    assert "nv_" not in text(telemetry)
    assert "penstock_requests_total" in text(telemetry)


def test_what_clients_make_the_gateway_hold_is_there_by_kind() -> None:
    found = samples(new(ConditionPresent(held={"uploads": 5, "calls": 7, "answers": 0}, given_up=3)))
    held = [found[key("penstock_held_bytes", of=of)] for of in ("uploads", "calls", "answers")]
    assert (held, found[key("penstock_held_given_up_total")]) == ([5, 7, 0], 3)
    found = samples(new(ConditionPresent(held_limit=900, paused=4)))
    assert (found[key("penstock_held_limit_bytes")], found[key("penstock_held_paused_total")]) == (900, 4)


def test_connections_are_there_by_edge_and_place_with_those_that_were_turned_out() -> None:
    places = {("rest", "regular"): 7, ("rest", "reserved"): 1, ("metrics", "regular"): 2}
    found = samples(new(ConditionPresent(connections=places, turned_out={"rest": (5, 6)})))
    for (edge, place), count in places.items():
        assert found[key("penstock_connections", edge=edge, place=place)] == count
    assert found[key("penstock_connections_pushed_out_total", edge="rest")] == 5
    assert found[key("penstock_connections_refused_total", edge="rest")] == 6
