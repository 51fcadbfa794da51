"""Commands that ask a gateway one question, and print its answer as lines or as JSON."""

import json
import sys
from collections.abc import Callable
from typing import Any  # parsed JSON

from router.commandline.reading import RefusedError, UnreachableError, read_json


def show_answer(
    url: str,
    path: str,
    lines: Callable[[Any], list[str]],
    key_env: str,
    as_json: bool = False,
    body: bytes | None = None,
) -> int:
    """Print the answer, and return the exit code. On an error, print one line on standard error and return 1.
    `body`: what to POST, None for GET."""
    return show_read(url, lambda: read_json(url, path, key_env, body), lines, as_json)


def show_read(
    url: str, read: Callable[[], object], lines: Callable[[Any], list[str]], as_json: bool = False
) -> int:
    """Do as `show_answer` with what `read` reads of the gateway at `url`."""
    try:
        found = read()
    except RefusedError as error:
        sys.stderr.write(f"{url}: {error.said or error}\n")
        return 1
    except UnreachableError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    told = [json.dumps(found, indent=2)] if as_json else lines(found)
    sys.stdout.write("\n".join([*told, ""]))
    return 0
