"""The access log has one line for each answer, on both ways; off, it has none."""

import logging

import pytest

from router.logs.logs import ACCESS
from tests.router.http.fastpath.wire import SIMPLE_INFER, Running, infer, request

NOTHING = b"GET /v2/nothing HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, object]]:
    found = [vars(record)["fields"] for record in caplog.records if record.name == ACCESS]
    assert all(each["client"].startswith("127.0.0.1:") and each["took_ms"] >= 0 for each in found)
    return [(each["request"], each["status"]) for each in found]


@pytest.mark.parametrize("direct", [True, False], ids=["fast path", "ASGI"])
def test_each_answer_has_a_line(direct: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    running = Running(direct=direct, access=True)
    try:
        assert running.ask(infer(1, connection="close")).status == 200
        assert running.ask(request(body=b"{}", connection="close")).status == 400
        assert running.ask(NOTHING).status == 404
        assert running.ask(b"nonsense\r\n\r\n").status == 400
    finally:
        running.stop()
    asked = f"POST {SIMPLE_INFER}"
    assert lines(caplog) == [(asked, 200), (asked, 400), ("GET /v2/nothing", 404), ("-", 400)]


def test_without_it_there_is_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    running = Running()
    try:
        assert running.ask(NOTHING).status == 404
    finally:
        running.stop()
    assert lines(caplog) == []
