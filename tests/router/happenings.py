"""Things that happen in a gateway, told to a Telemetry; short to write."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from router.observing.telemetry import Telemetry
from serving.ports import Reply
from serving.scheduler.commands import RunBatch
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.specs import DEFAULT_TENANT
from serving.values.vocabulary import COMPLETED, Outcome

Key = tuple[str, frozenset[tuple[str, str]]]

SLO_US = 50_000
"""From arrival to deadline."""


def request(model: str, rows: int = 1, tenant: str = DEFAULT_TENANT, arrived_us: int = 0) -> Request:
    made = Request(1, model, rows, arrived_us, arrived_us + SLO_US)
    made.tenant = tenant
    return made


def reply(outcome: Outcome = COMPLETED, queue_us: int = 0, batch_us: int = 0, compute_us: int = 0) -> Reply:
    made = Reply(outcome)
    made.variant = "cnn"
    made.queue_us, made.batch_us, made.compute_us = queue_us, batch_us, compute_us
    return made


def end(
    telemetry: Telemetry,
    asked: Request,
    outcome: Outcome = COMPLETED,
    latency_us: int = 1_000,
) -> None:
    """The request ends so long after its arrival."""
    telemetry.request_done(asked, reply(outcome), latency_us, latency_us <= SLO_US)


def run(telemetry: Telemetry, model: str, variant: str, rows: int, compute_us: int = 1_000) -> None:
    """A batch of requests of one row each comes back; 1000 us were predicted, its compute is what it took."""
    pieces = [Piece(request(model), 0, 1) for _ in range(rows)]
    batch = RunBatch(1, "cpu0", pieces, rows)
    batch.model, batch.variant, batch.predicted_us = model, variant, 1000.0
    batch.typical_us = 500.0
    telemetry.batch_done(batch, compute_us, compute_us)


def text(telemetry: Telemetry) -> str:
    """The whole exposition."""
    return b"".join(telemetry.steps()).decode()


def samples(telemetry: Telemetry) -> Mapping[Key, float]:
    """Every exported sample, by name and labels; fails where the text is not valid or repeats one."""
    found: dict[Key, float] = {}
    for family in text_string_to_metric_families(text(telemetry)):
        assert family.documentation, family.name
        assert family.type != "unknown", family.name
        for sample in family.samples:
            where = key(sample.name, **sample.labels)
            assert where not in found
            found[where] = sample.value
    return found


def key(name: str, **labels: str) -> Key:
    """Where a sample is found."""
    return name, frozenset(labels.items())
