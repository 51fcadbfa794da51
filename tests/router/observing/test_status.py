"""`penstock status`: two readings become rates, and an unreachable gateway one clear line."""

import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from router.observing.cache_status import CacheStatus
from router.observing.status import (
    ModelStatus,
    ReplicaBody,
    SliceStatus,
    Status,
    describe,
    gpu_status,
    mig_status,
    percentile_us,
    render,
    watch,
)
from router.observing.telemetry import Telemetry
from serving.policy.device_health import GpuReading
from serving.policy.placement.terms.geometry import H200_141
from serving.ports import Serving
from serving.runtime.slicing.mig.layout import layout_on_paper
from serving.values.vocabulary import (
    ALL_OUTCOMES,
    BAD_INPUT,
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    OVERLOAD,
    QUEUE_FULL,
    QUOTA,
    Outcome,
)
from tests.builders import model_spec, served
from tests.router.happenings import end, reply, request, run
from tests.seeds import drawn

HOUR_US = 3_600_000_000


def replica(
    model: str, variant: str, slice_name: str, state: str, profile: tuple[str, float] = ("fresh", 1.0)
) -> ReplicaBody:
    """`profile`: what its batches say of it, and what they take over it."""
    freshness, ratio = profile
    return {
        "model": model,
        "variant": variant,
        "slice": slice_name,
        "state": state,
        "profile": freshness,
        "profile_ratio": ratio,
        "renewing": freshness == "stale",
    }


