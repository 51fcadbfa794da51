"""The nv_inference_* counters of Triton Inference Server, for the dashboards and autoscalers that read them.

Names, labels and meanings: Triton's user guide, "Metrics", "Inference Request Metrics". Its counters have no
_total; its times are sums in microseconds over successful requests.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from router.observing.telemetry.counting.counts import Ledger, ModelCounts, escape
from router.observing.telemetry.counting.heading import head
from router.observing.telemetry.exposition import Present
from router.observing.telemetry.families import gpus
from serving.values.versions import MARK, ONLY
from serving.values.vocabulary import (
    BAD_INPUT,
    CLIENT_GONE,
    FORBIDDEN,
    MODEL_ERROR,
    SEQUENCE_LOST,
    TOO_LARGE,
    UNAUTHENTICATED,
    UNKNOWN_MODEL,
    WORKER_LOST,
    Outcome,
)

FAILURES: Final = ("REJECTED", "CANCELED", "BACKEND", "OTHER")

_FAILURE: Final[dict[Outcome, str]] = {
    CLIENT_GONE: "CANCELED",
    WORKER_LOST: "BACKEND",
    MODEL_ERROR: "BACKEND",
    SEQUENCE_LOST: "BACKEND",
    BAD_INPUT: "OTHER",
    TOO_LARGE: "OTHER",
    UNKNOWN_MODEL: "OTHER",
    UNAUTHENTICATED: "OTHER",
    FORBIDDEN: "OTHER",
}
"""What is not named here was turned away or given up by the scheduler: REJECTED."""


def _batches(model: ModelCounts) -> int:
    return sum(sum(variant.rows.counts) for variant in model.variants.values())


def _batch_rows(model: ModelCounts) -> int:
    return sum(variant.rows.total for variant in model.variants.values())


_COUNTERS: Final[tuple[tuple[str, str, Callable[[ModelCounts], int]], ...]] = (
    (
        "nv_inference_request_success",
        "Completed requests.",
        lambda model: sum(flow.completed for flow in model.flows.values()),
    ),
    ("nv_inference_count", "Rows computed.", _batch_rows),
    ("nv_inference_exec_count", "Batches computed.", _batches),
    (
        "nv_inference_request_duration_us",
        "Time from first byte read to answer written, summed over completed requests.",
        lambda model: sum(duration.total for _, duration in model.durations) + model.edge_us,
    ),
    (
        "nv_inference_queue_duration_us",
        "Time that requests waited for a slice and for their batch, summed over completed requests.",
        lambda model: model.queue.total + model.filling.total + model.kept.waited_us,
    ),
    (
        "nv_inference_compute_input_duration_us",
        "Time to read, to reach the worker and to wait for it, summed over completed requests.",
        lambda model: model.input_us,
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "Time of the batch's run, summed over completed requests.",
        lambda model: model.compute_us,
    ),
    (
        "nv_inference_compute_output_duration_us",
        "Time from the end of the run to the answer written, summed over completed requests.",
        lambda model: model.output_us,
    ),
)


def blocks(ledger: Ledger, present: Present) -> Iterator[str]:
    """Yield the aliases, of the models that are served or were."""
    names = {model: name for name, model in ledger.models.items()}
    models = [(_labels(name, present.versions), model) for name, model in ledger.models.items()]
    for name, text, count in _COUNTERS:
        yield head(name, "counter", text)
        for labels, model in models:
            yield f"{name}{{{labels}}} {count(model)}\n"
    yield head("nv_inference_request_failure", "counter", "Requests that were not completed, by reason.")
    for labels, model in models:
        yield _failure_lines(labels, model)
    name = "nv_inference_pending_request_count"
    yield head(name, "gauge", "Requests that wait for a batch.")
    for labels, model in models:
        if model.served:
            yield f"{name}{{{labels}}} {present.queued.get(names[model], (0, 0))[1]}\n"
    yield from gpus.triton_blocks(present.gpus)


def _labels(name: str, versions: Mapping[str, str]) -> str:
    """Return Triton's labels of a model that is served, or was; a version has its model's name there."""
    model, _, stated = name.partition(MARK)
    return f'model="{escape(model)}",version="{versions.get(name, stated or ONLY)}"'


def _failure_lines(labels: str, model: ModelCounts) -> str:
    counts = dict.fromkeys(FAILURES, 0)
    for outcome, count in model.others.items():
        counts[_FAILURE.get(outcome, "REJECTED")] += count
    return "".join(
        f'nv_inference_request_failure{{{labels},reason="{reason}"}} {count}\n'
        for reason, count in counts.items()
    )
