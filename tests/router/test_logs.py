"""Log lines: what they say in text and in JSON, at which level, and what the access log says."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from router.logs import ACCESS, say, set_up
from router.settings.logs import LogSettings

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
    assert below == ["Traceback", "  ValueError"]


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
