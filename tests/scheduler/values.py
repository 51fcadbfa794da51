"""Models, replicas and requests for the scheduler's tests; small numbers, so that boundaries collide."""

from collections.abc import Mapping
from dataclasses import replace

from serving.profile.curve import Latency, Point, Profile
from serving.scheduler.requests import Request
from serving.scheduler.slices import Replica
from serving.specs import BatchingSpec, ServedModel
from serving.vocabulary import NEVER_US
from tests.builders import KIND, model_spec, served

VARIANTS = ("a", "b")


def served_model(
    name: str = "m", batch_max: int = 4, slo_us: int = 1000, batching: BatchingSpec | None = None
) -> ServedModel:
    spec = model_spec(name, VARIANTS, batch_max)
    return replace(served(spec, (), batching), slo_us=slo_us)


def replica_of(
    model: ServedModel, variant: str = "a", replica_id: int = 1, latency_us: Mapping[int, float] | None = None
) -> Replica:
    """A replica with these latencies by rows; without them each row takes 1 us."""
    measured = latency_us or {1: 1.0, model.spec.batch_max: float(model.spec.batch_max)}
    points = tuple(Point(0, rows, us, us, 1) for rows, us in measured.items())
    return Replica(replica_id, variant, Latency(Profile(model.name, variant, KIND, points)), model)


def request_of(
    request_id: int = 1,
    rows: int = 1,
    arrived_us: int = 0,
    slack_us: int = 1000,
    expires_us: int = NEVER_US,
    variants: tuple[str, ...] = ("a",),
) -> Request:
    """A request for the model "m", due `slack_us` after its arrival."""
    request = Request(request_id, "m", rows, arrived_us, arrived_us + slack_us)
    return allow(request, variants, expires_us=expires_us)


def allow(
    request: Request,
    variants: tuple[str, ...],
    shape: str = "",
    size: int = 0,
    expires_us: int = NEVER_US,
) -> Request:
    """Say who may answer it and with what it may share a batch."""
    request.variants = variants
    request.size = size
    request.lane_key = (shape, variants, size)
    request.expires_us = expires_us
    return request
