"""Events: the latest lines of the log, with numbers, levels and kinds; not those of single requests."""

import io
import logging

import pytest

from router.logs.events import TEXT_MAX, Events
from router.logs.logs import ACCESS, AUDIT, PRINTED, events, logging_to_output
from router.settings.door.logs import LogSettings


def record(text: str, name: str = "router.any", level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord(name, level, "", 0, text, None, None)


def test_numbers_go_on_and_old_events_make_room() -> None:
    kept = Events(3)
    for number in range(5):
        kept.add(record("any"), f"line {number}")
    assert [each["number"] for each in kept.since()] == [3, 4, 5]
    assert [each["text"] for each in kept.since(4)] == ["line 4"]
    assert kept.last == 5


@pytest.mark.parametrize(
    ("logger", "kind"),
    [
        (AUDIT, "change"),
        ("router.management.operations.watching", "settings"),
        ("router.startup.serve", "models"),
        ("serving.runtime.slicing.watch", "devices"),
        ("router.http.fastpath.server", "gateway"),
    ],
)
def test_the_logger_is_the_kind(logger: str, kind: str) -> None:
    kept = Events()
    kept.add(record("any", logger, logging.WARNING), "any")
    assert (kept.since()[0]["kind"], kept.since()[0]["level"]) == (kind, "warning")


def test_a_long_sentence_is_cut() -> None:
    kept = Events()
    kept.add(record("any"), "x" * 5000)
    assert len(kept.since()[0]["text"]) == TEXT_MAX


def test_what_the_process_logs_is_an_event_but_not_single_requests_or_models_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    before = events.last
    with logging_to_output(LogSettings()):
        logging.getLogger("router.any").info("a worker is back\x1b[2J")
        for name in (ACCESS, PRINTED, "serving.runtime.workers.model_log"):
            logging.getLogger(name).warning("of one request")
    assert [each["text"] for each in events.since(before)] == ["a worker is back\\x1b[2J"]
