"""`penstock explain --request NAME` and `--requests`: single requests of a running gateway."""

import json
import sys
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import quote, urlencode

from router.commandline.key_env import KEY_ENV
from router.commandline.reading import RefusedError, UnreachableError, read_json
from router.observing.requests.body import RequestBody, RequestsBody
from router.observing.requests.words import request_lines, table


def explain_request(name: str, url: str, as_json: bool = False, key_env: str = KEY_ENV) -> int:
    """Print what became of a request, and why; return the exit code. On an error, print one line on standard
    error and return 1."""
    path = f"/v2/requests/{quote(name, safe='')}"
    return _shown(url, path, as_json, key_env, lambda found: request_lines(cast(RequestBody, found)))


def list_requests(model: str, url: str, as_json: bool = False, key_env: str = KEY_ENV) -> int:
    """Print the latest requests that were late, refused or failed; `model`: "" for any."""
    path = f"/v2/requests?{urlencode({'model': model})}"
    return _shown(url, path, as_json, key_env, lambda found: table(cast(RequestsBody, found)["requests"]))


def _shown(url: str, path: str, as_json: bool, key_env: str, lines: Callable[[Any], list[str]]) -> int:
    try:
        found = read_json(url, path, key_env)
    except RefusedError as error:
        sys.stderr.write(f"{url}: {error.said or error}\n")
        return 1
    except UnreachableError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    told = [json.dumps(found, indent=2)] if as_json else lines(found)
    sys.stdout.write("\n".join([*told, ""]))
    return 0
