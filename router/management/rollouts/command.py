"""`penstock rollout status`, `start`, `promote` and `abort`."""

import json
import sys
from typing import cast
from urllib.parse import quote

from router.commandline.key_env import KEY_ENV
from router.commandline.reading import RefusedError, UnreachableError, read_json
from router.observing.rollout_status import MeasureStatus, RolloutsBody, RolloutStatus, rollout_sentence

PATH = "/v2/rollouts"
WORDS = {"attainment": "in time", "errors": "without an error", "latency": "as quick"}


def show_rollouts(url: str, as_json: bool = False, key_env: str = KEY_ENV) -> int:
    """Print all rollouts; return the exit code. On an error, print one line on standard error."""
    found = _asked(url, PATH, None, key_env)
    if found is None:
        return 1
    rollouts = cast(RolloutsBody, found)["rollouts"]
    lines = [line for each in rollouts for line in rollout_lines(each)] or [
        "no model has a candidate: state `rollout: {of: MODEL}` at another model of penstock.yaml"
    ]
    sys.stdout.write("\n".join([json.dumps(found, indent=2)] if as_json else lines) + "\n")
    return 0


def act(model: str, verb: str, url: str, key_env: str = KEY_ENV) -> int:
    """Start, promote or abort a rollout, and print it; return the exit code."""
    found = _asked(url, f"{PATH}/{quote(model, safe='')}/{verb}", b"", key_env)
    if found is None:
        return 1
    sys.stdout.write("\n".join([*rollout_lines(cast(RolloutStatus, found)), ""]))
    return 0


def rollout_lines(now: RolloutStatus) -> list[str]:
    """Return the lines on a rollout."""
    steps = ", ".join(f"{each * 100:g}" for each in now["steps"])
    held = f"; step {now['step']} of {steps} %, for {now['held_s']:.0f} s" if now["state"] == "canary" else ""
    return [f"{rollout_sentence(now)}{held}", *(_measure(each) for each in now["measures"])]


def _measure(each: MeasureStatus) -> str:
    both = (
        f"{each['candidate']:.2%} of {each['requests']:,}, and {each['present']:.2%} of the present model's"
    )
    told = f"{each['fine']:.0%} of the evidence for a step, {each['worse']:.0%} of that for a rollback"
    return f"  {WORDS.get(each['measure'], each['measure'])}: {both}; {told}"


def _asked(url: str, path: str, body: bytes | None, key_env: str) -> object:
    try:
        return read_json(url, path, key_env, body)
    except RefusedError as error:
        sys.stderr.write(f"{url}: {error.said or error}\n")
    except UnreachableError as error:
        sys.stderr.write(f"{error}\n")
    return None
