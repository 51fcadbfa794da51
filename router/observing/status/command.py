"""`penstock status`: read the status of a running gateway, and show it."""

import json
import sys
from datetime import datetime
from functools import partial
from typing import Final, cast

from rich.console import Console

from router.commandline.key_env import KEY_ENV
from router.commandline.reading import UnreachableError, read_json
from router.commandline.showing import show_answer
from router.logs.events import Event
from router.observing.status.document import Status
from router.observing.status.table import PIPE_WIDTH, follow, render

PATH: Final = "/v2/status"
EVENTS: Final = "/v2/events"


def fetch(url: str, key_env: str = KEY_ENV) -> Status:
    """Return the status of the gateway with its REST port at `url`. Raises UnreachableError if there is
    none."""
    status = read_json(url, PATH, key_env)
    if not isinstance(status, dict) or not Status.__required_keys__ <= status.keys():
        raise UnreachableError(
            f"No gateway at {url} (its answer is no status of a gateway); start one with 'penstock serve'."
        )
    return cast(Status, status)


def list_events(url: str, as_json: bool = False, key_env: str = KEY_ENV) -> int:
    """Print the gateway's latest events, oldest first; return the exit code, as `watch` does."""
    return show_answer(url, EVENTS, lambda found: list(map(_event, found["events"])), key_env, as_json)


def _event(each: Event) -> str:
    at = datetime.fromtimestamp(each["unix_s"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    level = "" if each["level"] == "info" else f"{each['level']}: "
    times = f"({each['times']} times) " if each["times"] > 1 else ""
    return f"{at}  {each['kind']:8}  {level}{times}{each['text']}"


def watch(url: str, interval_s: float, once: bool, as_json: bool = False, key_env: str = KEY_ENV) -> int:
    """Show the status, again every `interval_s` until Ctrl-C; returns the exit code.

    `once`, or a standard output that is no terminal: one table, rates since the start. `as_json`: the
    status itself, once. A gateway that cannot be reached: one line on standard error, exit code 1.
    """
    try:
        current = fetch(url, key_env)
        if as_json:
            sys.stdout.write(json.dumps(current, indent=2) + "\n")
            return 0
        console = Console()
        if not console.is_terminal:
            console = Console(width=PIPE_WIDTH)
        if once or not console.is_terminal:
            console.print(render(None, current, 0.0, console.width))
            return 0
        follow(partial(fetch, url, key_env), interval_s, console, current)
    except UnreachableError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        pass
    return 0
