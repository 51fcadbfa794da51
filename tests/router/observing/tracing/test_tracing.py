"""Which requests are traced, and that a full thread drops traces instead of holding requests up."""

import json
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from router.observing.telemetry.counting.journal import Entry
from router.observing.tracing import writer as writing
from router.observing.tracing.tracing import MISSED_PER_S, Tracing
from router.observing.tracing.triton_file import events_of
from router.observing.tracing.triton_settings import TraceSettings
from router.observing.tracing.writer import WAITING_MAX, Traced, Writer
from router.settings.door.tracing import TracingSettings
from serving.ports import Call
from serving.scheduler.waiting.requests import Request
from serving.values.traces import trace_context
from serving.values.vocabulary import COMPLETED, OVERLOAD, Outcome
from tests.builders import served
from tests.router.happenings import reply, request

OTLP = "http://localhost:4318/v1/traces"
SAMPLED = f"00-{'a' * 32}-{'b' * 16}-01"
UNSAMPLED = f"00-{'a' * 32}-{'b' * 16}-00"


class Kept:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.traced: list[Traced] = []
        self.dropped = 0

    def put(self, traced: Traced) -> bool:
        self.traced.append(traced)
        return True

    def close(self) -> None: ...


def ended(outcome: Outcome = COMPLETED, within: bool = True, model: str = "digits") -> Entry:
    asked = request(model, arrived_us=5_000)
    asked.name = "mine"
    answered = reply(outcome)
    answered.queue_us, answered.compute_us, answered.input_us, answered.output_us = 3_000, 2_000, 500, 100
    return Entry(asked, answered, 6_000, within)


def tracing(writer: Kept, now_s: float = 1.0, **settings: object) -> Tracing:
    stated = TracingSettings(**{"otlp": OTLP, "sample": 0.0, "missed": False, **settings})  # type: ignore[arg-type]
    return Tracing(stated, 1_000_000, writer, 1, lambda: now_s)  # type: ignore[arg-type]


def test_the_client_decides_where_it_says_so() -> None:
    kept = Kept()
    made = tracing(kept, sample=1.0)
    assert made.ended(ended(), SAMPLED) == "a" * 32
    assert made.ended(ended(), UNSAMPLED) == ""
    assert [each.parent for each in kept.traced] == [SAMPLED]


def test_a_share_of_the_rest_is_traced_and_each_has_a_trace_of_its_own() -> None:
    kept = Kept()
    made = tracing(kept, sample=0.2)
    found = [made.ended(ended(), "") for _ in range(2000)]
    ids = [each for each in found if each]
    assert 300 < len(ids) < 500
    assert len(set(ids)) == len(ids) == len(kept.traced)
    assert all(len(each) == 32 for each in ids)


def asked(trace: str) -> Request:
    made = request("digits")
    made.trace = trace
    return made


def test_another_server_gets_the_span_that_the_request_then_has() -> None:
    kept = Kept()
    made = tracing(kept)
    one = asked(SAMPLED)
    sent = made.below(one)
    assert trace_context(sent, "").parent == sent
    assert sent[:36] == SAMPLED[:36]
    assert sent != SAMPLED
    assert made.below(one) == sent, "it is in several batches"
    assert made.ended(ended(), one.trace, one.below) == "a" * 32
    assert [(each.parent, each.span) for each in kept.traced] == [(SAMPLED, sent[36:52])]


def test_chance_is_asked_once_whether_another_server_is_or_not() -> None:
    kept = Kept()
    made = tracing(kept, sample=0.2)
    sent = [asked("") for _ in range(2000)]
    below = [made.below(each) for each in sent]
    found = [made.ended(ended(), each.trace, each.below) for each in sent]
    assert [each[3:35] for each in below] == found
    assert 300 < len(kept.traced) < 500
    assert [f"00-{each.trace}-{each.span}-01" for each in kept.traced] == [each for each in below if each]


def test_what_is_not_sampled_goes_on_as_it_came_and_is_traced_alone_if_it_misses() -> None:
    kept = Kept()
    made = tracing(kept, missed=True)
    for trace in ("", UNSAMPLED):
        one = asked(trace)
        assert made.below(one) == trace
        assert made.ended(ended(), one.trace, one.below) == ""
        assert made.ended(ended(within=False), one.trace, one.below)
    assert [(each.parent, each.span) for each in kept.traced] == [("", ""), (UNSAMPLED, "")]


def test_a_gateway_that_makes_no_spans_passes_on_what_came(tmp_path: Path) -> None:
    made = tracing(Kept(), otlp="", sample=1.0, file=tmp_path / "traces.json")
    assert [made.below(asked(each)) for each in ("", SAMPLED, UNSAMPLED)] == ["", SAMPLED, UNSAMPLED]


def call_of(trace: str) -> Call:
    made = Call(served(), (), 1)
    made.trace, made.arrived_us, made.name = trace, 1, "mine"
    return made


def test_a_call_for_another_cell_is_traced_here_if_its_client_samples_it(tmp_path: Path) -> None:
    kept = Kept()
    made = tracing(kept, sample=1.0, missed=True)
    assert [made.span(call_of(each)) for each in ("", UNSAMPLED)] == ["", ""], "that cell decides"
    assert tracing(kept, otlp="", file=tmp_path / "t").span(call_of(SAMPLED)) == ""
    call = call_of(SAMPLED)
    call.trace = span = made.span(call)
    made.passed(call, SAMPLED, "west", reply())
    (traced,) = kept.traced
    assert (traced.parent, traced.trace, traced.span) == (SAMPLED, "a" * 32, span[36:52])
    assert (traced.cell, traced.entry.name, traced.entry.latency_us > 0) == ("west", "mine", True)
    assert not traced.entry.within


