"""What the page is shown: two readings of a rehearsed gateway, ten seconds apart, and changes of them."""

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from router.logs.events import Event
from router.observing.page.glance import message, parts_of
from router.observing.rollout_status import MeasureStatus, RolloutStatus
from router.observing.status import Status

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text("utf-8"))
"""`before` and `after`: bodies of `GET /v2/status`; `placement`: of `GET /v2/placement`."""

AT_S = 1_790_000_000.0
"""When the first reading was, as the scenes say."""
APART_S = 10.0

Change = Callable[[Status], None]


def _event(number: int, unix_s: float, level: str, kind: str, text: str) -> Event:
    return {
        "number": number, "first": number, "times": 1, "unix_s": unix_s, "level": level, "kind": kind,
        "text": text,
    }  # fmt: skip


EVENTS: Sequence[Event] = (
    _event(1, AT_S - 300, "info", "models", "penstock is ready"),
    _event(2, AT_S - 60, "warning", "models", "slice g-1 was lost"),
    _event(3, AT_S - 5, "error", "settings", "an edit is refused"),
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A screen (the part of its address after "#/"), and how the readings differ from the recorded ones.

    `width`: of the window, in pixels.
    """

    screen: str
    change: Change
    width: int = 1280

    @property
    def shows(self) -> Sequence[str]:
        """Return selectors of what is there once both readings are, and all that the screen asks for."""
        return {
            "": ("td .figure",),
            "devices": ("td .figure", ".boxes > .box"),
            "plans": (".panel .meter", ".boxes > .box"),
        }[self.screen]

    def readings(self) -> tuple[Status, Status]:
        """Return both readings."""
        before, after = deepcopy(RECORDED["before"]), deepcopy(RECORDED["after"])
        for each in (before, after):
            self.change(each)
        return before, after

    def stream(self) -> bytes:
        """Return what `GET /v2/live` sends: the first reading, then the second."""
        before, after = self.readings()
        missed = {each["name"]: each["counters"]["missed"] for each in before["models"]}
        first = message(1, parts_of(before, AT_S, missed), (), EVENTS, True)
        return first + message(2, parts_of(after, AT_S + APART_S, missed), (), (), False)


def as_recorded(_: Status) -> None:
    """Change nothing."""


def models(count: int) -> Change:
    """Return a change after which there are so many models with one load each, every seventh of them late."""

    def change(status: Status) -> None:
        digits = next(each for each in status["models"] if each["name"] == "digits")
        status["models"] = []
        for number in range(count):
            one = deepcopy(digits)
            one["name"] = f"model-{number + 1:03}"
            counters = one["counters"]
            for key in ("requests", "completed", "offered", "good", "rows", "goodput_rows"):
                counters[key] = counters[key] * (number + 1) // 10
            if number % 7 == 3:
                counters["good"] = counters["good"] * 9 // 10
                counters["missed"] = {"late": counters["offered"] - counters["good"]}
                counters["burn"] = {"5m": 10.0, "30m": 10.0, "1h": 10.0, "6h": 10.0}
            if number == 0:
                one["version"] = 2
            status["models"].append(one)

    return change


def rolling_out(status: Status) -> None:
    """Let `digits-2` be a candidate at its second step."""
    rollout: RolloutStatus = {
        "model": "digits", "candidate": "digits-2", "state": "canary", "share": 0.25, "step": 2,
        "steps": [0.05, 0.25, 0.5], "held_s": 40.0, "hold_s": 120.0,
        "why": "1,204 requests compared; the next step needs 96 more",
        "measures": [_measure("in time", 0.998, 0.996), _measure("answered", 1.0, 1.0)],
    }  # fmt: skip
    status["rollouts"] = [rollout]


def _measure(measure: str, present: float, candidate: float) -> MeasureStatus:
    return {
        "measure": measure, "present": present, "candidate": candidate, "requests": 1204,
        "worse": 0.1, "fine": 0.9,
    }  # fmt: skip


def dead_worker(status: Status) -> None:
    """Let slice g-1 have lost its worker."""
    slot = next(each for each in status["slices"] if each["name"] == "g-1")
    slot["state"], slot["pid"], slot["restarts"] = "waiting to restart", None, 3
    for model in status["models"]:
        for replica in model["replicas"]:
            if replica["slice"] == "g-1":
                replica["state"] = "absent"
                replica["reason"] = "the worker of slice g-1 was killed by SIGKILL"


SCENES = {
    "overview-5": Scene("", models(5)),
    "overview-200": Scene("", models(200)),
    "rollout": Scene("plans", rolling_out),
    "dead-worker": Scene("", dead_worker),
    "dead-worker-devices": Scene("devices", dead_worker),
    "devices-mig": Scene("devices", as_recorded),
    "devices-narrow": Scene("devices", as_recorded, 380),
}
