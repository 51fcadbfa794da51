"""What a running gateway says of itself, read over its REST port by the verbs that look at one."""

import json
import re
import urllib.error
import urllib.request
from typing import Final

FETCH_S_MAX: Final = 5.0
_HOST: Final = re.compile(r"([\w.-]+|\[[\da-fA-F:.]+\])(:\d+)?/?")
"""A host, perhaps with a port."""
SENTENCE_CHARS: Final = 500
"""Of what a server says is wrong that an operator is shown."""


class UnreachableError(Exception):
    """Nothing to be read from that address; the text is one sentence for the operator."""


class RefusedError(UnreachableError):
    """It answered, but not with what was asked for. `code`: the HTTP status; `said`: its own sentence, "" for
    none."""

    def __init__(self, text: str, code: int, said: str) -> None:
        super().__init__(text)
        self.code = code
        self.said = said


def direct() -> urllib.request.OpenerDirector:
    """Opens URLs without a proxy: they are of an operator's own hosts."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def address_of(url: str) -> str:
    """A gateway's address as it is written on a command line, without `/` at its end; `http://` is put before
    a bare host. ValueError where it is none."""
    if _HOST.fullmatch(url):
        url = f"http://{url}"
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"'{url}' is no gateway address; expected something like http://127.0.0.1:8000")
    return url.rstrip("/")


def read_json(url: str, path: str) -> object:
    """The JSON at that path of the gateway whose REST port is at `url`; UnreachableError where there is no
    gateway, RefusedError where it answers with an error."""
    try:
        url = address_of(url)
    except ValueError as error:
        raise UnreachableError(f"{error}.") from error
    address = url + path
    try:
        with direct().open(address, timeout=FETCH_S_MAX) as answer:
            found: object = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            text = f"{address} answered {error.code}: is this the REST port of a gateway?"
            raise RefusedError(text, error.code, _said(error)) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UnreachableError(f"No gateway at {url} ({reason}); start one with 'penstock serve'.") from error
    return found


def _said(error: urllib.error.HTTPError) -> str:
    try:
        body = json.load(error)
    except (OSError, ValueError):
        return ""
    said = body.get("error") if isinstance(body, dict) else None
    return said[:SENTENCE_CHARS] if isinstance(said, str) else ""
