"""A gateway's placement from outside: asked for, given, and followed until it is so."""

import json
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from router.commandline.key_env import KEY_ENV
from router.commandline.reading import UnreachableError, address_of, direct, key_advice, tls_advice, with_key
from router.settings import Settings
from router.settings.door.admin import AdminSettings
from router.verbs.simulate.traffic import SimulateRequestError

PATH = "/v2/placement"
DONE, GIVEN_UP, INTERRUPTED = 0, 1, 130
"""Exit codes: it is so; the gateway rolled back, or is gone; an operator rolled it back, or left alone."""

ANSWER_S = 10.0
POLL_S = 0.25
GONE_S = 90.0
"""A gateway that does not answer for so long is not waited for: a restart takes less as a rule."""

Json = dict[str, Any]


class MoveRefusedError(Exception):
    """The gateway does not do it; the text is one sentence for each reason, in lines."""


class GoneError(Exception):
    """No gateway answers there; the text is a sentence."""


def address(admin: AdminSettings, url: str | None) -> str:
    """Return the admin door of the gateway of the settings, or `url`. UsageError where neither says it."""
    if url is not None:
        try:
            return address_of(url)
        except ValueError as error:
            raise SimulateRequestError(f"--url: {error}") from error
    if not admin.address:
        raise SimulateRequestError("--apply: the settings' admin port is any free one; give --url")
    return admin.address


class PlacementClient:
    """The placement of the gateway with its admin door at `url`."""

    def __init__(self, url: str, key_env: str = KEY_ENV) -> None:
        self.url = url
        self._key_env = key_env
        try:
            self._opener, self._start = direct(url)
        except UnreachableError as error:
            raise GoneError(str(error).rstrip(".")) from None

    def read(self) -> Json:
        """Return the placement in force.

        Raises GoneError, or MoveRefusedError if the answer is not from a gateway that knows placements.
        """
        told = self._ask("GET")
        if not {"slices", "models", "progress", "outcome", "moving", "id"} <= told.keys():
            raise MoveRefusedError(
                f"{self.url}{PATH} answered something else: is this the admin door of a gateway?"
            )
        return told

    def put(self, body: Json) -> str:
        """Ask the gateway to carry out another placement; return the id of the move.

        Raises GoneError or MoveRefusedError.
        """
        return str(self._ask("PUT", json.dumps(body).encode())["id"])

    def roll_back(self) -> None:
        """Ask the gateway to roll back the move. Raises GoneError or MoveRefusedError."""
        self._ask("POST", b"", "/roll-back")

    def _ask(self, method: str, body: bytes | None = None, more: str = "") -> Json:
        place = f"{self.url}{PATH}{more}"
        headers = {"content-type": "application/json"}
        address = f"{self._start}{PATH}{more}"
        request = urllib.request.Request(address, body, headers, method=method)  # noqa: S310  # it is http
        try:
            with self._opener.open(with_key(request, self._key_env), timeout=ANSWER_S) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                reasons = _reasons(place, error)
                raise MoveRefusedError(key_advice(error.code, reasons, self._key_env) or reasons) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise GoneError(
                tls_advice(self.url, reason).rstrip(".") or f"no gateway answers at {self.url} ({reason})"
            ) from None
        return told if isinstance(told, dict) else {}


def _reasons(place: str, error: urllib.error.HTTPError) -> str:
    try:
        told = json.load(error)
        return "\n".join(told.get("reasons") or [str(told["error"])])
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return f"{place} answered {error.code}: is this the admin door of a gateway?"


class Interrupts:
    """Counts Ctrl-C instead of ending at once, while it is entered."""

    def __init__(self) -> None:
        self.count = 0
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


