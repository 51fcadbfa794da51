"""`penstock status`: two readings become rates, and an unreachable gateway one clear line."""

import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from router.status import ModelStatus, Replica, SliceStatus, Status, describe, percentile_us, render, watch
from router.telemetry import Telemetry
from serving.ports import Serving
from serving.vocabulary import COMPLETED, DEADLINE_QUEUED, QUEUE_FULL


def status(telemetry: Telemetry, uptime_s: float, queue_rows: int = 0) -> Status:
    replicas: list[Replica] = [
        {"model": "digits", "variant": "cnn", "slice": "cpu0", "state": "ready"},
        {"model": "digits", "variant": "cnn", "slice": "cpu1", "state": "loading"},
        {"model": "minilm", "variant": "fp32-128", "slice": "cpu1", "state": "loading"},
    ]
    slices: list[SliceStatus] = [
        {"name": "cpu0", "state": "ready", "pid": 4711, "restarts": 0},
        {"name": "cpu1", "state": "waiting to restart", "pid": None, "restarts": 3},
    ]
    models = {
        "digits": SimpleNamespace(slo_us=50_000, variants=("linear", "cnn"), answering_variant="cnn"),
        "minilm": SimpleNamespace(slo_us=2_500_000, variants=("fp32-128",), answering_variant="fp32-128"),
    }
    serving = SimpleNamespace(
        models=models, ready=False, open_requests=3, model_ready=lambda name: name == "digits"
    )
    counters = telemetry.snapshot()
    return describe(cast(Serving, serving), counters, {"digits": queue_rows}, replicas, slices, uptime_s)


def new() -> Telemetry:
    return Telemetry(["digits", "minilm"], {})


def text(previous: Status | None, current: Status, elapsed_s: float) -> str:
    console = Console(width=150, force_terminal=False)
    with console.capture() as capture:
        console.print(render(previous, current, elapsed_s))
    return capture.get()


def cells(shown: str, model: str) -> dict[str, str]:
    """A model's line of the table, by column title."""
    lines = [re.split(" {2,}", line.strip()) for line in shown.splitlines()]
    titles = next(line for line in lines if line[0] == "model")
    return dict(zip(titles, next(line for line in lines if line[0] == model), strict=True))


def test_rates_are_those_between_two_readings() -> None:
    telemetry = new()
    for _ in range(1000):
        telemetry.request_done("digits", COMPLETED, 9, 900_000, False)
    telemetry.batch_done("digits", "cnn", 99, 1)
    before = status(telemetry, 100.0)
    for _ in range(30):
        telemetry.request_done("digits", COMPLETED, 2, 4_000, True)
    for _ in range(5):
        telemetry.request_done("digits", COMPLETED, 2, 60_000, False)
    for _ in range(3):
        telemetry.request_done("digits", QUEUE_FULL, 1, 10, False)
    for _ in range(2):
        telemetry.request_done("digits", DEADLINE_QUEUED, 1, 50_000, False)
    telemetry.batch_done("digits", "cnn", 4, 1_000)
    telemetry.batch_done("digits", "linear", 7, 1_000)
    shown = text(before, status(telemetry, 102.0, queue_rows=12), 2.0)
    row = cells(shown, "digits")
    assert (row["state"], row["variant"], row["replicas"], row["queued"]) == ("ready", "cnn", "1/2", "12")
    assert (row["req/s"], row["rows/s"], row["done %"]) == ("20.0", "35.0", "87.5")  # 40, 70 in 2 s; 35 of 40
    assert row["missed %"] == "18.9"  # 5 late and 2 shed of the 37 that were accepted
    assert (row["batch"], row["SLO ms"]) == ("5.5", "50")
    assert 3 <= float(row["p50 ms"]) <= 5
    assert 50 <= float(row["p99 ms"]) <= 75
    assert "of the last 2.0 s" in shown


def test_a_single_reading_shows_rates_since_the_start() -> None:
    telemetry = new()
    for _ in range(50):
        telemetry.request_done("digits", COMPLETED, 1, 4_000, True)
    shown = text(None, status(telemetry, 10.0), 0.0)
    assert "since the start" in shown
    assert cells(shown, "digits")["req/s"] == "5.0"


