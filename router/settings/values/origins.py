"""`cors:` of `server:`: the origins of web pages that may call the gateway from a browser."""

import re
from typing import Annotated, Final

from pydantic import PlainValidator

from router.settings.values.fields import refuse
from router.settings.values.problems import fault

ANY_ORIGIN: Final = "*"
_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?|https?://\[[0-9A-Fa-f:.]+\](:\d{1,5})?")
"""Scheme, host and port, as browsers send it (RFC 6454, 6.2)."""


def _check(value: object) -> object:
    if not isinstance(value, list) or not value:
        raise refuse(fault("not a list of origins", value, "a list such as [https://app.example.com]"))
    for each in value:
        if not isinstance(each, str) or (each != ANY_ORIGIN and _ORIGIN.fullmatch(each) is None):
            expected = "scheme and host, such as https://app.example.com, without a path; or '*' for any"
            raise refuse(fault("not an origin", each, expected))
    return tuple(each.lower() for each in value)


OriginsKey = Annotated[tuple[str, ...], PlainValidator(_check)]
