"""The statistics extension of the protocol: counts and nanoseconds since the start, by model.

Names and meanings: Triton's `extension_statistics`, so that tritonclient and perf_analyzer read it.
"""

from collections.abc import Mapping
from typing import TypedDict

from router.observing.telemetry.counting.counts import ModelCounts
from serving.values.versions import ONLY


class Duration(TypedDict):
    """How often, and how long together."""

    count: int
    ns: int


class Compute(TypedDict):
    """The model's run, and what it took to bring its input there and its output back."""

    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


class BatchStatistics(Compute):
    """The batches of `batch_size` rows, from dispatch until they are back."""

    batch_size: int


class RequestStatistics(Compute):
    """The requests. All others but `fail` add up to `success`.

    Compute is of requests that were computed, each with the whole run of its batch. `cache_hit` is of
    requests without a run of their own, so that a join (`Reply.cache`) is one; its wait is in `queue`.
    `cache_miss` is the look-ups that found nothing, digest included.
    """

    success: Duration
    fail: Duration
    queue: Duration
    cache_hit: Duration
    cache_miss: Duration


class ModelStatistics(TypedDict):
    """One model. `last_inference`: milliseconds of Unix time, 0 where there was none.

    `inference_count` rows were computed in `execution_count` batches; what the cache answered is in neither.
    `response_stats` is of decoupled models, by an answer's place among those of its request. `memory_usage`
    is not told.
    """

    name: str
    version: str
    last_inference: int
    inference_count: int
    execution_count: int
    inference_stats: RequestStatistics
    batch_stats: list[BatchStatistics]
    response_stats: Mapping[str, object]
    memory_usage: list[object]


def describe(name: str, model: ModelCounts, epoch_us: int) -> ModelStatistics:
    """Return the model's statistics; `epoch_us` is the Unix time at which the deployment's clock was 0."""
    sizes = sorted(model.sizes.items())
    return {
        "name": name,
        "version": ONLY,
        "last_inference": (epoch_us + model.last_us) // 1000 if sizes else 0,
        "inference_count": sum(rows * count for rows, (count, *_) in sizes),
        "execution_count": sum(count for _, (count, *_) in sizes),
        "inference_stats": _requests(model),
        "batch_stats": [
            {"batch_size": rows, **_computed(count, *took_us)} for rows, (count, *took_us) in sizes
        ],
        "response_stats": {} if model.streamed is None else model.streamed.statistics(),
        "memory_usage": [],
    }


def _requests(model: ModelCounts) -> RequestStatistics:
    ran, kept = sum(model.queue.counts), model.kept
    misses, missed_us = model.asked.get("miss", (0, 0))
    missed_us = min(missed_us, model.input_us)  # more: of requests that were not completed
    return {
        "success": _duration(
            sum(flow.completed for flow in model.flows.values()),
            sum(duration.total for _, duration in model.durations) + model.edge_us,
        ),
        "fail": _duration(sum(model.others.values()), model.others_us),
        "queue": _duration(ran + kept.requests, model.queue.total + model.filling.total + kept.waited_us),
        **_computed(ran, model.input_us - missed_us, model.compute_us, model.output_us),
        "cache_hit": _duration(kept.requests, kept.took_us),
        "cache_miss": _duration(misses, missed_us),
    }


def _computed(count: int, input_us: int, compute_us: int, output_us: int) -> Compute:
    return {
        "compute_input": _duration(count, input_us),
        "compute_infer": _duration(count, compute_us),
        "compute_output": _duration(count, output_us),
    }


def _duration(count: int, total_us: int) -> Duration:
    return {"count": count, "ns": total_us * 1000}
