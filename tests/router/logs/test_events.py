"""Events: the latest lines of the log, with numbers, levels and kinds; not those of single requests."""

import io
import logging

import pytest

from router.logs.events import AGAIN_S, TEXT_MAX, Events
from router.logs.logs import ACCESS, AUDIT, PRINTED, events, logging_to_output
from router.settings.door.logs import LogSettings


def record(text: str, name: str = "router.any", level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord(name, level, "", 0, text, None, None)


def test_numbers_go_on_and_old_events_make_room() -> None:
    kept = Events(3)
    for letter in "abcde":
        kept.add(record("any"), f"line {letter}")
    assert [each["number"] for each in kept.since()] == [3, 4, 5]
    assert [each["text"] for each in kept.since(4)] == ["line e"]
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


def test_a_line_that_comes_again_with_other_numbers_is_the_same_event_once_more() -> None:
    kept = Events()
    for share in (12, 3.5, 1_000):
        kept.add(record("any"), f"slice cpu-1 lost {share} % of its time")
    kept.add(record("any"), "slice cpu-2 lost 3 % of its time")
    found = [(each["number"], each["first"], each["times"], each["text"]) for each in kept.since()]
    assert found == [
        (3, 1, 3, "slice cpu-1 lost 1000 % of its time"),
        (4, 4, 1, "slice cpu-2 lost 3 % of its time"),
    ]
    kept.add(record("any", level=logging.WARNING), "slice cpu-1 lost 9 % of its time")
    assert kept.since()[-1]["times"] == 1, "a warning is another event"


def test_steps_of_a_rollout_are_events_each() -> None:
    kept = Events()
    for share in (5, 25):
        kept.add(record("any", "penstock.rollouts"), f"m-2 gets {share} % of the requests for m")
    assert len(kept.since()) == 2


def test_the_same_line_long_after_is_another_event() -> None:
    kept, late = Events(), record("any")
    kept.add(record("any"), "the loop was late")
    late.created += 2 * AGAIN_S
    kept.add(late, "the loop was late")
    assert [each["times"] for each in kept.since()] == [1, 1]


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
