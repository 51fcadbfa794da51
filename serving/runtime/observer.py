"""Whom gateway and fleet need: who counts what happens there and at the cache, who runs batches."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from serving.ports import Reply
from serving.scheduler.commands import RunBatch
from serving.scheduler.requests import Request
from serving.specs import Parameters
from serving.vocabulary import Outcome
from serving.worker.batches import BatchInput


class Observer(Protocol):
    """Who counts what happens; called on the event loop, must be cheap."""

    def parsed(self, model: str, parse_us: int) -> None:
        """A call came, so long after its edge had all of it."""
        ...

    def request_done(self, request: Request, reply: Reply, latency_us: int, within_slo: bool) -> None:
        """A call was answered, `latency_us` after its arrival."""
        ...

    def refused(self, model: str, tenant: str, outcome: Outcome) -> None:
        """A request was turned away before it became a call; `model` as its client said."""
        ...

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        """An edge gave a completed call's answer to its client; see `serving.ports.Serving.answered`."""
        ...

    def batch_done(self, batch: RunBatch, compute_us: int, elapsed_us: int, output_us: int = 0) -> None:
        """A batch came back `elapsed_us` after its dispatch, `output_us` after its model was done."""
        ...

    def output_refused(self, model: str, output: str) -> None:
        """A call fails, as the guard of that output refuses its answer."""
        ...

    def worker_suspected(self, slice: str) -> None:  # noqa: A002  the domain's word
        """A batch is out there for longer than it should be."""
        ...


class CacheObserver(Observer, Protocol):
    """Who counts what happens; of the calls that the gateway never sees too."""

    def cache_asked(self, model: str, result: str, took_us: int) -> None:
        """The cache was asked ("hit", "join" or "miss"), which took so long, digest and all."""
        ...

    def cache_looked(self, model: str, result: str, took_us: int) -> None:
        """Other gateways' answers were looked at: "hit", "miss", "taken" (one computes it) or "timeout"; or
        were not ("skipped"), as they are out of reach."""
        ...


class BatchRunner(Protocol):
    """Who runs the batches of a slice: `serving.runtime.link.Link`, which says more of it."""

    slice: str

    def run(
        self, batch_id: int, replica: int, rows: int, inputs: Sequence[BatchInput], parameters: Parameters
    ) -> None:
        """Run a batch, whose result is told to `batch_done` or `batch_failed`."""
        ...


class FleetObserver(Protocol):
    """Who counts what becomes of workers and replicas."""

    def worker_restarted(self, slice: str) -> None:  # noqa: A002  the domain's word
        """A worker process was lost, and is replaced."""
        ...

    def worker_overran(self, model: str) -> None:
        """A worker process that had loaded the model was ended, as it held more memory than it may."""
        ...

    def replica_loaded(self, model: str, load_us: int) -> None:
        """A replica was loaded, which took so long."""
        ...

    def replica_failed(self, model: str) -> None:
        """A replica could not be loaded, or not be measured."""
        ...

    def replica_unloaded(self, model: str) -> None:
        """A replica has gone, as it was told to."""
        ...

    def slices_held(self, prices: Mapping[str, float], now_us: int) -> None:
        """Exactly these slices are paid for from now on, at so much an hour."""
        ...
