"""Metrics: what is counted is what is exported, in valid text, with bounded labels."""

import asyncio
import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from router.telemetry import DURATION_BOUNDS_US, HEAD_BYTES_MAX, UNKNOWN, MetricsServer, Telemetry
from serving.vocabulary import (
    ALL_OUTCOMES,
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    MODEL_ERROR,
    QUEUE_FULL,
    Kind,
    Outcome,
)

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]

# around the bounds, where an observation could land in the wrong bucket
latencies_us = st.sampled_from([b + d for b in (0, *DURATION_BOUNDS_US) for d in (-1, 0, 1) if b + d >= 0])
requests = st.tuples(
    st.sampled_from(["a", "b", "absent"]),
    st.sampled_from(ALL_OUTCOMES),
    st.integers(1, 5),
    latencies_us,
    st.booleans(),
)


def samples(telemetry: Telemetry) -> Samples:
    """Every exported sample, by name and labels; fails where the text is not valid or repeats one."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(telemetry.render().decode()):
        assert family.documentation
        assert family.type != "unknown"
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def new() -> Telemetry:
    return Telemetry(["a", "b"], {"a": 8, "b": 6})


@pytest.mark.slow
@given(st.lists(requests, max_size=20))
def test_every_request_is_counted_once_under_its_model_and_outcome(
    done: list[tuple[str, Outcome, int, int, bool]],
) -> None:
    telemetry = new()
    for request in done:
        telemetry.request_done(*request)
    exported = samples(telemetry)
    for model in ("a", "b", UNKNOWN):
        own = [r for r in done if r[0] == model or (model == UNKNOWN and r[0] == "absent")]
        for outcome in ALL_OUTCOMES:
            labels = {"model": model, "outcome": outcome.kind.value, "reason": outcome.reason.value}
            count = sum(r[1] is outcome for r in own)
            assert exported.get(key("penstock_requests_total", **labels), 0) == count
        completed = [r for r in own if r[1] is COMPLETED]
        late = sum(not r[4] for r in completed)
        lost = sum(r[1].kind in (Kind.SHED, Kind.FAILED) for r in own)
        assert exported[key("penstock_rows_total", model=model)] == sum(r[2] for r in completed)
        assert exported[key("penstock_goodput_rows_total", model=model)] == sum(
            r[2] for r in completed if r[4]
        )
        assert exported[key("penstock_slo_violations_total", model=model)] == late + lost


@pytest.mark.slow
@given(st.lists(latencies_us, max_size=30))
def test_duration_buckets_are_cumulative_and_hold_every_observation(observed_us: list[int]) -> None:
    telemetry = new()
    for latency_us in observed_us:
        telemetry.request_done("a", COMPLETED, 1, latency_us, True)
    exported = samples(telemetry)
    name = "penstock_request_duration_seconds"
    for bound_us in DURATION_BOUNDS_US:
        bucket = exported[key(f"{name}_bucket", model="a", le=str(bound_us / 1e6))]
        assert bucket == sum(latency_us <= bound_us for latency_us in observed_us)
    assert exported[key(f"{name}_bucket", model="a", le="+Inf")] == len(observed_us)
    assert exported[key(f"{name}_count", model="a")] == len(observed_us)
    assert exported[key(f"{name}_sum", model="a")] == pytest.approx(sum(observed_us) / 1e6)
    assert exported[key(f"{name}_count", model="b")] == 0


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 10**6)), max_size=20))
def test_batches_are_counted_by_size_and_compute_time(done: list[tuple[int, int]]) -> None:
    telemetry = new()
    for rows, compute_us in done:
        telemetry.batch_done("b", "small", rows, compute_us)
    exported = samples(telemetry)
    labels = {"model": "b", "variant": "small"}
    for bound in (1, 2, 4, 6) if done else ():
        bucket = exported[key("penstock_batch_rows_bucket", le=f"{bound}.0", **labels)]
        assert bucket == sum(rows <= bound for rows, _ in done)
    assert exported.get(key("penstock_batch_rows_count", **labels), 0) == len(done)
    compute_s = exported.get(key("penstock_batch_compute_seconds_sum", **labels), 0)
    assert compute_s == pytest.approx(sum(us for _, us in done) / 1e6)


def test_names_that_clients_invent_add_no_labels() -> None:
    telemetry = new()
    telemetry.request_done("first", QUEUE_FULL, 1, 1, False)
    size = len(samples(telemetry))
    for number in range(100):
        telemetry.request_done(f"invented-{number}", QUEUE_FULL, 1, 1, False)
    assert len(samples(telemetry)) == size
    assert telemetry.snapshot()[UNKNOWN]["rejected"] == {"queue_full": 101}


def test_names_with_quotes_and_backslashes_stay_valid_text() -> None:
    name = 'a"b\\c\nd'
    telemetry = Telemetry([name], {})
    telemetry.request_done(name, COMPLETED, 3, 1, True)
    telemetry.batch_done(name, name, 2, 1)
    telemetry.worker_restarted(name)
    exported = samples(telemetry)
    assert exported[key("penstock_rows_total", model=name)] == 3
    assert exported[key("penstock_batch_rows_sum", model=name, variant=name)] == 2
    assert exported[key("penstock_worker_restarts_total", slice=name)] == 1


def test_gauges_are_read_at_the_scrape() -> None:
    telemetry, queue, replicas = new(), {"a": 0}, {("a", "loading"): 1}
    telemetry.read_gauges(lambda: queue, lambda: replicas)
    queue["a"] = 7
    replicas = {("a", "ready"): 2}
    exported = samples(telemetry)
    assert exported[key("penstock_queue_rows", model="a")] == 7
    assert exported[key("penstock_replicas", model="a", state="ready")] == 2
    assert key("penstock_replicas", model="a", state="loading") not in exported


def test_the_process_is_measured() -> None:
    assert samples(new())[key("process_resident_memory_bytes")] > 1 << 20


def test_a_snapshot_sums_what_happened_to_a_model() -> None:
    telemetry = new()
    telemetry.request_done("a", COMPLETED, 3, 1_000, True)
    telemetry.request_done("a", COMPLETED, 2, 40_000_000, False)
    for outcome in (QUEUE_FULL, DEADLINE_QUEUED, MODEL_ERROR, CLIENT_GONE):
        telemetry.request_done("a", outcome, 1, 10, False)
    telemetry.batch_done("a", "x", 4, 100)
    telemetry.batch_done("a", "y", 1, 50)
    counters = telemetry.snapshot()["a"]
    assert (counters["requests"], counters["completed"], counters["cancelled"]) == (6, 2, 1)
    assert (counters["rejected"], counters["shed"], counters["failed"]) == (
        {"queue_full": 1},
        {"deadline_queued": 1},
        {"model_error": 1},
    )
    assert (counters["rows"], counters["goodput_rows"], counters["violations"]) == (5, 3, 3)
    assert (counters["batches"], counters["batch_rows"], counters["compute_us"]) == (2, 5, 150)
    assert counters["latency_counts"][DURATION_BOUNDS_US.index(1_000)] == 1
    assert counters["latency_counts"][-1] == 1


async def exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "status", "part"),
    [
        (b"GET /metrics HTTP/1.1", b"200 OK", b"# TYPE penstock_requests_total counter"),
        (b"GET /metrics?name[]=up HTTP/1.1", b"200 OK", b"penstock_rows_total"),
        (b"GET /other HTTP/1.1", b"404 Not Found", b"Metrics are at /metrics."),
        (b"POST /metrics HTTP/1.1", b"405 Method Not Allowed", b"Use GET"),
        (b"nonsense", b"404 Not Found", b"/metrics"),
    ],
)
async def test_metrics_are_served_at_their_path_only(request_line: bytes, status: bytes, part: bytes) -> None:
    server = MetricsServer(new())
    port = await server.start("127.0.0.1", 0)
    head, _, body = (await exchange(port, request_line + b"\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")
    await server.stop()
    assert head.startswith(b"HTTP/1.1 " + status)
    assert f"Content-Length: {len(body)}".encode() in head
    assert part in body


async def test_head_says_the_length_without_the_text() -> None:
    server = MetricsServer(new())
    port = await server.start("127.0.0.1", 0)
    head, _, body = (await exchange(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
    await server.stop()
    assert b"200 OK" in head
    assert body == b""


async def test_an_endless_head_is_cut_off_and_the_next_scrape_answered() -> None:
    server = MetricsServer(new())
    port = await server.start("127.0.0.1", 0)
    with contextlib.suppress(ConnectionResetError):  # as good an end: bytes were left unread
        assert await exchange(port, b"GET /metrics HTTP/1.1\r\nx: " + b"y" * (HEAD_BYTES_MAX + 1)) == b""
    assert b"200 OK" in await exchange(port, b"GET /metrics HTTP/1.1\r\n\r\n")
    await server.stop()


async def test_stopping_ends_what_is_connected_and_leaves_no_task_behind() -> None:
    server = MetricsServer(new())
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert b"200 OK" in await exchange(port, b"GET /metrics HTTP/1.1\r\n\r\n")  # accepted after the other
    await server.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()


async def test_a_taken_port_is_an_error_that_names_it() -> None:
    server = MetricsServer(new())
    port = await server.start("127.0.0.1", 0)
    with pytest.raises(OSError, match=f"cannot serve metrics on 127.0.0.1:{port}"):
        await MetricsServer(new()).start("127.0.0.1", port)
    await server.stop()
