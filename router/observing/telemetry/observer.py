"""Counts what happens in the gateway. On the request path there are only int additions and one bisect a
histogram, and an entry: 0.6 us a request (loadtests/core/scrape_cost.py measures it)."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from mypy_extensions import mypyc_attr
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from router.observing.telemetry import exposition, triton
from router.observing.telemetry.counting.answers import AnswerCounts, counts_for
from router.observing.telemetry.counting.counts import (
    UNKNOWN,
    Counters,
    FlowCounts,
    Ledger,
    Loads,
    ModelCounts,
    SelectedCounts,
)
from router.observing.telemetry.counting.journal import Entry, Journal
from router.observing.telemetry.counting.streamed import StreamedCounts
from router.observing.telemetry.counting.tenants import TenantCounters, tenant_counters
from router.observing.telemetry.exposition import Present
from router.observing.telemetry.families import endpoints
from router.observing.telemetry.families.endpoints import EndpointCounts
from router.observing.telemetry.openmetrics import opened
from router.observing.telemetry.statistics import ModelStatistics, describe
from serving.ports import Call, Reply
from serving.runtime.observer import RowAnswer
from serving.scheduler.commands import RunBatch
from serving.scheduler.waiting.requests import Request
from serving.values.specs import DEFAULT_TENANT, ServedModel
from serving.values.vocabulary import COMPLETED, Outcome

TENANT_DURATIONS_MAX: Final = 500
"""Up to so many pairs of model and tenant each has a histogram of durations, of 31 lines; a gateway with more
has one a model, without the label."""

STEP_CHARACTERS: Final = 16_000
BLOCK_CHARACTERS: Final = 100
"""What a block costs however short it is, in characters: 0.1 ms of CPU are some 20,000 of either."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Telemetry:
    """A `serving.runtime.observer.CacheObserver`. `steps` is the exposition text, `snapshot` the same as
    values."""

    def __init__(
        self, models: Iterable[ServedModel], tenants: Collection[str] = (), slices: Iterable[str] = ()
    ) -> None:
        self._tenants = frozenset((*tenants, DEFAULT_TENANT))
        served = list(models)
        self._by_tenant = len(served) * len(self._tenants) <= TENANT_DURATIONS_MAX
        self._ledger = Ledger()
        self.journal = Journal()
        self.answers: dict[str, AnswerCounts] = {}  # of classifiers, by model
        self._models = self._ledger.models
        for model in served:
            self.serve(model)
        self._ledger.restarts = dict.fromkeys(slices, 0)
        self._ledger.suspicions = dict(self._ledger.restarts)
        self.read_present: Callable[[], Present] = Present  # asked at every scrape
        self.triton_names = True  # whether its metrics have Triton's names too
        self.epoch_us = 0  # the Unix time at which the deployment's clock was 0
        self.trace: Callable[[Entry, str, str], str] | None = None  # `router.observing.tracing`'s
        self.exemplars: dict[str, str] = {}  # what OpenMetrics has behind a sample, by series
        self._endpoints = EndpointCounts()
        self.observe_lag = self._ledger.lag.observe
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    # what the gateway tells

    def serve(self, model: ServedModel) -> None:
        """Note that a model is served from now on, or otherwise than before, or again: its counts go on."""
        counts = self._models.get(model.name)
        if counts is None:
            few = (len(self._models) + 1) * len(self._tenants) <= TENANT_DURATIONS_MAX
            counts = ModelCounts(model.name, model.slo_us, self._by_tenant and few)
            if model.name == UNKNOWN:  # a model may be called so
                counts = self._ledger.unknown = self._ledger.unknown if self._ledger.unknown.flows else counts
            self._models[model.name] = counts
        counts.slo_us, counts.objective, counts.served = model.slo_us, model.own.percentile / 100, True
        answers, before = counts_for(model.spec), self.answers.pop(model.name, None)
        if answers is not None:
            same = before is not None and (before.output, before.width) == (answers.output, answers.width)
            self.answers[model.name] = before if before is not None and same else answers

    def retire(self, name: str) -> None:
        """Note that a model is served no longer. Raises KeyError if it never was."""
        self._models[name].served = False

    def parsed(self, model: str, parse_us: int) -> None:
        """Note that a request was decoded and checked, which took its edge `parse_us`."""
        self._models[model].parse.observe(parse_us)

    def request_done(self, request: Request, reply: Reply, latency_us: int, within_slo: bool) -> None:
        """Note that a request ended, `latency_us` after its arrival; `within_slo`: by what it was
        promised."""
        model = self._models[request.model]
        flow = model.flows.get(request.tenant) or model.flow(request.tenant)
        now_us = request.arrived_us + latency_us
        entry = self.journal.done(request, reply, latency_us, within_slo)
        traced = "" if self.trace is None else self.trace(entry, request.trace, request.below)
        if now_us >= flow.windows.turn_us:
            flow.windows.turn(flow.offered, flow.good, now_us)
        if reply.outcome is not COMPLETED:
            model.end(flow, reply.outcome)
            model.others_us += latency_us
            flow.miss(reply.outcome, request.rows, not within_slo)
            return
        rows = request.rows
        flow.completed += 1
        flow.rows += rows
        if within_slo:
            flow.good += 1
            flow.good_rows += rows
        flow.duration.observe(latency_us)
        if traced:
            self._exemplify(model, flow, latency_us, traced, now_us)
        model.answered(request.tier, reply, rows)
        answers = self.answers.get(request.model)
        if answers is not None:
            answers.take(reply, now_us)
        if reply.cache:  # not computed for this request: a leader's is counted before the cache sees it
            kept = model.kept
            kept.requests += 1
            kept.waited_us += reply.queue_us
            kept.took_us += latency_us - reply.queue_us
            return
        model.queue.observe(reply.queue_us)
        model.filling.observe(reply.batch_us)
        model.compute_us += reply.compute_us
        handed_us = now_us - reply.ready_us if reply.ready_us else 0
        waited_us = reply.queue_us + reply.batch_us
        output_us = min(reply.output_us + handed_us, max(latency_us - waited_us - reply.compute_us, 0))
        model.output_us += output_us
        model.input_us += max(latency_us - waited_us - reply.compute_us - output_us, 0)

    def _exemplify(
        self, model: ModelCounts, flow: FlowCounts, latency_us: int, trace: str, now_us: int
    ) -> None:
        """Keep the trace as the latest of its bucket of durations."""
        scale = flow.duration.scale
        le = scale.les[bisect_left(scale.bounds, latency_us)]
        labels = flow.labels if self._by_tenant else model.labels
        series = f'penstock_request_duration_seconds_bucket{{{labels},le="{le}"}}'
        unix_s = (self.epoch_us + now_us) / 1e6
        self.exemplars[series] = f' # {{trace_id="{trace}"}} {latency_us / 1e6} {unix_s:.3f}'

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        """Note that an edge gave a completed call's answer to its client; it was read for `read_us` and made
        for `made_us`."""
        counts = self._models.get(model)
        if counts is None:
            return
        counts.edge_us += read_us + made_us
        if reply.cache in ("", "miss"):
            counts.input_us += read_us
            counts.output_us += made_us
        else:
            counts.kept.took_us += read_us + made_us

    def selected(self, call: Call, reply: Reply, latency_us: int) -> None:
        """Note that a call of a model with a selection was answered, `latency_us` after its arrival. What its
        members answered was told before, by `request_done`."""
        model = self._models.get(call.model.name)
        if model is None:
            return
        if model.selected is None:
            model.selected = SelectedCounts()
        model.selected.add(reply, latency_us <= call.due_us)

    def refused(self, model: str, tenant: str, outcome: Outcome) -> None:
        """Note that a request was turned away before it became a call: it counts as one row, the least that
        it had."""
        counts = self._models.get(model, self._ledger.unknown)
        flow = counts.flow(tenant if tenant in self._tenants else DEFAULT_TENANT)
        counts.end(flow, outcome)
        flow.miss(outcome, 1, False)

    def endpoint_asked(self, endpoint: str, model: str, outcome: Outcome, tokens: int) -> None:
        """Note that a request at an application's endpoint has ended; its texts have so many tokens."""
        self._endpoints.add(endpoint, model if model in self._models else UNKNOWN, outcome, tokens)

    def batch_done(self, batch: RunBatch, compute_us: int, elapsed_us: int, output_us: int = 0) -> None:
        """Note that a worker ran a batch."""
        model = self._models[batch.model]
        variant = model.variants.get(batch.variant) or model.variant(batch.variant)
        self.journal.ran(batch, compute_us, elapsed_us)
        variant.rows.observe(batch.rows)
        variant.requests.observe(len(batch.pieces))
        variant.compute.observe(compute_us)
        ended_us = batch.started_us + elapsed_us
        model.ran(batch.rows, (elapsed_us - compute_us - output_us, compute_us, output_us), ended_us)
        self._ledger.spending.ran(batch.slice, batch.model, compute_us, ended_us)
        if not batch.staged:
            variant.transport.observe(max(elapsed_us - compute_us, 0))
        if batch.predicted_us:
            variant.ratio.observe(round(elapsed_us / batch.predicted_us * 1000))
        if batch.typical_us:
            variant.typical.observe(round(compute_us / batch.typical_us * 1000))

    def cache_asked(self, model: str, result: str, took_us: int) -> None:
        """Note that the cache was asked, and did this: "hit", "join" or "miss"."""
        counts = self._models[model].asked.setdefault(result, [0, 0])
        counts[0] += 1
        counts[1] += took_us

    def cache_looked(self, model: str, result: str, took_us: int) -> None:
        """Note that the answers of other gateways were looked at, with this result."""
        counts = self._models[model]
        counts.looked[result] = counts.looked.get(result, 0) + 1
        if result != "skipped":
            counts.looks.observe(took_us)

    def stalled(self, stall_us: int) -> None:
        """Note that the event loop stood still for `stall_us`."""
        self._ledger.stalls += 1
        self._ledger.stall_max_us = max(self._ledger.stall_max_us, stall_us)

    def worker_suspected(self, slice: str) -> None:  # noqa: A002 - the domain's word
        """Note that a batch of that slice is out for longer than it should be."""
        suspicions = self._ledger.suspicions
        suspicions[slice] = suspicions.get(slice, 0) + 1

    def row_answered(self, model: str, answer: RowAnswer) -> None:
        """Note an answer of a decoupled model, or what came in place of one."""
        counts = self._models[model]
        if counts.streamed is None:
            counts.streamed = StreamedCounts(counts.labels)
        counts.streamed.add(answer)

    def output_refused(self, model: str, output: str) -> None:
        """Note that a request failed, as the guard of that output refused its answer."""
        refused, key = self._ledger.refused_outputs, (model, output)
        refused[key] = refused.get(key, 0) + 1

    def worker_overran(self, model: str) -> None:
        """Note that a worker that had loaded that model was ended, as it held more memory than it may."""
        overran = self._ledger.overran
        overran[model] = overran.get(model, 0) + 1

    def worker_restarted(self, slice: str) -> None:  # noqa: A002
        """Note that the worker process of that slice was replaced."""
        restarts = self._ledger.restarts
        restarts[slice] = restarts.get(slice, 0) + 1

    def slices_held(self, prices: Mapping[str, float], now_us: int) -> None:
        """Note that the workers of these slices are held from now on, at these prices an hour."""
        self._ledger.spending.hold(prices, now_us)

    def replica_loaded(self, model: str, load_us: int, kept: bool = False) -> None:
        """Note that a replica of that model was loaded, which took `load_us`. `kept`: for the gateway before,
        and taken over."""
        loads = self._loads(model)
        if kept:
            loads.kept += 1
        else:
            loads.loaded += 1
            loads.load_us += load_us

    def replica_failed(self, model: str) -> None:
        """Note that a replica of that model could not be loaded, or not be measured."""
        self._loads(model).failed += 1

    def replica_unloaded(self, model: str) -> None:
        """Note that a replica of that model has gone, as control wanted."""
        self._loads(model).unloaded += 1

    def _loads(self, model: str) -> Loads:
        return self._ledger.loads.setdefault(model, Loads(model))

    # what is read

    def snapshot(self, now_us: int) -> Iterator[tuple[str, Counters]]:
        """Yield the counters of each model as plain values, ready for JSON; up to 0.2 ms each, of 64
        tenants."""
        for name, model in list(self._models.items()):  # others may come while it is read
            yield name, model.summary(now_us)

    def tenants(self, now_us: int) -> dict[str, TenantCounters]:
        """Return the counters of each tenant with requests, of all models together."""
        return tenant_counters(list(self._models.values()), now_us)

    def busy_us(self) -> dict[str, int]:
        """Return the time in us that each slice has computed since the start."""
        return self._ledger.busy_us()

    def counters(self, model: str, now_us: int) -> Counters:
        """Return those of one model; KeyError where it never was served."""
        return self._models[model].summary(now_us)

    def asked(self, model: str) -> dict[str, int]:
        """Return how often the cache was asked for it, by what the cache did; KeyError where it never was
        served."""
        return {result: counts[0] for result, counts in self._models[model].asked.items()}

    def statistics(self, model: str) -> ModelStatistics:
        """Return a served model in the words of the statistics extension; 50 us, of 32 batch sizes."""
        return describe(model, self._models[model], self.epoch_us)

    def steps(self, openmetrics: bool = False) -> Iterator[bytes]:
        """Yield the Prometheus exposition text (format 0.0.4, or OpenMetrics with exemplars), in pieces of
        0.1 to 0.4 ms of CPU; between two of them the gateway may go on."""
        size, gathered = 0, []
        for block in opened(self._blocks(), self.exemplars) if openmetrics else self._blocks():
            gathered.append(block)
            size += len(block) + BLOCK_CHARACTERS
            if size >= STEP_CHARACTERS:
                yield "".join(gathered).encode()
                size, gathered = 0, []
        if gathered:
            yield "".join(gathered).encode()

    def _blocks(self) -> Iterator[str]:
        present = self.read_present()
        yield from exposition.blocks(self._ledger, present)
        yield from endpoints.blocks(self._endpoints)
        if self.triton_names:
            yield from triton.blocks(self._ledger, present)
        yield generate_latest(self._process).decode()
