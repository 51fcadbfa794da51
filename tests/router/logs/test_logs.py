"""Log lines: what they say in text and in JSON, at which level, and what the access log says."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from router.logs.floods import LINES_MAX, Floods
from router.logs.logs import ACCESS, say, set_up
from router.settings.door.logs import LogSettings

FIELDS = {"model": "fashion", "slice": "main", "traceback": "Traceback\n  ValueError"}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []  # pytest's own would be closed
    yield
    set_up(LogSettings(), sys.stderr)
    root.handlers, root.level = handlers, level


def test_text_has_the_time_the_level_and_the_traceback_below() -> None:
    stream = io.StringIO()
    set_up(LogSettings(), stream)
    logging.getLogger("serving.x").error("it failed", extra={"fields": FIELDS})
    first, *below = stream.getvalue().splitlines()
    date, time, level, *sentence = first.split(" ")
    assert (len(date), len(time), level, sentence) == (10, 12, "ERROR", ["it", "failed"])
    assert below == ["  Traceback", "    ValueError"]


def test_json_is_one_object_a_line_with_the_fields() -> None:
    stream = io.StringIO()
    set_up(LogSettings(format="json"), stream)
    logging.getLogger("serving.x").error("it %s \ud800", "failed", extra={"fields": FIELDS})
    try:
        raise KeyError("a bug")
    except KeyError:
        logging.getLogger("serving.x").exception("the gateway failed")
    say("  REST     http://127.0.0.1:8000")
    first, second, third = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {"level": "error", "logger": "serving.x", "message": "it failed ?", **FIELDS}
    assert second["traceback"].endswith("KeyError: 'a bug'")
    assert third["message"] == "REST     http://127.0.0.1:8000"


def test_lines_below_the_level_are_left_out_but_for_the_access_log() -> None:
    stream = io.StringIO()
    set_up(LogSettings(level="warning"), stream)
    logging.getLogger("serving.x").info("left out")
    logging.getLogger(ACCESS).info("kept")
    assert stream.getvalue().endswith("INFO kept\n")
    assert "left out" not in stream.getvalue()


def test_no_text_of_a_client_looks_like_a_line_of_its_own() -> None:
    stream = io.StringIO()
    set_up(LogSettings(), stream)
    forged = "\n2026-11-22 20:00:00,000 ERROR root password accepted\r\x1b[31m\x00\u2028\ud800"
    try:
        raise ValueError(forged)
    except ValueError:
        logging.getLogger("router.x").exception("the path %s failed", forged)
    first, *below = stream.getvalue().split("\n")[:-1]
    assert (
        r"the path \n2026-11-22 20:00:00,000 ERROR root password accepted\r\x1b[31m\x00\u2028\ud800" in first
    )
    assert all(each.startswith("  ") for each in below)
    assert all(each.isprintable() for each in (first, *below))


def test_of_a_flood_of_one_kind_some_lines_are_said_and_the_others_counted() -> None:
    stream = io.StringIO()
    set_up(LogSettings(), stream)
    clients, operators = logging.getLogger("router.x"), logging.getLogger("router.startup.serve")
    for number in range(LINES_MAX + 5):
        clients.warning("client %d left", number)
    for number in range(LINES_MAX + 5):
        operators.warning("slice %d is gone", number)
    for number in range(LINES_MAX + 5):
        clients.info("placement %d is done", number)
    said = stream.getvalue()
    assert (said.count("left"), said.count("is gone")) == (LINES_MAX, LINES_MAX + 5)
    assert said.count("is done") == LINES_MAX + 5
    (floods,) = [each for each in logging.getLogger().handlers[0].filters if isinstance(each, Floods)]
    floods.end_window()
    more = stream.getvalue().removeprefix(said)
    assert more.endswith(f"WARNING 5 more lines like this are left out: client {LINES_MAX + 4} left\n")
    clients.warning("client 99 left")
    assert stream.getvalue().endswith("client 99 left\n")  # the next window