def test_a_restart_between_two_readings_shows_no_negative_rates() -> None:
    old, fresh = new(), new()
    for _ in range(50):
        old.request_done("digits", COMPLETED, 1, 4_000, True)
    fresh.request_done("digits", COMPLETED, 1, 4_000, True)
    shown = text(status(old, 500.0), status(fresh, 0.5), 1.0)
    assert cells(shown, "digits")["req/s"] == "2.0"


def test_an_idle_model_shows_dashes_not_zeros() -> None:
    row = cells(text(None, status(new(), 10.0), 0.0), "minilm")
    assert (row["state"], row["replicas"], row["req/s"]) == ("not ready", "0/1", "0.0")
    assert [row[title] for title in ("done %", "missed %", "batch", "p50 ms", "p99 ms")] == ["-"] * 5
    assert row["SLO ms"] == "2500"


def test_workers_are_shown_with_their_restarts() -> None:
    shown = text(None, status(new(), 3725.0), 0.0)
    assert "not ready, up 1 h 02 min" in shown
    assert any("cpu0" in line and "4711" in line for line in shown.splitlines())
    assert any("cpu1" in line and "waiting to restart" in line and "3" in line for line in shown.splitlines())


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=30),
    st.sets(st.integers(1, 60), min_size=1, max_size=8).map(sorted),
    st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]),
)
def test_a_percentile_lies_in_the_bucket_of_the_true_one(
    values: list[int], bounds: list[int], share: float
) -> None:
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[sum(bound < value for bound in bounds)] += 1
    found = percentile_us(bounds, counts, share)
    rank = share * len(values)
    true = next(v for place, v in enumerate(sorted(values), 1) if place >= rank)
    place = sum(bound < true for bound in bounds)
    lower, upper = ([0, *bounds][place], bounds[place] if place < len(bounds) else bounds[-1])
    assert found is not None
    assert lower <= found <= upper


def test_nothing_counted_has_no_percentile() -> None:
    assert percentile_us([1, 2], [0, 0, 0], 0.5) is None


@contextmanager
def gateway(code: int, body: bytes) -> Iterator[str]:
    """An HTTP server that gives every request that answer; yields its URL."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code if self.path == "/v2/status" else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_once_prints_one_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    with gateway(200, json.dumps(status(new(), 1.0)).encode()) as url:
        assert watch(url + "/", 1.0, once=True) == 0
    shown = capsys.readouterr().out
    assert cells(shown, "digits")["variant"] == "cnn"


def test_json_is_the_status_itself(capsys: pytest.CaptureFixture[str]) -> None:
    current = status(new(), 1.0)
    with gateway(200, json.dumps(current).encode()) as url:
        assert watch(url, 1.0, once=False, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == current


@pytest.mark.parametrize(
    ("code", "body", "part"),
    [
        (404, b"{}", "answered 404: is this the REST port of a gateway?"),
        (200, b"<html>", "No gateway at http://127.0.0.1:"),
        (200, b"[]", "its answer is no status of a gateway"),
    ],
)
def test_a_server_that_is_no_gateway_is_one_line_of_error(
    capsys: pytest.CaptureFixture[str], code: int, body: bytes, part: str
) -> None:
    with gateway(code, body) as url:
        assert watch(url, 1.0, once=True) == 1
    captured = capsys.readouterr()
    assert part in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("http://127.0.0.1:1", "No gateway at http://127.0.0.1:1 ([Errno 111] Connection refused)"),
        ("localhost:8000", "'localhost:8000' is no gateway address"),
        ("file:///etc/passwd", "is no gateway address"),
    ],
)
def test_no_gateway_is_one_line_of_error(capsys: pytest.CaptureFixture[str], url: str, part: str) -> None:
    assert watch(url, 1.0, once=False) == 1
    assert part in capsys.readouterr().err


def test_a_status_survives_json() -> None:
    current = status(new(), 1.0)
    models: list[ModelStatus] = json.loads(json.dumps(current))["models"]
    assert models == current["models"]
