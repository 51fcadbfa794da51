"""What needs a look first: broken promises with their main reason, what is away, what waits for a person."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from router.observing.status import ModelStatus, SliceStatus, Status
from router.observing.status.attention import BAD, DOUBTFUL, KNOWN, RANKS, attention
from router.observing.telemetry import Telemetry
from tests.router.observing.test_status import ask, new, status

STEADY = {"state": "steady", "step": 1, "steps": 1, "reasons": [], "waiting": [], "refused": []}


def calm(telemetry: Telemetry | None = None) -> Status:
    """A status in which nothing needs a look."""
    found = status(telemetry or new(), 60.0)
    found["ready"] = True
    for model in found["models"]:
        model["ready"], model["objective"] = True, 0.99
        model["replicas"] = [each for each in model["replicas"] if each["state"] == "ready"]
    for one in found["slices"]:
        one["state"] = "ready"
    return found


def texts(found: Status, before: Mapping[str, Mapping[str, int]] | None = None) -> list[tuple[str, str]]:
    return [(each["rank"], each["text"]) for each in attention(found, before)]


def test_nothing_needs_a_look_where_all_is_there() -> None:
    assert attention(calm()) == []


def test_a_burning_promise_says_its_share_and_the_ending_of_most_misses() -> None:
    telemetry = new()
    ask(telemetry, 90)
    ask(telemetry, 10, latency_us=90_000)
    (rank, text), *rest = texts(calm(telemetry))
    assert rest == []
    assert rank == BAD
    assert text == (
        "digits answers 90.0 % in time (5m), 99 % within 50 ms are promised; "
        "most of the others were answered, but too late"
    )


def test_the_reason_is_of_the_latest_misses_alone() -> None:
    telemetry = new()
    ask(telemetry, 90)
    ask(telemetry, 10, latency_us=90_000)
    assert texts(calm(telemetry), {"digits": {"late": 10}})[0][1].endswith("are promised")


def test_a_promise_within_its_budget_needs_no_look() -> None:
    telemetry = new()
    ask(telemetry, 199)
    ask(telemetry, 1, latency_us=90_000)
    assert texts(calm(telemetry)) == []


def model(**changed: Any) -> Status:
    found = calm()
    found["models"][0] = cast(ModelStatus, {**found["models"][0], **changed})
    return found


def a_slice(**changed: Any) -> Status:
    found = calm()
    found["slices"][0] = cast(SliceStatus, {**found["slices"][0], **changed})
    return found


def gateway(**changed: Any) -> Status:
    return cast(Status, {**calm(), **changed})


NOT_READY = "the gateway is not ready: a model has no replica, or it is shutting down"
FULL = "GPU H100 GPU-1: 99 % of its memory is used"
EDGE = {"name": "grpc", "listening": True, "restarts": 3}
GPU = {
    "uuid": "GPU-1", "name": "H100", "slices": {}, "memory_bytes": 100, "memory_used_bytes": 50,
    "used_percent": 10, "temperature_c": 50, "power_w": 100.0, "state": "ok", "reason": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "rank", "text"),
    [
        (model(ready=False, replicas=[]), BAD, "digits has no replica that is ready"),
        (a_slice(state="waiting to restart"), DOUBTFUL, "slice cpu0 is waiting to restart"),
        (a_slice(notice="it goes at 12:00"), DOUBTFUL, "slice cpu0: it goes at 12:00"),
        (a_slice(rehearsed=True), KNOWN, "rehearsal: answers of 1 slices are made up"),
        (gateway(ready=False), BAD, NOT_READY),
        (gateway(move={**STEADY, "refused": ["line 3"]}), DOUBTFUL, "an edit is not in force: line 3"),
        (gateway(move={**STEADY, "state": "moving"}), KNOWN, "moving: step 1 of 1"),
        (gateway(edges=[{**EDGE, "listening": False}]), BAD, "the grpc port is closed"),
        (gateway(gpus=[{**GPU, "state": "lost", "reason": "XID 79"}]), BAD, "GPU H100 GPU-1 is lost: XID 79"),
        (gateway(gpus=[{**GPU, "memory_used_bytes": 99}]), DOUBTFUL, FULL),
    ],
)  # fmt: skip
def test_each_trouble_is_one_sentence(found: Status, rank: str, text: str) -> None:
    assert texts(found) == [(rank, text)]


def test_the_worst_comes_first() -> None:
    found = gateway(
        ready=False, move={**STEADY, "state": "moving"}, slices=[{**calm()["slices"][0], "state": "lost"}]
    )
    ranks = [rank for rank, _ in texts(found)]
    assert ranks == sorted(ranks, key=RANKS.index)
    assert len(set(ranks)) == 3


def test_a_stale_profile_names_the_variant_that_is_farthest_from_it() -> None:
    odd = [
        {**calm()["models"][0]["replicas"][0], "profile": "stale", "profile_ratio": ratio, "slice": name}
        for ratio, name in ((1.2, "cpu0"), (0.5, "cpu1"))
    ]
    (found,) = attention(model(replicas=odd))
    assert (found["rank"], found["slice"], found["model"]) == (KNOWN, "cpu1", "digits")
    assert "0.50 times" in found["text"]
