"""What a running gateway says of itself, read over REST by the verbs that look at one."""

import http.client
import json
import os
import re
import socket
import ssl
import urllib.error
import urllib.request
from functools import partial
from typing import Any, Final

from router.commandline.key_env import CA_ENV, CLIENT_CERT_ENV, KEY_ENV

FETCH_S_MAX: Final = 5.0
UNIX: Final = "unix:"
"""Before the path of a Unix socket, where an address is expected."""
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


class _UnixConnection(http.client.HTTPConnection):
    """To a Unix socket."""

    def __init__(self, path: str, host: str, **given: Any) -> None:  # as urllib gives them
        super().__init__(host, **given)
        self._path = path

    def connect(self) -> None:
        """Connect to the UNIX socket, as http.client asks."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _UnixHandler(urllib.request.HTTPHandler):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a request over the UNIX socket, as urllib asks."""
        return self.do_open(partial(_UnixConnection, self._path), req)


def direct(url: str) -> tuple[urllib.request.OpenerDirector, str]:
    """Return (an opener for URLs of the gateway at the address `url`, the URL that they begin with). It uses
    no proxy: gateways are an operator's own hosts. UnreachableError where the environment names files for TLS
    that are none."""
    proxies = urllib.request.ProxyHandler({})
    if url.startswith(UNIX):
        return urllib.request.build_opener(proxies, _UnixHandler(url.removeprefix(UNIX))), "http://localhost"
    if not url.startswith("https://"):
        return urllib.request.build_opener(proxies), url
    return urllib.request.build_opener(proxies, urllib.request.HTTPSHandler(context=_tls())), url


def _tls() -> ssl.SSLContext:
    """Return what a client of TLS trusts and shows, as the environment says (CA_ENV, CLIENT_CERT_ENV)."""
    ca, own = os.environ.get(CA_ENV), os.environ.get(CLIENT_CERT_ENV)
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except OSError as error:  # ssl's own are OSError, too
        why = "no certificates (PEM)" if isinstance(error, ssl.SSLError) else str(error.strerror).lower()
        raise UnreachableError(f"--ca (or {CA_ENV}) names {ca}: {why}.") from None
    if own:
        try:
            context.load_cert_chain(own)
        except OSError as error:
            reason = "no certificate with its key" if isinstance(error, ssl.SSLError) else error.strerror
            raise UnreachableError(f"{CLIENT_CERT_ENV} names {own}: {reason}.") from None
    return context


def tls_advice(url: str, reason: object) -> str:
    """Return a sentence on why TLS ended a request to that address; "" if it did not."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        wrong_name = "mismatch" in reason.verify_message.lower()
        cure = "call it by a name in its certificate" if wrong_name else "--ca FILE names who signed it"
        return f"The certificate of {url} is not trusted ({reason.verify_message}); {cure}."
    if isinstance(reason, ssl.SSLError):
        why = (reason.reason or str(reason)).replace("_", " ").lower()
        cure = f"does it speak TLS, and does it want a certificate ({CLIENT_CERT_ENV})?"
        return f"TLS with {url} failed ({why}): {cure}"
    return ""


def address_of(url: str) -> str:
    """Return a gateway's address as it is written on a command line, without `/` at its end; `http://` is put
    before a bare host. `unix:` and a path name a socket. ValueError where it is none."""
    if url.startswith(UNIX) and len(url) > len(UNIX):
        return url
    if _HOST.fullmatch(url):
        url = f"http://{url}"
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"'{url}' is no gateway address; expected something like http://127.0.0.1:8000")
    return url.rstrip("/")


def with_key(request: urllib.request.Request, key_env: str) -> urllib.request.Request:
    """Return the request with the API key that the environment holds under that name, if any; no redirect
    takes it along."""
    if key := os.environ.get(key_env, "").strip():
        request.add_unredirected_header("Authorization", f"Bearer {key}")
    return request


def key_advice(code: int, said: str, key_env: str) -> str:
    """Return what to do about an answer by which the gateway wants a key (401), or another one (403); "" for
    other answers. `said`: its own sentence."""
    if code not in (401, 403):
        return ""
    what = "a key" if code == 401 else "another key"
    return f"{said or 'the gateway asks for an API key'}. Put {what} into the environment as {key_env}"


def read_json(
    url: str, path: str, key_env: str = KEY_ENV, body: bytes | None = None, wait_s: float = FETCH_S_MAX
) -> object:
    """Return the JSON at a path of the gateway with its REST port or admin door at `url`. Raises
    UnreachableError if there is no gateway, RefusedError if it answers with an error. `key_env`: see
    `with_key`. `body`: what to POST, None for GET; `wait_s`: the longest wait."""
    try:
        url = address_of(url)
    except ValueError as error:
        raise UnreachableError(f"{error}.") from error
    opener, start = direct(url)
    address = url + path
    try:
        request = with_key(urllib.request.Request(start + path, body), key_env)  # noqa: S310  # it is http
        with opener.open(request, timeout=wait_s) as answer:
            found: object = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            said = _said(error)
            text = f"{address} answered {error.code}: is this the REST port of a gateway?"
            if error.code == 400 and said:  # it speaks TLS, say
                text = f"{address} answered {error.code}: {said}."
            if advice := key_advice(error.code, said, key_env):
                text = said = f"{address} answered {error.code}: {advice}."
            raise RefusedError(text, error.code, said) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if advice := tls_advice(url, reason if isinstance(reason, ssl.SSLError) else error):
            raise UnreachableError(advice) from error
        raise UnreachableError(f"No gateway at {url} ({reason}); start one with 'penstock serve'.") from error
    return found


def _said(error: urllib.error.HTTPError) -> str:
    try:
        body = json.load(error)
    except (OSError, ValueError):
        return ""
    said = body.get("error") if isinstance(body, dict) else None
    return said[:SENTENCE_CHARS] if isinstance(said, str) else ""
