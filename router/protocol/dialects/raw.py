"""Bodies that are content and not JSON: a picture, a sound, a form with files."""

import re
from collections.abc import Mapping
from email import message_from_bytes
from email.message import Message
from typing import Final

import orjson

from router.tensors.parts.errors import bad_input, too_large
from router.tensors.parts.wording import quoted
from serving.values.specs import Limits

FORM: Final = "multipart/form-data"
_KINDS: Final = ("image/", "audio/", "video/")
_TYPES: Final = ("application/octet-stream", "application/pdf")
_BOUNDARY: Final = re.compile(rb"--([\x21-\x7e][\x20-\x7e]{0,69})\r?\n")
"""The first line of a form's body (RFC 2046, 5.1.1)."""


def is_raw(content_type: str) -> bool:
    """Return whether the whole body is one value."""
    return content_type.startswith(_KINDS) or content_type in _TYPES


def form_rows(body: bytes, limits: Limits) -> list[object]:
    """Return the rows of a form: each part is the value of the input that it names, and a name that comes
    again begins another row.

    A part with a file name is the file's bytes; another is JSON, or else a text. RequestError if the body is
    no form, if names do not come equally often, or if there are too many parts.
    """
    columns: dict[str, list[object]] = {}
    for part in _parts(body):
        name = part.get_param("name", header="content-disposition")
        if not isinstance(name, str) or not name:
            raise bad_input("a part of the form has no name; expected the name of an input")
        column = columns.setdefault(name, [])
        if len(column) == limits.rows_per_request:
            most = f"at most {len(column)} rows are accepted (limits.rows_per_request)"
            raise too_large(f"the form has more than {len(column)} parts named {quoted(name)}; {most}")
        column.append(_value(part))
    counts = {name: len(column) for name, column in columns.items()}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{count} of {quoted(name)}" for name, count in counts.items())
        raise bad_input(f"the form has {said}; expected one of each for every row")
    return _rows(columns)


def _rows(columns: Mapping[str, list[object]]) -> list[object]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _parts(body: bytes) -> list[Message]:
    found = _BOUNDARY.match(body)
    if found is None:
        raise bad_input(f"the body is no {FORM}: its first line is no boundary")
    boundary = found[1].rstrip().decode("ascii")
    head = f'content-type: {FORM}; boundary="{boundary}"\r\n\r\n'.encode()
    parts = message_from_bytes(head + body).get_payload()
    if not isinstance(parts, list) or not body.rstrip().endswith(b"--"):
        raise bad_input(f"the body is no {FORM}: it ends before its last boundary")
    return [each for each in parts if isinstance(each, Message)]


def _value(part: Message) -> object:
    content = part.get_payload(decode=True)
    found = content if isinstance(content, bytes) else b""
    if part.get_filename() is not None:
        return found
    try:
        return orjson.loads(found)
    except orjson.JSONDecodeError:
        return found
