"""Metrics: what is counted is what is exported, in valid text, with bounded labels."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.observing.telemetry import UNKNOWN, Present, RedisPresent, Telemetry
from router.observing.telemetry.counting.histogram import BATCH, DURATION
from router.observing.telemetry.observer import STEP_CHARACTERS
from serving.ports import Call
from serving.scheduler.commands import RunBatch
from serving.values.specs import DEFAULT_TENANT
from serving.values.vocabulary import (
    ALL_OUTCOMES,
    BAD_INPUT,
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DRAINING,
    FORBIDDEN,
    MODEL_ERROR,
    OVERLOAD,
    QUEUE_FULL,
    QUOTA,
    RATE_LIMITED,
    TOO_LARGE,
    UNAUTHENTICATED,
    UNKNOWN_MODEL,
    Outcome,
)
from tests.builders import model_spec, served
from tests.router.happenings import SLO_US, end, key, reply, request, run, samples, text

TENANTS = ("gold", DEFAULT_TENANT)
BOUNDS = DURATION.bounds

# around the bounds, where an observation could land in the wrong bucket, and around the deadline
latencies_us = st.sampled_from([b + d for b in (0, SLO_US, *BOUNDS) for d in (-1, 0, 1) if b + d >= 0])
endings = st.tuples(
    st.sampled_from(["a", "b"]),
    st.sampled_from(TENANTS),
    st.sampled_from(ALL_OUTCOMES),
    st.integers(1, 5),
    latencies_us,
)
Ending = tuple[str, str, Outcome, int, int]


def new(*names: str, tenants: Sequence[str] = TENANTS) -> Telemetry:
    models = [served(model_spec(name)) for name in names or ("a", "b")]
    return Telemetry(models, tenants, ["cpu0", "cpu1"])


def promised(outcome: Outcome, latency_us: int) -> bool:
    """The definition of docs/metrics.md, once more."""
    if outcome is CLIENT_GONE:
        return latency_us > SLO_US
    return outcome not in (BAD_INPUT, TOO_LARGE, UNKNOWN_MODEL, UNAUTHENTICATED, FORBIDDEN, RATE_LIMITED)


@pytest.mark.slow
@given(st.lists(endings, max_size=20))
@example([("a", "gold", CLIENT_GONE, 1, SLO_US), ("a", "gold", CLIENT_GONE, 1, SLO_US + 1)])
def test_every_request_is_counted_once_under_its_model_tenant_and_outcome(done: list[Ending]) -> None:
    telemetry = new()
    for model, tenant, outcome, rows, latency_us in done:
        end(telemetry, request(model, rows, tenant), outcome, latency_us)
    exported = samples(telemetry)
    for model, tenant in {(each[0], each[1]) for each in done}:
        own = [each for each in done if each[:2] == (model, tenant)]
        labels = {"model": model, "tenant": tenant}
        for outcome in ALL_OUTCOMES:
            ended = {"outcome": outcome.kind.value, "reason": outcome.reason.value}
            count = sum(each[2] is outcome for each in own)
            assert exported.get(key("penstock_requests_total", **labels, **ended), 0) == count
        completed = [each for each in own if each[2] is COMPLETED]
        good = [each for each in completed if each[4] <= SLO_US]
        offered = [each for each in own if promised(each[2], each[4])]
        for name, count in (
            ("offered_requests", len(offered)),
            ("goodput_requests", len(good)),
            ("slo_violations", len(offered) - len(good)),
            ("offered_rows", sum(each[3] for each in offered)),
            ("rows", sum(each[3] for each in completed)),
            ("goodput_rows", sum(each[3] for each in good)),
        ):
            assert exported[key(f"penstock_{name}_total", **labels)] == count, name


@pytest.mark.slow
@given(st.lists(latencies_us, max_size=30))
def test_duration_buckets_are_cumulative_and_hold_every_observation(observed_us: list[int]) -> None:
    telemetry = new()
    end(telemetry, request("a"), OVERLOAD)
    for latency_us in observed_us:
        end(telemetry, request("a"), COMPLETED, latency_us)
    exported = samples(telemetry)
    name, labels = "penstock_request_duration_seconds", {"model": "a", "tenant": DEFAULT_TENANT}
    for bound_us in BOUNDS:
        bucket = exported[key(f"{name}_bucket", **labels, le=str(bound_us / 1e6))]
        assert bucket == sum(latency_us <= bound_us for latency_us in observed_us)
    assert exported[key(f"{name}_bucket", **labels, le="+Inf")] == len(observed_us)
    assert exported[key(f"{name}_count", **labels)] == len(observed_us)
    assert exported[key(f"{name}_sum", **labels)] == pytest.approx(sum(observed_us) / 1e6)


def test_phases_of_completed_requests_add_up_within_their_duration() -> None:
    telemetry = new()
    telemetry.parsed("a", 40)
    telemetry.request_done(request("a"), reply(COMPLETED, 1_000, 300, 2_000), 3_500, True)
    telemetry.request_done(request("a"), reply(DEADLINE_QUEUED, 50_000), 50_000, False)
    exported = samples(telemetry)
    for name, seconds in (
        ("penstock_request_parse_seconds", 0.000_04),
        ("penstock_queue_wait_seconds", 0.001),
        ("penstock_batch_wait_seconds", 0.0003),
    ):
        assert exported[key(f"{name}_count", model="a")] == 1
        assert exported[key(f"{name}_sum", model="a")] == pytest.approx(seconds)
    assert exported[key("penstock_request_parse_seconds_bucket", model="a", le="0.00005")] == 1


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 10**6)), max_size=20))
def test_batches_are_counted_by_size_compute_time_and_prediction(done: list[tuple[int, int]]) -> None:
    telemetry = new()
    for rows, compute_us in done:
        run(telemetry, "b", "small", rows, compute_us)
    exported = samples(telemetry)
    labels = {"model": "b", "variant": "small"}
    for name in ("penstock_batch_rows", "penstock_batch_requests"):
        for bound in BATCH.bounds if done else ():
            bucket = exported[key(f"{name}_bucket", le=f"{bound}.0", **labels)]
            assert bucket == sum(rows <= bound for rows, _ in done)
        assert exported.get(key(f"{name}_count", **labels), 0) == len(done)
    compute_s = sum(us for _, us in done) / 1e6
    assert exported.get(key("penstock_batch_compute_seconds_sum", **labels), 0) == pytest.approx(compute_s)
    assert exported.get(key("penstock_batch_transport_seconds_count", **labels), 0) == len(done)
    name = "penstock_batch_observed_over_predicted_ratio"
    assert exported.get(key(f"{name}_bucket", le="1.0", **labels), 0) == sum(us <= 1_000 for _, us in done)
    assert exported.get(key(f"{name}_sum", **labels), 0) == pytest.approx(sum(us / 1000 for _, us in done))
    name = "penstock_batch_observed_over_typical_ratio"
    assert exported.get(key(f"{name}_sum", **labels), 0) == pytest.approx(sum(us / 500 for _, us in done))


def test_a_batch_that_nobody_predicted_has_no_ratio() -> None:
    telemetry = new()
    batch = RunBatch(1, "cpu0", [], 1)
    batch.model, batch.variant = "a", "x"
    telemetry.batch_done(batch, 100, 200)
    exported = samples(telemetry)
    labels = {"model": "a", "variant": "x"}
    assert exported[key("penstock_batch_rows_count", **labels)] == 1
    assert exported[key("penstock_batch_observed_over_predicted_ratio_count", **labels)] == 0
    assert exported[key("penstock_batch_observed_over_typical_ratio_count", **labels)] == 0


def test_names_that_clients_invent_add_no_labels() -> None:
    telemetry = new()
    telemetry.refused("first", "first", UNKNOWN_MODEL)
    size = len(samples(telemetry))
    for number in range(100):
        telemetry.refused(f"invented-{number}", f"invented-{number}", UNKNOWN_MODEL)
    exported = samples(telemetry)
    assert len(exported) == size
    labels = {"model": UNKNOWN, "tenant": DEFAULT_TENANT, "outcome": "rejected", "reason": "unknown_model"}
    assert exported[key("penstock_requests_total", **labels)] == 101


def test_a_model_may_be_called_unknown() -> None:
    telemetry = new(UNKNOWN)
    end(telemetry, request(UNKNOWN))
    telemetry.refused("nobody", DEFAULT_TENANT, UNKNOWN_MODEL)
    labels = {"model": UNKNOWN, "tenant": DEFAULT_TENANT, "outcome": "rejected", "reason": "unknown_model"}
    assert samples(telemetry)[key("penstock_requests_total", **labels)] == 1


def test_a_request_that_an_edge_refused_as_it_stops_was_offered_all_the_same() -> None:
    telemetry = new()
    telemetry.refused("a", "gold", DRAINING)
    counters = telemetry.counters("a", 0)
    assert (counters["offered"], counters["good"], counters["missed"]) == (1, 0, {"draining": 1})


def test_what_an_edge_refused_was_promised_nothing() -> None:
    telemetry = new()
    for outcome in (BAD_INPUT, TOO_LARGE, UNKNOWN_MODEL, UNAUTHENTICATED, FORBIDDEN, RATE_LIMITED):
        telemetry.refused("a", "gold", outcome)
    exported = samples(telemetry)
    labels = {"model": "a", "tenant": "gold"}
    ended = {"outcome": "rejected", "reason": "bad_input"}
    assert exported[key("penstock_requests_total", **labels, **ended)] == 1
    assert exported[key("penstock_offered_requests_total", **labels)] == 0


def test_only_pairs_that_were_seen_have_series() -> None:
    telemetry = new()
    end(telemetry, request("a", tenant="gold"))
    shown = text(telemetry)
    assert 'model="a",tenant="gold"' in shown
    assert 'tenant="default"' not in shown
    assert 'model="b",tenant=' not in shown


def test_many_tenants_share_a_models_histogram_of_durations_but_not_its_counters() -> None:
    telemetry = new(*(f"m{n}" for n in range(10)), tenants=[f"t{n}" for n in range(64)])
    for tenant in ("t1", "t2"):
        end(telemetry, request("m3", tenant=tenant))
    exported = samples(telemetry)
    assert exported[key("penstock_request_duration_seconds_count", model="m3")] == 2
    assert exported[key("penstock_goodput_requests_total", model="m3", tenant="t1")] == 1
    assert sum(dict(telemetry.snapshot(0))["m3"]["latency_counts"]) == 2


def test_names_with_quotes_and_backslashes_stay_valid_text() -> None:
    name = 'a"b\\c\nd'
    telemetry = new(name, tenants=(name,))
    end(telemetry, request(name, 3, name))
    run(telemetry, name, name, 2)
    telemetry.worker_restarted(name)
    exported = samples(telemetry)
    assert exported[key("penstock_rows_total", model=name, tenant=name)] == 3
    assert exported[key("penstock_batch_rows_sum", model=name, variant=name)] == 2
    assert exported[key("penstock_worker_restarts_total", slice=name)] == 1


def test_gauges_are_read_at_the_scrape() -> None:
    telemetry = new()
    worth = {"a": (True, 150.0, 0), "b": (False, -12.5, 40)}
    telemetry.read_present = lambda: Present(
        5, 3, {"a": (7, 2)}, {("a", "ready"): 2}, (40, 4), (9_000, 8, 6), worth
    )
    exported = samples(telemetry)
    assert exported[key("penstock_open_requests")] == 3
    assert exported[key("penstock_queue_rows", model="a")] == 7
    assert exported[key("penstock_queue_requests", model="a")] == 2
    assert exported[key("penstock_replicas", model="a", state="ready")] == 2
    assert exported[key("penstock_recorded_requests_total")] == 40
    assert exported[key("penstock_recording_dropped_total")] == 4
    assert exported[key("penstock_cache_bytes")] == 9_000
    assert exported[key("penstock_cache_entries")] == 8
    assert exported[key("penstock_cache_evictions_total")] == 6
    assert [exported[key("penstock_cache_enabled", model=name)] for name in "ab"] == [1, 0]
    assert [exported[key("penstock_cache_worth_seconds", model=name)] for name in "ab"] == [150e-6, -12.5e-6]
    assert exported[key("penstock_cache_bypassed_requests_total", model="b")] == 40
    telemetry.read_present = Present
    assert key("penstock_replicas", model="a", state="ready") not in samples(telemetry)


def test_what_the_cache_did_is_counted_by_model() -> None:
    telemetry = new()
    for result in ("miss", "join", "join", "hit"):
        telemetry.cache_asked("a", result, 3)
    exported = samples(telemetry)
    for result, count in (("miss", 1), ("join", 2), ("hit", 1)):
        assert exported[key("penstock_cache_requests_total", model="a", result=result)] == count
    assert 'penstock_cache_requests_total{model="b"' not in text(telemetry)


def test_looks_at_other_gateways_answers_are_counted_and_timed() -> None:
    telemetry = new()
    for result in ("miss", "hit", "hit", "taken", "timeout"):
        telemetry.cache_looked("a", result, 300)
    telemetry.cache_looked("a", "skipped", 0)
    assert "penstock_cache_redis" not in text(telemetry), "there is no Redis"
    telemetry.read_present = lambda: Present(redis=RedisPresent(False, 2, 30, 4, 5, 6))
    exported = samples(telemetry)
    counts = (("miss", 1), ("hit", 2), ("taken", 1), ("timeout", 1), ("skipped", 1))
    for result, count in counts:
        assert exported[key("penstock_cache_redis_looks_total", model="a", result=result)] == count
    assert exported[key("penstock_cache_redis_look_seconds_count", model="a")] == 5
    assert exported[key("penstock_cache_redis_look_seconds_sum", model="a")] == pytest.approx(5 * 300e-6)
    states = [exported[key(f"penstock_cache_redis_{name}")] for name in
              ("up", "trips_total", "writes_total", "dropped_total", "invalidations_total",
               "refused_total")]  # fmt: skip
    assert states == [0, 2, 30, 4, 5, 6]


@pytest.mark.parametrize("cache", ["hit", "join"])
def test_a_request_that_the_cache_answered_waited_for_no_slice_and_no_batch(cache: str) -> None:
    telemetry = new()
    kept = reply(COMPLETED)
    kept.cache = cache
    telemetry.request_done(request("a"), kept, 40, True)
    exported = samples(telemetry)
    labels = {"model": "a", "tenant": DEFAULT_TENANT}
    assert exported[key("penstock_goodput_requests_total", **labels)] == 1
    assert exported[key("penstock_request_duration_seconds_count", **labels)] == 1
    for name in ("penstock_queue_wait_seconds", "penstock_batch_wait_seconds"):
        assert exported[key(f"{name}_count", model="a")] == 0


def test_workers_are_counted_by_slice_from_zero() -> None:
    telemetry = new()
    telemetry.worker_restarted("cpu1")
    telemetry.worker_suspected("cpu1")
    telemetry.worker_suspected("cpu1")
    exported = samples(telemetry)
    for slice_name, restarts, suspicions in (("cpu0", 0, 0), ("cpu1", 1, 2)):
        assert exported[key("penstock_worker_restarts_total", slice=slice_name)] == restarts
        assert exported[key("penstock_worker_suspicions_total", slice=slice_name)] == suspicions


def test_the_process_and_its_event_loop_are_measured() -> None:
    telemetry = new()
    telemetry.observe_lag(3_000)
    exported = samples(telemetry)
    assert exported[key("process_resident_memory_bytes")] > 1 << 20
    assert exported[key("penstock_event_loop_lag_seconds_bucket", le="0.002")] == 0
    assert exported[key("penstock_event_loop_lag_seconds_bucket", le="0.005")] == 1


def test_the_promise_itself_is_exported() -> None:
    exported = samples(new())
    assert exported[key("penstock_slo_objective_ratio", model="a")] == 0.99
    assert exported[key("penstock_slo_latency_seconds", model="a")] == 0.05


def busy(telemetry: Telemetry) -> None:
    """Something in every metric."""
    for model in ("a", "b"):
        telemetry.parsed(model, 30)
        run(telemetry, model, "x", 3)
        for tenant in TENANTS:
            for outcome in ALL_OUTCOMES:
                end(telemetry, request(model, tenant=tenant), outcome)
        downgraded = reply()
        downgraded.accuracy, downgraded.downgrade = 0.9, "load"
        telemetry.request_done(request(model), downgraded, 1_000, True)
        telemetry.selected(Call(served(model_spec(model)), (), 1), downgraded, 1_000)


def test_names_follow_the_conventions() -> None:
    telemetry = new()
    busy(telemetry)
    heads = re.findall(r"^# (HELP|TYPE) (\S+) (.*)$", text(telemetry), re.MULTILINE)
    kinds = {name: rest for what, name, rest in heads if what == "TYPE"}
    assert [name for what, name, _ in heads if what == "HELP"] == list(kinds)
    assert len(heads) == 2 * len(kinds)  # each once
    for name, kind in kinds.items():
        if name.startswith("penstock_"):
            assert name.endswith("_total") == (kind == "counter"), name
            assert not name.endswith(("_us", "_ms"))


def test_no_step_of_a_scrape_is_long_and_together_they_are_all_of_it() -> None:
    telemetry = new(*(f"m{n}" for n in range(40)))
    for number in range(40):
        end(telemetry, request(f"m{number}"))
        run(telemetry, f"m{number}", "x", 3)
    steps = list(telemetry.steps())
    assert len(steps) > 10
    assert max(map(len, steps)) < 2 * STEP_CHARACTERS
    assert all(step.endswith(b"\n") for step in steps)  # a line is never cut


def test_a_scrape_that_is_overtaken_by_events_is_valid_and_its_histograms_agree() -> None:
    telemetry = new(*(f"m{n}" for n in range(40)), tenants=("gold", "late"))
    for number in range(40):
        end(telemetry, request(f"m{number}", tenant="gold"))
    pieces = []
    for count, step in enumerate(telemetry.steps()):
        pieces.append(step)
        for number in range(40):
            end(telemetry, request(f"m{number}", tenant="gold"))
            end(telemetry, request(f"m{number}", tenant="late"))
            run(telemetry, f"m{number}", f"x{count}", 3)
    whole = b"".join(pieces).decode()
    buckets = re.findall(r'^(\w+)_bucket\{(.*?),?le="\+Inf"\} (\d+)$', whole, re.MULTILINE)
    counts = re.findall(r"^(penstock_\w+)_count(?:\{(.*)\})? (\d+)$", whole, re.MULTILINE)
    assert len(buckets) > 100
    assert buckets == counts


def test_a_snapshot_sums_what_happened_to_a_model() -> None:
    telemetry = new()
    end(telemetry, request("a", 3, "gold"))
    end(telemetry, request("a", 2), COMPLETED, 40_000_000)
    for outcome in (QUEUE_FULL, QUOTA, DEADLINE_QUEUED, MODEL_ERROR, CLIENT_GONE, BAD_INPUT):
        end(telemetry, request("a"), outcome)
    end(telemetry, request("a", tenant="gold"), QUOTA)
    end(telemetry, request("a"), CLIENT_GONE, SLO_US + 1)
    run(telemetry, "a", "x", 4, 100)
    run(telemetry, "a", "y", 1, 50)
    counters = dict(telemetry.snapshot(40_000_000))["a"]
    assert (counters["requests"], counters["completed"], counters["cancelled"]) == (10, 2, 2)
    assert (counters["rejected"], counters["shed"], counters["failed"]) == (
        {"queue_full": 1, "quota": 2, "bad_input": 1},
        {"deadline_queued": 1},
        {"model_error": 1},
    )
    assert (counters["offered"], counters["good"]) == (8, 1)
    assert counters["missed"] == {
        "late": 1, "queue_full": 1, "quota": 2, "deadline_queued": 1, "model_error": 1, "client_gone": 1
    }  # fmt: skip
    assert sum(counters["missed"].values()) == counters["offered"] - counters["good"]
    assert counters["burn"]["6h"] == pytest.approx(7 / 8 / 0.01)
    assert (counters["rows"], counters["goodput_rows"]) == (5, 3)
    assert (counters["batches"], counters["batch_rows"], counters["compute_us"]) == (2, 5, 150)
    assert counters["latency_counts"][BOUNDS.index(1_000)] == 1
    assert counters["latency_counts"][-1] == 1


def test_a_model_that_nobody_asked_has_counters_all_the_same() -> None:
    counters = dict(new().snapshot(0))["b"]
    assert (counters["requests"], counters["burn"], sum(counters["latency_counts"])) == (0, {}, 0)
    assert len(counters["latency_counts"]) == len(BOUNDS) + 1
