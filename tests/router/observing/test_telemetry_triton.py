"""The nv_inference_* names mean here what they mean in Triton."""

import re
from collections.abc import Collection, Sequence

import pytest

from router.observing.telemetry import Present, Telemetry
from router.observing.telemetry.triton import FAILURES
from serving.policy.device_health import GpuReading
from serving.values.vocabulary import ALL_OUTCOMES, COMPLETED, Kind
from tests.builders import model_spec, served
from tests.router.happenings import end, reply, request, run, text


def aliases(telemetry: Telemetry) -> dict[str, int]:
    """The samples of model a, as they stand in the text: the parser renames counters without _total."""
    pattern = r'^(nv_\w+)\{model="a",version="1"(?:,reason="(\w+)")?\} (\d+)$'
    return {
        " ".join(filter(None, (name, reason))): int(value)
        for name, reason, value in re.findall(pattern, text(telemetry), re.MULTILINE)
    }


def new() -> Telemetry:
    return Telemetry([served(model_spec("a")), served(model_spec("b"))], ["gold"])


def test_every_alias_exists_from_the_start() -> None:
    failures = [f"nv_inference_request_failure {reason}" for reason in FAILURES]
    assert aliases(new()) == dict.fromkeys(
        [
            "nv_inference_request_success",
            "nv_inference_count",
            "nv_inference_exec_count",
            "nv_inference_request_duration_us",
            "nv_inference_queue_duration_us",
            "nv_inference_compute_input_duration_us",
            "nv_inference_compute_infer_duration_us",
            "nv_inference_compute_output_duration_us",
            "nv_inference_pending_request_count",
            *failures,
        ],
        0,
    )


def test_times_are_sums_over_successful_requests() -> None:
    telemetry = new()
    for tenant in ("gold", "default"):
        telemetry.request_done(request("a", 2, tenant), reply(COMPLETED, 1_000, 300, 2_000), 3_500, True)
    for outcome in ALL_OUTCOMES:
        if outcome is not COMPLETED:
            telemetry.request_done(request("a"), reply(outcome, 7, 7, 7), 7, False)
    run(telemetry, "a", "x", 4)
    found = aliases(telemetry)
    assert found["nv_inference_request_success"] == 2
    assert found["nv_inference_request_duration_us"] == 7_000
    assert found["nv_inference_queue_duration_us"] == 2_600  # until the dispatch, whatever it waited for
    assert found["nv_inference_compute_infer_duration_us"] == 4_000  # each of the two was in a run of 2000 us
    assert (found["nv_inference_count"], found["nv_inference_exec_count"]) == (4, 1)


@pytest.mark.parametrize("outcome", [each for each in ALL_OUTCOMES if each is not COMPLETED])
def test_every_other_outcome_is_one_failure(outcome: object) -> None:
    telemetry = new()
    (ended,) = (each for each in ALL_OUTCOMES if each is outcome)
    end(telemetry, request("a"), ended)
    found = aliases(telemetry)
    failures = {reason: found[f"nv_inference_request_failure {reason}"] for reason in FAILURES}
    assert sum(failures.values()) == 1
    assert (failures["CANCELED"] == 1) == (ended.kind is Kind.CANCELLED)
    assert (failures["BACKEND"] == 1) == (ended.kind is Kind.FAILED)
    assert failures["REJECTED"] or ended.kind is not Kind.SHED


def test_pending_requests_wait_for_a_batch() -> None:
    telemetry = new()
    telemetry.read_present = lambda: Present(queued={"a": (9, 4)})
    assert aliases(telemetry)["nv_inference_pending_request_count"] == 4


def gpu_samples(gpus: Sequence[GpuReading], cordoned: Collection[str] = ()) -> dict[str, float]:
    telemetry = new()
    telemetry.read_present = lambda: Present(gpus=gpus, cordoned=cordoned)
    pattern = r'^((?:nv|penstock)_\w+)\{gpu_uuid="GPU-1"\} ([\d.]+)$'
    return {name: float(value) for name, value in re.findall(pattern, text(telemetry), re.MULTILINE)}


def test_gpus_are_named_and_measured_as_triton_does() -> None:
    gpu = GpuReading(
        "GPU-1", 1, memory_bytes=1000, memory_used_bytes=250, used_percent=40, power_w=76.5,
        power_limit_w=700.0, energy_j=5.0, temperature_c=41, throttled=("heat",),
    )  # fmt: skip
    assert gpu_samples([gpu], {"GPU-1"}) == {
        "nv_gpu_utilization": 0.4,
        "nv_gpu_memory_total_bytes": 1000,
        "nv_gpu_memory_used_bytes": 250,
        "nv_gpu_power_usage": 76.5,
        "nv_gpu_power_limit": 700,
        "nv_energy_consumption": 5,
        "penstock_gpu_usable": 0,
        "penstock_gpu_throttled": 1,
        "penstock_gpu_temperature_celsius": 41,
    }


def test_what_a_driver_does_not_tell_has_no_sample_and_without_gpus_there_is_no_metric() -> None:
    assert gpu_samples([GpuReading("GPU-1", 1)]) == {"penstock_gpu_usable": 1, "penstock_gpu_throttled": 0}
    assert "gpu" not in text(new())