@pytest.mark.parametrize(("outcome", "within"), [(OVERLOAD, False), (COMPLETED, False)])
def test_what_missed_its_promise_is_traced_too_within_a_bound(outcome: Outcome, within: bool) -> None:
    kept = Kept()
    made = tracing(kept, missed=True)
    for _ in range(3 * MISSED_PER_S):
        made.ended(ended(outcome, within), UNSAMPLED)
        made.ended(ended(), "")
    assert len(kept.traced) == MISSED_PER_S


def test_without_a_collector_nothing_is_sampled_and_without_levels_nothing_is_written(tmp_path: Path) -> None:
    kept = Kept()
    made = tracing(kept, otlp="", sample=1.0, file=tmp_path / "traces.json")
    assert made.ended(ended(), SAMPLED) == ""
    assert kept.traced == []
    assert made.triton is not None
    made.triton.change("", {"trace_level": "TIMESTAMPS", "trace_rate": "1"})
    made.ended(ended(), "")
    assert [(each.trace, each.file) for each in kept.traced] == [("", str(tmp_path / "traces.json"))]


def test_rate_count_and_frequency_are_of_a_model_or_of_all(tmp_path: Path) -> None:
    settings = TraceSettings(tmp_path / "t")
    assert settings.take("m") == ""
    settings.change("", {"trace_level": "TIMESTAMPS", "trace_rate": "2", "log_frequency": "2"})
    assert [settings.take("m") for _ in range(6)] == [
        f"{tmp_path}/t.0",
        "",
        f"{tmp_path}/t.0",
        "",
        f"{tmp_path}/t.1",
        "",
    ]
    settings.change("m", {"trace_rate": "1", "trace_count": "2", "log_frequency": "0"})
    assert [bool(settings.take("m")) for _ in range(4)] == [True, True, False, False]
    assert settings.read("m")["trace_level"] == "TIMESTAMPS"
    assert settings.read("m")["trace_rate"] == "1"
    assert settings.read()["trace_rate"] == "2"
    settings.change("m", dict.fromkeys(("trace_rate", "trace_count", "log_frequency")))
    assert settings.read("m") == settings.read()


def test_a_trace_file_is_a_whole_array_of_models_and_instants(tmp_path: Path) -> None:
    file = tmp_path / "traces.json"
    writer = Writer(None)
    for _ in range(3):
        assert writer.put(Traced(ended(), "", "", 1_000_000, str(file)))
    writer.close()
    events = json.loads(file.read_text())
    assert [each["id"] for each in events] == [1, 1, 2, 2, 3, 3]
    assert events[0] == {"id": 1, "model_name": "digits", "model_version": 1, "request_id": "mine"}
    times = {each["name"]: each["ns"] for each in events[1]["timestamps"]}
    assert times["REQUEST_START"] == 1_005_000_000
    assert times["COMPUTE_START"] - times["QUEUE_START"] == 3_000_000
    assert times["REQUEST_END"] - times["REQUEST_START"] == 6_000_000
    assert list(times.values()) == sorted(times.values())


def test_a_refused_request_has_no_computation_in_its_trace() -> None:
    refused = ended(OVERLOAD, False)
    refused.compute_us = 0
    _, times = events_of(refused, "1", 1, 0)
    names = [each["name"] for each in times["timestamps"]]  # type: ignore[attr-defined]
    assert names == ["REQUEST_START", "QUEUE_START", "INFER_RESPONSE_COMPLETE", "REQUEST_END"]


def test_a_file_that_cannot_be_written_is_said_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(None)
    writer.put(Traced(ended(), "", "", 0, str(tmp_path / "none" / "t")))
    writer.put(Traced(ended(), "", "", 0, str(tmp_path / "t")))
    writer.close()
    assert "traces cannot be written" in caplog.text
    assert len(json.loads((tmp_path / "t").read_text())) == 2


class Stuck:
    """A sender whose collector does not answer."""

    def send(self, traced: Traced) -> None:
        raise TimeoutError("no answer")

    def close(self) -> None: ...


def test_a_fault_of_the_sender_ends_no_thread_and_a_full_queue_drops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer = Writer(Stuck())
    writer.put(Traced(ended(), "", "a" * 32, 0, ""))
    writer.close()
    assert "no answer" in caplog.text
    held = Writer(None)
    held.close()  # its thread takes nothing any more
    assert [held.put(Traced(ended(), "", "", 0, "")) for _ in range(WAITING_MAX + 2)].count(False) == 2
    assert held.dropped == 2


def test_a_steady_load_does_not_keep_the_file_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, found = tmp_path / "t", list[int]()

    class Steady(SimpleQueue[Traced | None]):
        """It is never empty, until five requests have come, and notes how many the file has."""

        def get(self, *_: object, **__: object) -> Traced | None:
            found.append(len(json.loads(file.read_text())) // 2 if file.exists() else 0)
            return Traced(ended(), "", "", 0, str(file)) if len(found) <= 5 else None

    times = count(0.0, 0.6)
    monkeypatch.setattr(writing, "SimpleQueue", Steady)
    monkeypatch.setattr(writing, "time", SimpleNamespace(monotonic=lambda: next(times)))
    Writer(None).close()
    assert found == [0, 0, 2, 2, 4, 4]
