"""`penstock explain --request NAME` and `--requests`: single requests of a running gateway."""

from typing import cast
from urllib.parse import quote, urlencode

from router.commandline.key_env import KEY_ENV
from router.commandline.showing import show_answer
from router.observing.requests.body import RequestBody, RequestsBody
from router.observing.requests.words import request_lines, table


def explain_request(name: str, url: str, as_json: bool = False, key_env: str = KEY_ENV) -> int:
    """Print what became of a request, and why; return the exit code. On an error, print one line on standard
    error and return 1."""
    path = f"/v2/requests/{quote(name, safe='')}"
    return show_answer(url, path, lambda found: request_lines(cast(RequestBody, found)), key_env, as_json)


def list_requests(model: str, url: str, as_json: bool = False, key_env: str = KEY_ENV) -> int:
    """Print the latest requests that were late, refused or failed; `model`: "" for any."""
    path = f"/v2/requests?{urlencode({'model': model})}"
    return show_answer(
        url, path, lambda found: table(cast(RequestsBody, found)["requests"]), key_env, as_json
    )