def status(telemetry: Telemetry, uptime_s: float, queue_rows: int = 0) -> Status:
    replicas = [
        replica("digits", "cnn", "cpu0", "ready"),
        replica("digits", "cnn", "cpu1", "loading"),
        replica("minilm", "fp32-128", "cpu1", "loading"),
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
    counters = dict(telemetry.snapshot(round(uptime_s * 1e6)))
    return describe(cast(Serving, serving), counters, {"digits": queue_rows}, replicas, slices, uptime_s)


def new() -> Telemetry:
    return Telemetry([served(model_spec("digits")), served(model_spec("minilm"))])


def ask(
    telemetry: Telemetry,
    count: int,
    outcome: Outcome = COMPLETED,
    latency_us: int = 4_000,
    rows: int = 1,
    at_us: int = 0,
) -> None:
    """So many requests for digits end in the same way."""
    for _ in range(count):
        end(telemetry, request("digits", rows, arrived_us=at_us), outcome, latency_us)


def text(previous: Status | None, current: Status, elapsed_s: float, width: int = 150) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(render(previous, current, elapsed_s, width))
    return capture.get()


def cells(shown: str, model: str) -> dict[str, str]:
    """A model's line of the table, by column title."""
    lines = [re.split(" {2,}", line.strip()) for line in shown.splitlines()]
    titles = next(line for line in lines if line[0] == "model")
    return dict(zip(titles, next(line for line in lines if line[0] == model), strict=True))


def endings(shown: str) -> dict[str, str]:
    """The lines that say how requests ended, by model."""
    lines = [line.strip() for line in shown.splitlines()]
    if "not completed in time, % of requests:" not in lines:
        return {}
    start = lines.index("not completed in time, % of requests:") + 1
    found = [re.split(" {2,}", line, maxsplit=1) for line in takewhile(bool, lines[start:])]
    return {name: how for name, how in found}  # noqa: C416  a line without both parts is an error


def test_rates_are_those_between_two_readings() -> None:
    telemetry = new()
    ask(telemetry, 1000, latency_us=900_000, rows=9)
    run(telemetry, "digits", "cnn", 99)
    before = status(telemetry, 100.0)
    ask(telemetry, 30, rows=2)
    ask(telemetry, 5, latency_us=60_000, rows=2)
    ask(telemetry, 3, QUEUE_FULL)
    ask(telemetry, 2, DEADLINE_QUEUED)
    run(telemetry, "digits", "cnn", 4)
    run(telemetry, "digits", "linear", 7)
    shown = text(before, status(telemetry, 102.0, queue_rows=12), 2.0)
    row = cells(shown, "digits")
    assert (row["state"], row["variant"], row["replicas"], row["queued"]) == ("ready", "cnn", "1/2", "12")
    assert (row["req/s"], row["rows/s"], row["in time %"]) == ("20.0", "35.0", "75.0")  # 30 of 40
    assert endings(shown) == {"digits": "late 12.5, queue_full 7.5, deadline_queued 5.0"}
    assert (row["batch"], row["SLO ms"]) == ("5.5", "50")
    assert 3 <= float(row["p50 ms"]) <= 5
    assert 50 <= float(row["p99 ms"]) <= 75
    assert "of the last 2.0 s" in shown


def test_bad_input_and_departures_break_no_promise_but_are_shown() -> None:
    telemetry = new()
    ask(telemetry, 7)
    ask(telemetry, 2, BAD_INPUT)
    ask(telemetry, 1, CLIENT_GONE)
    shown = text(None, status(telemetry, 10.0), 0.0)
    assert cells(shown, "digits")["in time %"] == "100.0"
    assert endings(shown) == {"digits": "bad_input 20.0, client_gone 10.0"}


def test_the_burn_is_that_of_the_last_hour() -> None:
    telemetry = new()
    ask(telemetry, 10, OVERLOAD)
    ask(telemetry, 97, at_us=2 * HOUR_US)
    ask(telemetry, 3, QUOTA, at_us=2 * HOUR_US)
    assert cells(text(None, status(telemetry, 2 * 3600), 0.0), "digits")["burn 1h"] == "3.0"


def test_endings_of_the_worst_models_only_are_shown_a_line_each() -> None:
    names = [f"m{number}" for number in range(20)]
    telemetry = Telemetry([served(model_spec(name)) for name in names])
    for number, name in enumerate(names):
        for outcome in ALL_OUTCOMES * number:
            end(telemetry, request(name), outcome)
    before = status(new(), 1.0)
    current: Status = {**before, "models": []}
    for name, counters in telemetry.snapshot(0):
        current["models"].append({**before["models"][0], "name": name, "counters": counters})
    shown = text(None, current, 0.0, width=100)
    assert list(endings(shown)) == names[:-9:-1]
    assert max(map(len, shown.splitlines())) <= 100
    assert len(shown.splitlines()) < 20 + 8 + 2 + 16  # models, endings, slices, and what is around them


def test_a_single_reading_shows_rates_since_the_start() -> None:
    telemetry = new()
    ask(telemetry, 50)
    shown = text(None, status(telemetry, 10.0), 0.0)
    assert "since the start" in shown
    assert cells(shown, "digits")["req/s"] == "5.0"


def test_a_restart_between_two_readings_shows_no_negative_rates() -> None:
    old, fresh = new(), new()
    ask(old, 50)
    ask(fresh, 1)
    shown = text(status(old, 500.0), status(fresh, 0.5), 1.0)
    assert cells(shown, "digits")["req/s"] == "2.0"


@settings(max_examples=drawn(50))
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
        ("127.0.0.1:1", "No gateway at http://127.0.0.1:1 ([Errno 111] Connection refused)"),
        ("one two", "'one two' is no gateway address; expected something like http://127.0.0.1:8000."),
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


def answer(
    telemetry: Telemetry, count: int, variant: str, accuracy: float, rows: int = 1, why: str = ""
) -> None:
    """So many requests for digits are answered by the variant."""
    for _ in range(count):
        made = reply(COMPLETED)
        made.variant, made.accuracy, made.downgrade = variant, accuracy, why
        telemetry.request_done(request("digits", rows), made, 1_000, True)


def test_one_variant_of_those_that_may_answer_is_shown_alone() -> None:
    telemetry = new()
    answer(telemetry, 5, "cnn", 0.98)
    before = status(telemetry, 100.0)
    answer(telemetry, 5, "mlp", 0.95)
    row = cells(text(before, status(telemetry, 101.0), 1.0), "digits")
    assert (row["variant"], row["accuracy"], row["down %"]) == ("mlp", "0.9500", "0.0")


def test_where_one_variant_of_each_model_answers_no_columns_speak_of_others() -> None:
    telemetry = new()
    answer(telemetry, 5, "cnn", 0.98)
    assert "accuracy" not in cells(text(None, status(telemetry, 100.0), 1.0), "digits")


def test_why_a_replica_is_not_there_is_said_once() -> None:
    current = status(new(), 10.0)
    current["models"][0]["replicas"][1] |= {"state": "failed", "reason": "OSError: no weights (model.py:9)"}
    why = "digits cnn is failed on cpu1: OSError: no weights (model.py:9)"
    lost = "the worker of slice cpu2 is lost"
    current["move"] = {
        "state": "steady", "step": 1, "steps": 1, "reasons": [why, lost], "waiting": [], "refused": [],
    }  # fmt: skip
    shown = text(None, current, 0.0)
    assert [shown.count(each) for each in (why, "no weights", lost)] == [1, 1, 1]


def cached(hits: int, joins: int, misses: int, **more: object) -> CacheStatus:
    made = {"kept": True, "pays": True, "hits": hits, "joins": joins, "misses": misses, "differs": {}}
    return cast(CacheStatus, {**made, **more})


def test_where_answers_are_kept_the_share_that_was_is_shown_of_what_happened_since() -> None:
    before, current = status(new(), 10.0), status(new(), 11.0)
    assert "kept answers" not in text(before, current, 1.0)
    before["models"][0]["cache"] = cached(1000, 0, 1)
    current["models"][0]["cache"] = cached(1030, 5, 16)
    current["models"][1]["cache"] = cached(0, 0, 0, pays=False)
    lines = [line.strip() for line in text(before, current, 1.0).splitlines()]
    start = lines.index("kept answers, % of the requests that asked the cache:") + 1
    assert lines[start : start + 3] == [
        "digits   60.0 % had a kept answer, 10.0 % waited for an equal one, of 50",
        "minilm   the cache is on, no request asked it; it does not pay here: only one question in 32 asks",
        "",
    ]


def busy() -> Status:
    """Long names, several variants, large numbers."""
    telemetry = new()
    answer(telemetry, 60_000, "a-rather-long-variant", 0.98, rows=20)
    answer(telemetry, 25_000, "another-long-variant", 0.95, rows=8, why="load")
    answer(telemetry, 15_000, "third", 0.9)
    current = status(telemetry, 10.0, queue_rows=12_345)
    current["models"][1]["name"] = "identity-of-all"
    return current


@pytest.mark.parametrize("width", [80, 100, 120, 124, 200])
def test_no_name_is_cut_and_no_line_too_long_on_any_terminal(width: int) -> None:
    shown = text(None, busy(), 0.0, width=width)
    assert all(len(line.rstrip()) <= width for line in shown.splitlines())
    titles, row = (
        next(line for line in shown.splitlines() if name in line) for name in ("model ", "identity-")
    )
    assert " identity-of-all " in row
    assert "…" not in row
    assert all(title in titles for title in ("state", "queued", "req/s", "in time %", "p99 ms", "SLO ms"))


def test_all_columns_are_shown_where_there_is_room_and_the_least_telling_go_first() -> None:
    all_of_them = cells(text(None, busy(), 0.0, width=260), "digits").keys()
    assert {"batch", "rows/s", "down %", "accuracy", "burn 1h", "variant", "replicas"} <= all_of_them
    usual = status(new(), 10.0)
    assert "batch" in cells(text(None, usual, 0.0, width=124), "digits")
    fewer = text(None, usual, 0.0, width=80)
    assert "batch" not in fewer
    assert all(title in fewer for title in ("replicas", "queued", "in time %", "p50 ms", "p99 ms", "SLO ms"))


def test_gpus_have_a_row_each_and_none_where_slices_use_none() -> None:
    hot = GpuReading(
        "GPU-74d43ed3-cdf7", 0, "NVIDIA H200", memory_bytes=141 << 30, memory_used_bytes=3 << 29,
        used_percent=37, temperature_c=88, power_w=690.4, throttled=("heat",),
    )  # fmt: skip
    silent = GpuReading("GPU-2", 1, "NVIDIA H200")
    there: Status = {
        "ready": True, "uptime_s": 1.0, "open_requests": 0, "models": [], "slices": [],
        "gpus": [
            gpu_status(hot, {"a": "mps:30", "b": "mps:30", "c": "mps:20"}, {}),
            gpu_status(silent, {}, {"GPU-2": "GPU 1: XID 79"}),
        ],
    }  # fmt: skip
    console = Console(width=180)
    with console.capture() as captured:
        console.print(render(None, there, 1.0))
    lines = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert "NVIDIA H200 GPU-74d43ed3 2x mps:30, mps:20 1.5/141.0 37 88 690 throttled, heat" in lines
    assert "NVIDIA H200 GPU-2 - -/- - - - lost, GPU 1: XID 79" in lines
    layout = layout_on_paper(H200_141, {"a": "2g.35gb", "b": "2g.35gb", "c": "1g.18gb"})
    assert layout is not None
    there["gpus"][0] |= {"rehearsed": True, "mig": mig_status(layout, {"a": "a", "b": "b"}, {})}
    with console.capture() as captured:
        console.print(render(None, there, 1.0))
    shown = " ".join(captured.get().split())
    assert "2x mig:2g.35gb at 0 2, mig:1g.18gb at 6, unused, room for 2g.35gb" in shown
    assert "throttled, rehearsed, heat" in shown
    del there["gpus"]
    with console.capture() as captured:
        console.print(render(None, there, 1.0))
    assert "GPU" not in captured.get()


def test_a_promise_that_is_broken_now_is_said_with_how_most_requests_ended() -> None:
    telemetry = new()
    ask(telemetry, 70)
    ask(telemetry, 30, OVERLOAD)
    now = status(telemetry, 60)
    now["models"][0]["objective"] = 0.99
    shown = text(None, now, 0.0)
    assert "digits answers 70.0 % in time (5m), 99 % within" in shown
    quiet = status(new(), 60)
    quiet["models"][0]["objective"] = 0.99
    assert "% in time (5m)" not in text(None, quiet, 0.0)
