"""A profile file's content, schema 2 (docs/profiles.md): values to JSON and back.

Every field is checked on the way in: a damaged or foreign file raises ValueError, which says what is wrong.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from typing import cast

from serving.profile.curve import Origin, Point, Profile
from serving.profile.profiles import ProfileSet
from serving.specs import Share

SCHEMA = 2
LARGEST = 1_000_000
"""Rows or runs of a point. More is damage, and whoever walks through them would never end."""
LONGEST_US = 1e12  # eleven days
STREAMS_MAX = 128  # grids that a device can run at once (CUDA C++ Programming Guide, 17.2)
TEXT_MAX = 4096
_ORIGIN_TEXTS = ("measured", "command", "build")
_ORIGIN_NUMBERS = ("seconds", "noise", "error")
_OPTIONAL = ("p99_us", "yardstick_us", "activation_bytes", "power_w")

Fields = Mapping[str, object]
Identity = tuple[str, str, str]
"""Model, variant, device kind: what a file's place promises."""


def render(found: ProfileSet) -> str:
    """The file's text: a line for each point, so that a change of one is a change of one line."""
    head = {
        "schema": SCHEMA,
        "model": found.model,
        "variant": found.variant,
        "device_kind": found.device_kind,
    }
    shares = ",\n".join(_share_text(profile) for profile in found.profiles)
    return f'{json.dumps(head, indent=1)[:-2]},\n "shares": [\n{shares}\n ]\n}}\n'


def _share_text(profile: Profile) -> str:
    origin = asdict(profile.origin) | {"machine": dict(profile.origin.machine)}
    fields = {
        "share": str(profile.share),
        "streams": profile.streams,
        "load_us": profile.load_us,
        "warm_us": profile.warm_us,
        "memory_bytes": profile.memory_bytes,
        "origin": {name: value for name, value in origin.items() if value},
    }
    head = json.dumps(fields, indent=1)[1:-2].replace("\n", "\n  ")
    points = ",\n".join(f"    {json.dumps(_point_fields(point))}" for point in profile.points)
    return f'  {{{head},\n   "points": [\n{points}\n   ]\n  }}'


def _point_fields(point: Point) -> dict[str, object]:
    fields = asdict(point)
    return {name: value for name, value in fields.items() if value or name not in _OPTIONAL}


def parse(content: bytes, identity: Identity, source: str) -> ProfileSet:
    """The profiles of a file's bytes; ValueError says what is wrong with it. `source`: the file's name."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:  # endless brackets exhaust the parser
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        raise ValueError(f"expected a profile of schema {SCHEMA}")
    found = tuple(fields.get(name) for name in ("model", "variant", "device_kind"))
    if found != identity:
        raise ValueError(f"it is a profile of {found}, its place says {identity}")
    try:
        profiles = [_profile(entry, identity, source) for entry in _list(fields, "shares")]
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"a field is missing or of the wrong kind: {error}") from error
    if not profiles:
        raise ValueError("it has no shares")
    if len({(each.share, each.streams) for each in profiles}) != len(profiles):
        raise ValueError("two profiles of the same share and streams")
    return ProfileSet(*identity, ()).joined(profiles)


def _profile(entry: object, identity: Identity, source: str) -> Profile:
    fields = _object(entry, "a share")
    points = tuple(_point(point) for point in _list(fields, "points"))
    if len({(point.size, point.rows) for point in points}) != len(points):
        raise ValueError("two points for the same rows and size")
    streams = _whole({"streams": 1, **fields}, "streams", STREAMS_MAX)
    if not streams:
        raise ValueError("streams must be at least 1: the batches that ran at once while it was measured")
    load_us, memory_bytes = _whole(fields, "load_us"), _whole(fields, "memory_bytes")
    warm_us = _whole({"warm_us": 0, **fields}, "warm_us")
    share, origin = Share.parse(_text(fields, "share")), _origin(fields.get("origin", {}))
    return Profile(*identity, points, load_us, memory_bytes, source, streams, share, warm_us, origin)


def _origin(entry: object) -> Origin:
    fields = _object(entry, "origin")
    machine = _object(fields.get("machine", {}), "machine")
    given = {**dict.fromkeys(_ORIGIN_TEXTS, ""), **dict.fromkeys(_ORIGIN_NUMBERS, 0), **fields}
    measured, command, build = (_text(given, name) for name in _ORIGIN_TEXTS)
    seconds, noise, error = (_number(given, name) for name in _ORIGIN_NUMBERS)
    about = tuple((name[:TEXT_MAX], _text(machine, name)) for name in machine)
    return Origin(measured, command, about, build, seconds, noise, error)


def _point(entry: object) -> Point:
    fields: Fields = {**dict.fromkeys(_OPTIONAL, 0), **_object(entry, "a point")}
    point = Point(
        size=_whole(fields, "size"),
        rows=_whole(fields, "rows", LARGEST),
        p50_us=_number(fields, "p50_us"),
        p95_us=_number(fields, "p95_us"),
        count=_whole(fields, "count", LARGEST),
        p99_us=_number(fields, "p99_us"),
        yardstick_us=_number(fields, "yardstick_us"),
        activation_bytes=_whole(fields, "activation_bytes"),
        power_w=_number(fields, "power_w"),
    )
    ordered = 0 < point.p50_us <= point.p95_us <= LONGEST_US
    if not (point.rows and point.count and ordered and (not point.p99_us or point.p99_us >= point.p95_us)):
        raise ValueError(f"impossible point {entry}"[:TEXT_MAX])
    return point


def _object(entry: object, what: str) -> Fields:
    if not isinstance(entry, dict):
        raise TypeError(f"{what} must be an object")
    return cast("Fields", entry)


def _list(fields: Fields, name: str) -> list[object]:
    found = fields[name]
    if not isinstance(found, list):
        raise TypeError(f"{name} must be a list")
    return found


def _text(fields: Fields, name: str) -> str:
    found = fields[name]
    if not isinstance(found, str) or len(found) > TEXT_MAX:
        raise TypeError(f"{name} must be a text of at most {TEXT_MAX} characters")
    return found


def _whole(fields: Fields, name: str, largest: float = float("inf")) -> int:
    value = fields[name]
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, not {value!r:.40}")
    if not 0 <= value <= largest:
        raise ValueError(f"impossible {name}")
    return value


def _number(fields: Fields, name: str) -> float:
    value = fields[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {value!r:.40}")
    if not (isfinite(value) and 0 <= value <= LONGEST_US):
        raise ValueError(f"impossible {name}")
    return float(value)
