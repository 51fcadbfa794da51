"""A move on a gateway is followed until it has ended; Ctrl-C turns it back, and leaves it alone."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from router.settings import load_settings
from router.settings.door.admin import AdminSettings
from router.verbs.place.live.following import (
    GONE_S,
    POLL_S,
    GoneError,
    Interrupts,
    MoveFollower,
    MoveRefusedError,
    PlacementClient,
    address,
    carry_out,
    reach,
)
from router.verbs.simulate.traffic import SimulateRequestError
from tests.router.settings.samples import write_deployment


def told(state: str = "moving", step: int = 1, moving: str = "m", **more: Any) -> dict[str, Any]:
    progress = {"state": state, "step": step, "steps": 2, "waiting": ["x is loading"], "reasons": []}
    return {
        "slices": [],
        "models": {},
        "id": "m",
        "moving": moving,
        "progress": progress,
        "outcome": None,
    } | more


def ended(result: str = "done", reasons: tuple[str, ...] = (), move: str = "m") -> dict[str, Any]:
    outcome = {"id": move, "result": result, "reasons": list(reasons), "seconds": 1.234}
    return told("steady", moving="", outcome=outcome)


class Script(PlacementClient):
    """A gateway that says one thing after the other, the last for ever."""

    def __init__(self, *says: dict[str, Any] | Exception) -> None:
        super().__init__("http://gateway")
        self.says = [*says]
        self.rolled_back = 0
        self.on_read: Callable[[int], None] = lambda _count: None
        self.count = 0

    def read(self) -> dict[str, Any]:
        self.count += 1
        self.on_read(self.count)
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(said, Exception):
            raise said
        return said

    def roll_back(self) -> None:
        self.rolled_back += 1


def follow(door: Script, interrupts: Interrupts | None = None) -> int:
    return MoveFollower(door, interrupts or Interrupts(), lambda _s: None).follow("m")


def test_each_step_is_a_line_and_the_end_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert follow(Script(told(), told(), told(step=2), ended())) == 0
    assert capsys.readouterr().err.splitlines() == [
        "applying: step 1 of 2: x is loading",
        "applying: step 2 of 2: x is loading",
        "applied in 1.2 s",
    ]


def test_a_gateway_that_turned_back_ends_it_with_1_and_its_reasons(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert follow(Script(told(), told("rolling back"), ended("rolled back", ("no memory [/b]",)))) == 1
    assert capsys.readouterr().err.splitlines()[1:] == [
        "rolling back: step 1 of 2: x is loading",
        "rolled back after 1.2 s; what was in place is in place again",
        "  no memory [/b]",
    ]


def interrupted(door: Script, *reads: int) -> Interrupts:
    """Ctrl-C at the n-th readings."""
    interrupts = Interrupts()

    def count(number: int) -> None:
        interrupts.count += number in reads

    door.on_read = count
    return interrupts


def test_ctrl_c_asks_to_turn_back_until_it_does_and_follows_that(capsys: pytest.CaptureFixture[str]) -> None:
    door = Script(told(), told(), told(), told("rolling back"), ended("rolled back", ("it was told to",)))
    assert follow(door, interrupted(door, 2)) == 130
    assert door.rolled_back == 2
    assert capsys.readouterr().err.splitlines()[1:] == [
        "asking the gateway to roll back; Ctrl-C again leaves it alone",
        "rolling back: step 1 of 2: x is loading",
        "rolled back after 1.2 s; what was in place is in place again",
        "  it was told to",
    ]


def test_ctrl_c_that_comes_too_late_changes_nothing() -> None:
    door = Script(told(), ended())
    assert follow(door, interrupted(door, 2)) == 0
    assert door.rolled_back == 0


def test_ctrl_c_twice_leaves_it_alone_and_says_what_becomes_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    door = Script(told(), told(), told("rolling back"))
    assert follow(door, interrupted(door, 2, 3)) == 130
    assert capsys.readouterr().err.splitlines()[-1] == (
        "left alone: the gateway turns back by itself; GET http://gateway/v2/placement says how far it is"
    )


def test_a_gateway_that_is_restarted_goes_on_and_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    restarted = told(moving="", state="moving")
    door = Script(
        told(), GoneError("no gateway answers"), GoneError("no"), restarted, told("steady", moving="")
    )
    assert follow(door) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "no gateway answers; it keeps what was asked, and goes on once it runs again"
    assert lines[-1] == "the gateway was restarted meanwhile; it has what was asked for"


def test_a_gateway_that_stays_away_is_not_waited_for_for_ever() -> None:
    waited: list[float] = []
    assert MoveFollower(Script(GoneError("no")), Interrupts(), waited.append).follow("m") == 1
    assert GONE_S - POLL_S <= sum(waited) <= GONE_S


def test_where_another_placement_came_after_it_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert follow(Script(told("steady", moving="", id="other"))) == 1
    assert "another placement by now" in capsys.readouterr().err


def test_a_signal_is_counted_and_ends_nothing() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # else it may be ignored
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupts.count == 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


class Answers(BaseHTTPRequestHandler):
    """Those of `answers` by method; keeps what it was asked."""

    answers: dict[str, tuple[int, bytes]]
    asked: list[tuple[str, str, bytes]]

    def _answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        self.asked.append((self.command, self.path, self.rfile.read(length)))
        status, body = self.answers[self.command]
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = _answer  # noqa: N815  # names that http.server calls

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[tuple[str, type[Answers]]]:
    handler = type("Handler", (Answers,), {"answers": {}, "asked": []})
    with HTTPServer(("127.0.0.1", 0), handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}", handler
        listening.shutdown()
        thread.join()


def test_a_placement_is_read_and_put_over_http(server: tuple[str, type[Answers]]) -> None:
    url, handler = server
    handler.answers |= {
        "GET": (200, json.dumps(told()).encode()),
        "PUT": (202, b'{"id": "m"}'),
        "POST": (202, b"{}"),
    }
    door = PlacementClient(url)
    assert door.read() == told()
    assert door.put({"slices": []}) == "m"
    door.roll_back()
    assert handler.asked == [
        ("GET", "/v2/placement", b""),
        ("PUT", "/v2/placement", b'{"slices": []}'),
        ("POST", "/v2/placement/roll-back", b""),
    ]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((400, b'{"error": "a; b", "reasons": ["a", "b"]}'), "a\nb"),
        ((500, b'{"error": "a"}'), "a"),
        ((404, b"<html>"), "answered 404: is this the admin door of a gateway?"),
        ((404, b"[]"), "answered 404: is this the admin door of a gateway?"),
        ((200, b"[]"), "answered something else"),
        ((200, b"{}"), "answered something else"),
    ],
)
def test_what_a_gateway_does_not_do_is_told_with_its_reasons(
    server: tuple[str, type[Answers]], answer: tuple[int, bytes], said: str
) -> None:
    url, handler = server
    handler.answers["GET"] = answer
    with pytest.raises(MoveRefusedError) as refused:
        PlacementClient(url).read()
    assert said in str(refused.value)


def test_a_refused_placement_ends_with_1(
    server: tuple[str, type[Answers]], capsys: pytest.CaptureFixture[str]
) -> None:
    url, handler = server
    handler.answers["PUT"] = (400, b'{"reasons": ["slices: no such cores here"]}')
    assert carry_out(PlacementClient(url), {}) == 1
    assert capsys.readouterr().err == (
        "the gateway refuses it, and nothing is changed:\nslices: no such cores here\n"
    )


def test_where_no_gateway_answers_that_is_said_at_once() -> None:
    with pytest.raises(GoneError, match="no gateway answers at"):
        PlacementClient("http://127.0.0.1:1").read()
    assert carry_out(PlacementClient("http://127.0.0.1:1"), {}) == 1


@pytest.mark.parametrize(
    ("admin", "url", "found"),
    [
        (AdminSettings(), None, "http://127.0.0.1:8004"),
        (AdminSettings(host="0.0.0.0", port=80), None, "http://127.0.0.1:80"),
        (AdminSettings(host="::1"), None, "http://[::1]:8004"),
        (AdminSettings(socket=Path("/run/penstock.sock")), None, "unix:/run/penstock.sock"),
        (AdminSettings(), "https://there/", "https://there"),
        (AdminSettings(), "unix:/tmp/a.sock", "unix:/tmp/a.sock"),
    ],
)
def test_the_gateway_is_where_settings_or_url_say(admin: AdminSettings, url: str | None, found: str) -> None:
    assert address(admin, url) == found


@pytest.mark.parametrize(
    ("port", "url"), [(0, None), (8004, "no where"), (8004, "file:///etc/passwd"), (8004, "unix:")]
)
def test_where_they_do_not_say_it_that_is_told(port: int, url: str | None) -> None:
    with pytest.raises(SimulateRequestError, match="--url"):
        address(AdminSettings(port=port), url)


def test_there_has_to_be_a_gateway_to_apply_a_plan_to(tmp_path: Path) -> None:
    with pytest.raises(SimulateRequestError, match="start it with `penstock serve`"):
        reach(load_settings(write_deployment(tmp_path)), "http://127.0.0.1:1")
