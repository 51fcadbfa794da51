"""Models, replicas and requests for the scheduler's tests; small numbers, so that boundaries collide."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.scheduler.commands import Answer, Command, RunBatch
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.waiting.requests import Request
from serving.values.objectives import ReplicaSpec
from serving.values.specs import BatchingSpec, Limits, ServedModel
from serving.values.vocabulary import NEVER_US, Outcome
from tests.builders import KIND, model_spec, served

ACCURACY = {"a": 0.9, "b": 0.8, "c": 0.7}
RUNGS = tuple(ACCURACY)
VARIANTS = RUNGS[:2]
C = TypeVar("C")


def only(commands: Iterable[Command], kind: type[C]) -> list[C]:
    """The commands of one kind."""
    return [command for command in commands if isinstance(command, kind)]


def served_model(
    name: str = "m", batch_max: int = 4, slo_us: int = 1000, batching: BatchingSpec | None = None
) -> ServedModel:
    """It has all RUNGS, each of its ACCURACY; its replicas are to follow its load."""
    spec = model_spec(name, RUNGS, batch_max)
    spec = replace(
        spec, variants=tuple(replace(each, accuracy=ACCURACY[each.name]) for each in spec.variants)
    )
    plain = served(spec, (), batching or BatchingSpec("static"))
    return replace(plain, slo_us=slo_us, replicas=ReplicaSpec())


def replica_of(
    model: ServedModel,
    variant: str = "a",
    replica_id: int = 1,
    latency_us: Mapping[int, float] | None = None,
    row_us: float = 1.0,
) -> Replica:
    """A replica with these latencies by rows; without them each row takes `row_us`."""
    measured = latency_us or {1: row_us, model.spec.batch_max: row_us * model.spec.batch_max}
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
    bucket: int = 0,
    expires_us: int = NEVER_US,
    size: int | None = None,
) -> Request:
    """Say who may answer it, with what it may share a batch, and its size, where it is not its bucket."""
    request.variants = variants
    request.bucket = bucket
    request.size = bucket if size is None else size
    request.lane_key = (shape, variants, bucket)
    request.expires_us = expires_us
    return request


def scheduler_on(
    *slices: str, model: ServedModel | None = None, limits: Limits | None = None, row_us: float = 1.0
) -> Scheduler:
    """The model "m" as variant "a" on each of these slices; a row takes `row_us`."""
    model = model or served_model()
    scheduler = Scheduler([model], limits or Limits())
    for name in slices:
        scheduler.replica_up(name, "m", replica_of(model, row_us=row_us), 0)
    return scheduler


def started(scheduler: Scheduler, now_us: int = 0) -> list[RunBatch]:
    """The batches that a wake starts."""
    return only(scheduler.wake(now_us), RunBatch)


def send(scheduler: Scheduler, *requests: Request, now_us: int = 0) -> list[RunBatch]:
    """The batches that accepted requests of one instant start."""
    for request in requests:
        assert scheduler.arrive(request, now_us) == ()
    return started(scheduler, now_us)


def rows_of(batch: RunBatch) -> list[int]:
    """The ids of the requests in a batch, one for each piece."""
    return [piece.request.id for piece in batch.pieces]


def outcomes(commands: Iterable[Command]) -> dict[int, Outcome]:
    """How requests ended, by their ids."""
    return {answer.request.id: answer.outcome for answer in only(commands, Answer)}
