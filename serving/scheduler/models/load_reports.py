"""A look at the models whose replicas follow their load: their counters, and what waits and runs now."""

from collections.abc import Iterable
from dataclasses import replace

from serving.policy.scaling.interface import LoadReport
from serving.scheduler.models.models import ScheduledModel
from serving.scheduler.slices.slices import Slice


def look(models: Iterable[ScheduledModel], slices: Iterable[Slice], now_us: int) -> tuple[LoadReport, ...]:
    """Return a report for each model with `ServedModel.replicas`, retired models too, in the order of
    `models`."""
    running: dict[str, int] = {}
    for live in slices:
        for batch in live.running.values():
            running[batch.model] = running.get(batch.model, 0) + batch.rows
    return tuple(
        _seen(model, running.get(model.served.name, 0), now_us)
        for model in models
        if model.served.replicas is not None
    )


def _seen(model: ScheduledModel, running: int, now_us: int) -> LoadReport:
    counted = model.intake.seen(model.served.name, model.forecast.arrivals)
    queue = model.queue
    if not queue.backlog.rows and not running:
        return counted
    oldest_us = min([lane.oldest_us for lane in queue.lanes], default=now_us)
    return replace(counted, waiting=queue.backlog.rows, oldest_us=max(now_us - oldest_us, 0), running=running)
