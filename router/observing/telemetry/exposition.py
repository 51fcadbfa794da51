"""The Prometheus text format (0.0.4), written in small blocks while the gateway goes on counting.

Lines are written here and not by prometheus_client's generate_latest, which needs 9 us a line and makes all
of them at once. A block is of one moment (a histogram's buckets, sum and count agree), two blocks need not
be. Series are those that exist when the scrape begins.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from router.observing.telemetry.counting.counts import (
    FlowCounts,
    Ledger,
    ModelCounts,
    VariantCounts,
    escape,
    outcome_counts,
)
from router.observing.telemetry.counting.heading import head
from router.observing.telemetry.counting.histogram import Histogram
from router.observing.telemetry.counting.windows import WINDOWS_S, burn_rate
from router.observing.telemetry.families import answers, condition, gpus, scaling
from router.observing.telemetry.families.condition import ConditionPresent
from router.observing.telemetry.families.scaling import ScalePresent
from serving.policy.device_health import GpuReading
from serving.policy.estimates.freshness import Freshness, Judgement

_WINDOW_NAMES: Final = tuple(WINDOWS_S)


@dataclass(frozen=True, slots=True)
class RedisPresent:
    """The cache's tier in Redis: whether it is asked, how often it was given up, answers that were written
    and that could not be, invalidations of other gateways, and values that were no answer."""

    up: bool = True
    trips: int = 0
    written: int = 0
    dropped: int = 0
    invalidations: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Present:
    """What is read at a scrape rather than counted. `queued`: (rows, requests) that wait for a batch, by
    model; `replicas`: how many, by (model, state); `recorded`: requests, and those that could not be;
    `cached`: bytes, entries and evictions of the cache; `worth`: by model, whether it is asked, what an ask
    gains in microseconds, and how many passed it by; `redis`: its tier there, None without one; `profiles`:
    what batches say of each replica's; `drifted`: what differed from what is wanted at the last check;
    `replans`: how often an answer to a request for another plan ended in each way;
    `scaling`: how many replicas there are to be; `condition`: what runs and is ready; `gpus`: the GPUs that
    slices use, `cordoned`: the UUIDs of those that they may not use any more; `versions`: of each served
    model, as answers state it."""

    now_us: int = 0
    open_requests: int = 0
    queued: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    replicas: Mapping[tuple[str, str], int] = field(default_factory=dict)
    recorded: tuple[int, int] = (0, 0)
    cached: tuple[int, int, int] = (0, 0, 0)
    worth: Mapping[str, tuple[bool, float, int]] = field(default_factory=dict)
    redis: RedisPresent | None = None
    profiles: Sequence[Judgement] = ()
    drifted: int = 0
    replans: Mapping[str, int] = field(default_factory=dict)
    scaling: ScalePresent = field(default_factory=ScalePresent)
    condition: ConditionPresent = field(default_factory=ConditionPresent)
    gpus: Sequence[GpuReading] = ()
    cordoned: Collection[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


# name, help, attribute of a FlowCounts
_FLOW_COUNTERS: Final = (
    (
        "penstock_offered_requests_total",
        "Requests that count for the SLO: they were promised an answer by their deadline.",
        "offered",
    ),
    ("penstock_goodput_requests_total", "Requests completed by their deadline.", "good"),
    (
        "penstock_slo_violations_total",
        "Offered requests that were not completed by their deadline.",
        "violations",
    ),
    ("penstock_offered_rows_total", "Rows of offered requests.", "offered_rows"),
    ("penstock_rows_total", "Rows of completed requests.", "rows"),
    ("penstock_goodput_rows_total", "Rows of requests completed by their deadline.", "good_rows"),
)
# name, help, attribute of a ModelCounts
_MODEL_HISTOGRAMS: Final = (
    (
        "penstock_request_parse_seconds",
        "Time from a request's arrival, when all of it is read, to its submission.",
        "parse",
    ),
    ("penstock_queue_wait_seconds", "Time that completed requests waited while no slice was free.", "queue"),
    (
        "penstock_batch_wait_seconds",
        "Time that completed requests waited for their batch to fill, though a slice was free.",
        "filling",
    ),
)
# name, help, attribute of a VariantCounts
_VARIANT_HISTOGRAMS: Final = (
    ("penstock_batch_rows", "Rows in a batch.", "rows"),
    ("penstock_batch_requests", "Requests in a batch.", "requests"),
    (
        "penstock_batch_compute_seconds",
        "Time from the start to the end of a batch's run, measured by its worker.",
        "compute",
    ),
    (
        "penstock_batch_transport_seconds",
        "Time from a batch's dispatch to its result, less its run, where its worker was idle.",
        "transport",
    ),
    (
        "penstock_batch_observed_over_predicted_ratio",
        "Time from a batch's dispatch to its result, over the time that was planned for it.",
        "ratio",
    ),
    (
        "penstock_batch_observed_over_typical_ratio",
        "Time of a batch's run, over the median that was expected of it.",
        "typical",
    ),
)
# name, help, attribute of a Loads
_LOAD_COUNTERS: Final = (
    ("penstock_model_loads_total", "Replicas loaded.", "loaded"),
    ("penstock_model_load_failures_total", "Attempts to load or measure a replica that failed.", "failed"),
    ("penstock_model_unloads_total", "Replicas unloaded on order.", "unloaded"),
    ("penstock_model_takeovers_total", "Replicas taken over from the gateway before.", "kept"),
)


def blocks(ledger: Ledger, present: Present) -> Iterator[str]:
    """Yield every metric that the gateway counts itself."""
    models = list(ledger.models.values())
    served = [model for model in models if model.served]
    flows = [flow for model in models for flow in model.flows.values()]
    variants = [variant for model in models for variant in model.variants.values()]
    unknown = [] if ledger.unknown in models else list(ledger.unknown.flows.values())
    yield head("penstock_requests_total", "counter", "Requests by outcome and reason.")
    yield from map(_outcome_lines, [*flows, *unknown])
    for name, text, attribute in _FLOW_COUNTERS:
        yield head(name, "counter", text)
        for flow in flows:
            yield f"{name}{{{flow.labels}}} {getattr(flow, attribute)}\n"
    yield from _objectives(served)
    yield from _windows(served, present.now_us)
    name = "penstock_request_duration_seconds"
    yield head(name, "histogram", "Time from arrival to answer of completed requests.")
    for labels, duration in [each for model in models for each in model.durations]:
        yield duration.block(name, labels)
    yield from _histograms(_MODEL_HISTOGRAMS, [model for model in models if model.flows])
    yield from _histograms(_VARIANT_HISTOGRAMS, variants)
    yield from answers.blocks(models)
    yield from _cache(models, present)
    yield from _workers(ledger)
    yield from _states(present)
    yield from condition.blocks(present.condition, ledger.busy_us())
    yield from scaling.blocks(served, ledger.spending, present.scaling, present.now_us)
    yield from gpus.blocks(present.gpus, present.cordoned)
    yield from _profiles(present.profiles)


def _outcome_lines(flow: FlowCounts) -> str:
    start = f"penstock_requests_total{{{flow.labels},"
    return "".join(
        f'{start}outcome="{outcome.kind}",reason="{outcome.reason}"}} {count}\n'
        for outcome, count in outcome_counts(flow)
    )


def _objectives(models: Sequence[ModelCounts]) -> Iterator[str]:
    name = "penstock_slo_objective_ratio"
    yield head(name, "gauge", "Share of offered requests that the objective asks to be in time.")
    for model in models:
        yield f"{name}{{{model.labels}}} {model.objective:.6g}\n"
    yield head(
        "penstock_slo_latency_seconds", "gauge", "Latency that the SLO promises, from arrival to answer."
    )
    for model in models:
        yield f"penstock_slo_latency_seconds{{{model.labels}}} {model.slo_us / 1e6}\n"


def _windows(models: Sequence[ModelCounts], now_us: int) -> Iterator[str]:
    flows = [(flow, model.objective) for model in models for flow in model.flows.values()]
    for name, text, is_burn in (
        (
            "penstock_slo_attainment_ratio",
            "Share of the window's offered requests that were completed by their deadline.",
            False,
        ),
        (
            "penstock_slo_burn_rate",
            "Share of the window's offered requests that missed their deadline, over 1 - objective.",
            True,
        ),
    ):
        yield head(name, "gauge", text)
        for flow, objective in flows:
            lines = ""
            for window, (offered, good) in zip(_WINDOW_NAMES, flow.window_counts(now_us), strict=True):
                if offered:
                    value = burn_rate(offered, good, objective) if is_burn else good / offered
                    lines += f'{name}{{{flow.labels},window="{window}"}} {value:.6g}\n'
            yield lines


def _histograms(
    families: Iterable[tuple[str, str, str]], owners: Iterable[ModelCounts | VariantCounts]
) -> Iterator[str]:
    for name, text, attribute in families:
        yield head(name, "histogram", text)
        for owner in owners:
            histogram: Histogram = getattr(owner, attribute)
            yield histogram.block(name, owner.labels)


def _cache(models: Iterable[ModelCounts], present: Present) -> Iterator[str]:
    name = "penstock_cache_requests_total"
    yield head(name, "counter", "Requests that asked the cache, by result.")
    for model in models:
        for result, (count, _) in model.asked.items():
            yield f'{name}{{{model.labels},result="{result}"}} {count}\n'
    yield from _worth(present.worth)
    held, entries, evictions = present.cached
    for name, kind, text, value in (
        ("penstock_cache_bytes", "gauge", "Memory that kept answers take.", held),
        ("penstock_cache_entries", "gauge", "Kept answers.", entries),
        (
            "penstock_cache_evictions_total",
            "counter",
            "Kept answers removed to make room for others.",
            evictions,
        ),
    ):
        yield f"{head(name, kind, text)}{name} {value}\n"
    if present.redis is not None:
        yield from _redis(models, present.redis)


def _redis(models: Iterable[ModelCounts], present: RedisPresent) -> Iterator[str]:
    looked = [model for model in models if model.looked]
    name = "penstock_cache_redis_looks_total"
    yield head(name, "counter", "Look-ups of an answer in Redis, by result.")
    for model in looked:
        for result, count in model.looked.items():
            yield f'{name}{{{model.labels},result="{result}"}} {count}\n'
    name = "penstock_cache_redis_look_seconds"
    yield head(name, "histogram", "Time from a look-up in Redis to its answer, or to the end of its budget.")
    for model in looked:
        yield model.looks.block(name, model.labels)
    for name, kind, text, value in (
        (
            "penstock_cache_redis_up",
            "gauge",
            "1 while the gateway asks Redis, 0 while it does not after failures.",
            present.up,
        ),
        (
            "penstock_cache_redis_trips_total",
            "counter",
            "Times that the gateway stopped asking Redis after failures.",
            present.trips,
        ),
        ("penstock_cache_redis_writes_total", "counter", "Answers written to Redis.", present.written),
        (
            "penstock_cache_redis_dropped_total",
            "counter",
            "Answers that were to be written to Redis and were not.",
            present.dropped,
        ),
        (
            "penstock_cache_redis_invalidations_total",
            "counter",
            "Invalidations received from other gateways.",
            present.invalidations,
        ),
        (
            "penstock_cache_redis_refused_total",
            "counter",
            "Values in Redis that are no answer to the question, or are not signed by one of these gateways.",
            present.refused,
        ),
    ):
        yield f"{head(name, kind, text)}{name} {int(value)}\n"


def _worth(worth: Mapping[str, tuple[bool, float, int]]) -> Iterator[str]:
    models = [(f'{{model="{escape(name)}"}}', each) for name, each in worth.items()]
    name = "penstock_cache_enabled"
    yield head(name, "gauge", "1 where all requests ask the cache, 0 where only a sample does.")
    for labels, (enabled, _, _) in models:
        yield f"{name}{labels} {enabled:d}\n"
    name = "penstock_cache_worth_seconds"
    yield head(
        name, "gauge", "Computing time that a request saves by asking the cache, less the time to ask, mean."
    )
    for labels, (_, gain_us, _) in models:
        yield f"{name}{labels} {gain_us / 1e6:.6g}\n"
    name = "penstock_cache_bypassed_requests_total"
    yield head(name, "counter", "Requests that did not ask the cache, because asking it does not pay.")
    for labels, (_, _, bypassed) in models:
        yield f"{name}{labels} {bypassed}\n"


def _workers(ledger: Ledger) -> Iterator[str]:
    name = "penstock_event_loop_lag_seconds"
    yield head(
        name, "histogram", "Time from when a timer of the event loop was due to when it ran."
    ) + ledger.lag.block(name, "")
    name = "penstock_event_loop_stalls_total"
    yield head(name, "counter", "Times that the event loop stood still for a second or more.")
    yield f"{name} {ledger.stalls}\n"
    name = "penstock_event_loop_stall_max_seconds"
    yield head(name, "gauge", "The longest time that the event loop stood still since the start.")
    yield f"{name} {ledger.stall_max_us / 1e6}\n"
    for name, text, by_slice in (
        (
            "penstock_worker_restarts_total",
            "Worker processes that ended unexpectedly and were replaced.",
            ledger.restarts,
        ),
        (
            "penstock_worker_suspicions_total",
            "Times that a batch was so late that the scheduler no longer counted on its slice.",
            ledger.suspicions,
        ),
    ):
        samples = (f'{name}{{slice="{escape(each)}"}} {count}\n' for each, count in by_slice.items())
        yield head(name, "counter", text) + "".join(samples)
    for name, text, attribute in _LOAD_COUNTERS:
        loads = (f"{name}{{{each.labels}}} {getattr(each, attribute)}\n" for each in ledger.loads.values())
        yield head(name, "counter", text) + "".join(loads)
    name = "penstock_model_load_seconds_total"
    yield head(name, "counter", "Time that workers took to load replicas, first runs included.")
    yield "".join(f"{name}{{{each.labels}}} {each.load_us / 1e6}\n" for each in ledger.loads.values())
    name = "penstock_worker_memory_ended_total"
    yield head(name, "counter", "Workers ended above workers.memory_mb while the model was loaded in them.")
    yield "".join(f'{name}{{model="{escape(each)}"}} {count}\n' for each, count in ledger.overran.items())
    name = "penstock_output_refused_total"
    yield head(name, "counter", "Requests that failed because a guard refused their answer.")
    for (model, output), count in ledger.refused_outputs.items():
        yield f'{name}{{model="{escape(model)}",output="{escape(output)}"}} {count}\n'


def _states(present: Present) -> Iterator[str]:
    for name, text, count in (
        (
            "penstock_recorded_requests_total",
            "Requests with their arrival in a recording.",
            present.recorded[0],
        ),
        (
            "penstock_recording_dropped_total",
            "Requests missing from a recording.",
            present.recorded[1],
        ),
    ):
        yield f"{head(name, 'counter', text)}{name} {count}\n"
    yield head(
        "penstock_drift_findings", "gauge", "Differences from the desired state that the last check found."
    )
    yield f"penstock_drift_findings {present.drifted}\n"
    name = "penstock_replans_total"
    yield head(name, "counter", "Requests of control for another plan, by what became of them.")
    for outcome, count in present.replans.items():
        yield f'{name}{{outcome="{outcome}"}} {count}\n'
    yield head("penstock_open_requests", "gauge", "Accepted requests that have no answer yet.")
    yield f"penstock_open_requests {present.open_requests}\n"
    for place, what in enumerate(("rows", "requests")):
        name = f"penstock_queue_{what}"
        yield head(name, "gauge", f"{what.capitalize()} that wait for a batch at this moment.")
        for model, queued in present.queued.items():
            yield f'{name}{{model="{escape(model)}"}} {queued[place]}\n'
    yield head("penstock_replicas", "gauge", "Replicas by state.")
    for (model, state), count in present.replicas.items():
        yield f'penstock_replicas{{model="{escape(model)}",state="{escape(state)}"}} {count}\n'


def _profiles(judged: Sequence[Judgement]) -> Iterator[str]:
    places = [
        (f'model="{escape(each.model)}",variant="{escape(each.variant)}",slice="{escape(each.slice)}"', each)
        for each in judged
    ]
    name = "penstock_profile_state"
    yield head(
        name, "gauge", "1 for the state of a replica's profile by its latest batches, 0 for the other states."
    )
    for labels, each in places:
        states = ((state.value, each.freshness is state) for state in Freshness)
        yield "".join(f'{name}{{{labels},state="{state}"}} {said:d}\n' for state, said in states)
    name = "penstock_profile_ratio"
    yield head(name, "gauge", "Median of the latest batches' run over the profiled time.")
    for labels, each in places:
        for neighbours, ratio in (("idle", each.alone), ("busy", each.beside)):
            if ratio is not None:
                yield f'{name}{{{labels},neighbours="{neighbours}"}} {ratio:.4g}\n'
