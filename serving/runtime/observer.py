"""Whom gateway and fleet need: who counts what happens there and at the cache, who runs batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from serving.ports import Reply
from serving.scheduler.commands import RunBatch
from serving.scheduler.waiting.requests import Request
from serving.values.specs import Parameters
from serving.values.traces import NO_TRACE, TraceContext
from serving.values.vocabulary import Outcome
from serving.worker.frames.batches import BatchInput


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """An answer of a decoupled model to a request. `place`: how many it had before. `kind`: "success";
    "empty_response" for the end of a row; "fail" or "cancel" where the request ended so instead.
    `compute_us`: since the answer before it; `output_us`: from the model to the gateway; `since_us`: the
    request's arrival."""

    place: int
    kind: str
    compute_us: int = 0
    output_us: int = 0
    since_us: int = 0


class Observer(Protocol):
    """Counts what happens; called on the event loop, so it must be cheap."""

    def parsed(self, model: str, parse_us: int) -> None:
        """Count a call that came `parse_us` after its edge had all of it."""
        ...

    def request_done(self, request: Request, reply: Reply, latency_us: int, within_slo: bool) -> None:
        """Count a call that was answered `latency_us` after its arrival."""
        ...

    def refused(self, model: str, tenant: str, outcome: Outcome) -> None:
        """Count a request that was turned away before it became a call; `model` as its client said."""
        ...

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        """Count that an edge gave a completed call's answer to its client; see
        `serving.ports.Serving.answered`."""
        ...

    def batch_done(self, batch: RunBatch, compute_us: int, elapsed_us: int, output_us: int = 0) -> None:
        """Count a batch that came back `elapsed_us` after its dispatch, `output_us` after its model was
        done."""
        ...

    def row_answered(self, model: str, answer: RowAnswer) -> None:
        """Count an answer of a decoupled model, or what came in place of one."""
        ...

    def output_refused(self, model: str, output: str) -> None:
        """Count a call that fails because the guard of that output refuses its answer."""
        ...

    def worker_suspected(self, slice: str) -> None:  # noqa: A002  the domain's word
        """Count a batch that is out for longer than it should be."""
        ...


class CacheObserver(Observer, Protocol):
    """Counts what happens, also for the calls that the gateway never sees."""

    def cache_asked(self, model: str, result: str, took_us: int) -> None:
        """Count that the cache was asked, with its answer ("hit", "join" or "miss") and the time it took,
        digest and all."""
        ...

    def cache_looked(self, model: str, result: str, took_us: int) -> None:
        """Count a look at other gateways' answers: "hit", "miss", "taken" (another gateway computes it) or
        "timeout". Count "skipped" if they are out of reach, so that there was no look."""
        ...


class BatchRunner(Protocol):
    """Runs the batches of a slice; `serving.runtime.workers.link.Link` says more."""

    slice: str

    def run(
        self,
        batch_id: int,
        replica: int,
        rows: int,
        inputs: Sequence[BatchInput],
        parameters: Parameters,
        trace: TraceContext = NO_TRACE,
    ) -> None:
        """Run a batch; its result goes to `batch_done` or `batch_failed`."""
        ...

    def leave(self, batch_id: int, row: int) -> None:
        """Say that nobody waits for the answers of that row any more; of a decoupled model's batch."""
        ...


class FleetObserver(Protocol):
    """Counts what becomes of workers and replicas."""

    def worker_restarted(self, slice: str) -> None:  # noqa: A002  the domain's word
        """Count a worker process that was lost, and is replaced."""
        ...

    def worker_overran(self, model: str) -> None:
        """Count a worker process that had loaded the model and was ended, as it held more memory than it
        may."""
        ...

    def replica_loaded(self, model: str, load_us: int, kept: bool = False) -> None:
        """Count a replica that was loaded within `load_us`. `kept`: for the gateway before."""
        ...

    def replica_failed(self, model: str) -> None:
        """Count a replica that could not be loaded, or not be measured."""
        ...

    def replica_unloaded(self, model: str) -> None:
        """Count a replica that was unloaded on order."""
        ...

    def slices_held(self, prices: Mapping[str, float], now_us: int) -> None:
        """Note that exactly these slices are paid for from now on, at these prices an hour."""
        ...
