"""`redis:` of `cache:` or `cells:` as a RedisSpec: where gateways meet, and with which password.

Nothing here says what is in a URL: it may hold a password.
"""

import os
from urllib.parse import SplitResult, parse_qs, urlsplit

from router.commandline.spelling import nearest
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, one_of, shown
from router.settings.values.schema import RedisSection
from serving.cache.spec import RedisSpec

KEY_CHARS_MIN = 16
"""Of a key by which answers are signed: 64 bits as hexadecimal digits."""
_LOC = ("cache", "redis")
_SCHEMES = ("redis", "rediss", "unix")
_TLS_KEYS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_FORMS = "redis://host:6379/0, rediss://host:6379/0 or unix:///path/to/redis.sock"


def read_redis(findings: Findings, loc: Loc = _LOC) -> RedisSpec | None:
    """Return the section at `loc`; None where there is none, or a faulty one."""
    value = findings.document.at(loc)
    if isinstance(value, str):
        return _read(findings, RedisSection(url=value), loc, loc) if value else None
    if not isinstance(value, dict):
        return None
    section = findings.parse(RedisSection, loc)
    return None if section is None else _read(findings, section, loc, (*loc, "url"))


def _read(findings: Findings, section: RedisSection, loc: Loc, url_loc: Loc) -> RedisSpec | None:
    found = _fault_of(section.url)
    if found:
        findings.add(url_loc, found)
        return None
    password = ""
    if section.password_env is not None:
        password = os.environ.get(section.password_env, "")
        name = shown(section.password_env)
        if not password:
            findings.add(
                (*loc, "password_env"), f"the environment has no {name}; expected the password there"
            )
        elif urlsplit(section.url).password:
            findings.add((*loc, "password_env"), "the url has a password too; expected one of them")
    key = _read_key(findings, section, loc)
    spec = RedisSpec(section.url)
    return RedisSpec(
        section.url,
        password,
        section.namespace or spec.namespace,
        spec.budget_us if section.budget_ms is None else round(section.budget_ms * 1000),
        key,
    )


def _read_key(findings: Findings, section: RedisSection, loc: Loc) -> str:
    """Return the key that answers are signed with, "" if the password signs them."""
    if section.key_env is None:
        return ""
    key = os.environ.get(section.key_env, "")
    if len(key) < KEY_CHARS_MIN:
        name = shown(section.key_env)
        got = f"{len(key)} characters as" if key else "no"
        expected = f"a key of {KEY_CHARS_MIN} characters or more there, the same for all gateways"
        findings.add((*loc, "key_env"), f"the environment has {got} {name}; expected {expected}")
    return key


def _fault_of(text: str) -> str:
    """Return a sentence on what is wrong with a URL; "" if nothing is wrong."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        return f"not a URL; expected {_FORMS}"
    if url.scheme not in _SCHEMES:
        guess = nearest(url.scheme, _SCHEMES)
        hint = f" (did you mean {guess}?)" if guess else ""
        got = f"got the scheme {shown(url.scheme)}, " if "://" in text else ""
        return f"not the URL of a Redis server; {got}expected {_FORMS}{hint}"
    if url.scheme == "unix":
        return "" if url.path.strip("/") else "a URL without a path; expected unix:///path/to/redis.sock"
    if not url.hostname or port == 0:
        return f"a URL without a {'port' if url.hostname else 'host'}; expected {_FORMS}"
    return _fault_of_rest(url)


def _fault_of_rest(url: SplitResult) -> str:
    database = url.path.strip("/")
    if database and not database.isdecimal():
        return f"not the number of a database; got {shown(database)}, expected one such as /0"
    known = _TLS_KEYS if url.scheme == "rediss" else ()
    for key in parse_qs(url.query, keep_blank_values=True):
        if key not in known:
            expected = one_of(known) if known else "none, as only rediss:// takes some"
            return f"unknown option {shown(key)} in the URL; expected {expected}"
    return "a fragment in the URL; expected none" if url.fragment else ""
