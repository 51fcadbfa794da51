"""The nv_inference_* names mean here what they mean in Triton."""

import re

import pytest

from router.telemetry import Present, Telemetry
from router.telemetry.triton import FAILURES
from serving.vocabulary import ALL_OUTCOMES, COMPLETED, Kind
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