class MoveFollower:
    """Shows how far a move is until it has ended. Lines go to stderr: one a step, and a live one on a
    terminal."""

    def __init__(
        self, door: PlacementClient, interrupts: Interrupts, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._door = door
        self._interrupts = interrupts
        self._pause = pause
        self._step: tuple[object, ...] = ()
        self._turning = False
        self._gone_s = 0.0

    def follow(self, move: str) -> int:
        """Follow the move until it has ended, or the operator stops waiting; return the exit code."""
        errors = Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as live:
            task = live.add_task("applying", total=None)

            def say(line: str) -> None:
                live.console.print(line, markup=False)

            while (ended := self._look(move, say, lambda what: live.update(task, description=what))) is None:
                self._pause(POLL_S)
        return ended

    def _look(self, move: str, say: Callable[[str], None], show: Callable[[str], None]) -> int | None:
        """Look once at the move; return the exit code if it has ended."""
        if self._interrupts.count > 1:
            back = "turns back" if self._turning else "goes on"
            say(f"left alone: the gateway {back} by itself; GET {self._door.url}{PATH} says how far it is")
            return INTERRUPTED
        try:
            told = self._door.read()
            self._gone_s = 0.0
            if self._interrupts.count:
                self._turn_back(told, say)
        except (GoneError, MoveRefusedError) as error:
            return self._wait(str(error), say)
        ended = self._ended(move, told, say)
        if ended is None:
            self._tell(told["progress"], say, show)
        return ended

    def _turn_back(self, told: Json, say: Callable[[str], None]) -> None:
        """Ask the gateway to turn back, again until it does: it may not have begun the move yet."""
        if not self._turning:
            say("asking the gateway to roll back; Ctrl-C again leaves it alone")
            self._turning = True
        if told["moving"] and told["progress"]["state"] != "rolling back":
            try:
                self._door.roll_back()
            except MoveRefusedError:
                return  # it has just ended

    def _wait(self, why: str, say: Callable[[str], None]) -> int | None:
        if not self._gone_s:
            say(f"{why}; it keeps what was asked, and goes on once it runs again")
        self._gone_s += POLL_S
        if self._gone_s < GONE_S:
            return None
        say("it is not waited for any longer")
        return GIVEN_UP

    def _ended(self, move: str, told: Json, say: Callable[[str], None]) -> int | None:
        outcome, progress = told["outcome"], told["progress"]
        if outcome is not None and outcome["id"] == move:
            if outcome["result"] == "done":
                say(f"applied in {outcome['seconds']:.1f} s")
                return DONE
            back = "; what was in place is in place again" if outcome["result"] == "rolled back" else ""
            say(f"{outcome['result']} after {outcome['seconds']:.1f} s{back}")
            for reason in outcome["reasons"]:
                say(f"  {reason}")
            return INTERRUPTED if self._turning else GIVEN_UP
        if told["moving"] == move:
            return None
        if told["id"] != move:
            say("the gateway has another placement by now")
            return GIVEN_UP
        if progress["state"] != "steady":  # it was restarted, and goes straight to what is wanted
            return None
        for reason in progress["reasons"]:
            say(f"  {reason}")
        say("the gateway was restarted meanwhile; it has what was asked for")
        return GIVEN_UP if progress["reasons"] else DONE

    def _tell(self, progress: Json, say: Callable[[str], None], show: Callable[[str], None]) -> None:
        waiting = "; ".join(progress["waiting"])
        what = "rolling back" if progress["state"] == "rolling back" else "applying"
        line = f"{what}: step {progress['step']} of {progress['steps']}" + (f": {waiting}" if waiting else "")
        show(line)
        step = (progress["state"], progress["step"], progress["steps"])
        if progress["state"] != "steady" and step != self._step:
            self._step = step
            say(line)


def reach(settings: Settings, url: str | None, key_env: str = KEY_ENV) -> tuple[PlacementClient, Json]:
    """Return the gateway, and what it has. UsageError where there is none."""
    try:
        door = PlacementClient(address(settings.admin, url), key_env)
        return door, door.read()
    except (GoneError, MoveRefusedError) as error:
        raise SimulateRequestError(
            f"--apply: {error}; start it with `penstock serve`, or give --url"
        ) from None


def carry_out(door: PlacementClient, body: Json) -> int:
    """Ask the gateway to carry out the body, and follow the move; return the exit code."""
    with Interrupts() as interrupts:
        try:
            move = door.put(body)
        except MoveRefusedError as error:
            sys.stderr.write(f"the gateway refuses it, and nothing is changed:\n{error}\n")
            return GIVEN_UP
        except GoneError as error:
            sys.stderr.write(f"{error}; whether it has begun, GET {door.url}{PATH} says\n")
            return GIVEN_UP
        return MoveFollower(door, interrupts).follow(move)
