"""Models come, change and go: counters never go back, gauges are of what is served."""

import pytest

from router.observing.telemetry import Present, Telemetry
from router.observing.telemetry.observer import TENANT_DURATIONS_MAX
from serving.values.specs import DEFAULT_TENANT, ServedModel
from serving.values.vocabulary import COMPLETED, UNKNOWN_MODEL
from tests.builders import model_spec, served
from tests.router.happenings import end, key, request, samples, text

GAUGES = tuple(
    f"penstock_slo_{name}" for name in ("objective_ratio", "latency_seconds", "attainment_ratio", "burn_rate")
)


def model(name: str, slo_ms: int = 50) -> ServedModel:
    return served(model_spec(name, slo_ms=slo_ms))


def test_a_model_that_comes_later_is_counted_from_then_on() -> None:
    telemetry = Telemetry([model("a")])
    telemetry.serve(model("b", slo_ms=70))
    end(telemetry, request("b"), COMPLETED)
    found = samples(telemetry)
    assert found[key("penstock_rows_total", model="b", tenant=DEFAULT_TENANT)] == 1
    assert found[key("penstock_slo_latency_seconds", model="b")] == 0.07
    assert [name for name, _ in telemetry.snapshot(0)] == ["a", "b"]
    assert telemetry.statistics("b")["inference_stats"]["success"]["count"] == 1


def test_a_changed_slo_is_shown_and_counts_go_on() -> None:
    telemetry = Telemetry([model("a")])
    end(telemetry, request("a"), COMPLETED)
    telemetry.serve(model("a", slo_ms=90))
    end(telemetry, request("a"), COMPLETED)
    found = samples(telemetry)
    assert found[key("penstock_slo_latency_seconds", model="a")] == 0.09
    assert found[key("penstock_rows_total", model="a", tenant=DEFAULT_TENANT)] == 2


def test_a_model_that_has_gone_keeps_its_counts_and_loses_its_gauges() -> None:
    telemetry = Telemetry([model("a"), model("b")])
    telemetry.read_present = lambda: Present(now_us=1_000_000, queued={"b": (0, 0)})
    for name in ("a", "b"):
        end(telemetry, request(name), COMPLETED)
    before = samples(telemetry)
    telemetry.retire("a")
    end(telemetry, request("a"), COMPLETED)  # it was accepted before
    after = samples(telemetry)
    gone = {series for series in before if series not in after}
    assert {name for name, _ in gone} == {*GAUGES, "nv_inference_pending_request_count"}
    assert {dict(labels)["model"] for _, labels in gone} == {"a"}
    assert after[key("penstock_rows_total", model="a", tenant=DEFAULT_TENANT)] == 2
    assert 'nv_inference_pending_request_count{model="b",version="1"}' in text(telemetry)
    assert 'nv_inference_pending_request_count{model="a",version="1"}' not in text(telemetry)
    assert 'nv_inference_request_success{model="a",version="1"} 2' in text(telemetry)
    telemetry.serve(model("a"))
    assert set(before) <= set(samples(telemetry))


def test_a_model_may_come_while_the_counters_are_read() -> None:
    telemetry = Telemetry([model("a"), model("b")])
    reading = telemetry.snapshot(0)
    assert next(reading)[0] == "a"
    telemetry.serve(model("c"))
    assert [name for name, _ in reading] == ["b"]
    blocks = telemetry.steps()
    next(blocks)
    telemetry.serve(model("d"))
    assert b"".join(blocks)


def test_a_model_called_as_those_that_are_unknown_goes_on_with_their_counts() -> None:
    telemetry = Telemetry([])
    telemetry.refused("nobody", DEFAULT_TENANT, UNKNOWN_MODEL)
    telemetry.serve(model("unknown"))
    telemetry.refused("nobody", DEFAULT_TENANT, UNKNOWN_MODEL)
    ended = {"outcome": "rejected", "reason": "unknown_model"}
    assert (
        samples(telemetry)[key("penstock_requests_total", model="unknown", tenant=DEFAULT_TENANT, **ended)]
        == 2
    )


@pytest.mark.parametrize(
    ("tenants", "labelled"), [(TENANT_DURATIONS_MAX // 2, True), (TENANT_DURATIONS_MAX - 1, False)]
)
def test_histograms_by_tenant_stay_within_their_bound_as_models_come(tenants: int, labelled: bool) -> None:
    names = [f"t{number}" for number in range(tenants - 1)]
    telemetry = Telemetry([model("a")], names)
    telemetry.serve(model("b"))
    end(telemetry, request("b", 1, "t0"), COMPLETED)
    assert ('_duration_seconds_count{model="b",tenant="t0"}' in text(telemetry)) is labelled


def test_loads_are_counted_by_model() -> None:
    telemetry = Telemetry([model("a")])
    telemetry.replica_loaded("a", 1_500_000)
    telemetry.replica_loaded("a", 500_000)
    telemetry.replica_loaded("a", 9_000_000, kept=True)
    telemetry.replica_failed("a")
    telemetry.replica_unloaded("a")
    exported = samples(telemetry)
    assert exported[key("penstock_model_loads_total", model="a")] == 2
    assert exported[key("penstock_model_load_seconds_total", model="a")] == 2
    assert exported[key("penstock_model_load_failures_total", model="a")] == 1
    assert exported[key("penstock_model_unloads_total", model="a")] == 1
    assert exported[key("penstock_model_takeovers_total", model="a")] == 1
    assert exported[key("penstock_drift_findings")] == 0
