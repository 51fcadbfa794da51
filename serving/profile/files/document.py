"""A profile file's content, schema 2 (docs/profiles.md): values to JSON and back.

Every field is checked on the way in: a damaged or foreign file raises ValueError, which says what is wrong.
"""

import json
from dataclasses import asdict

from serving.profile.curve import Origin, Point, Profile
from serving.profile.files.fields import (
    LARGEST,
    LONGEST_US,
    TEXT_MAX,
    Fields,
    list_in,
    number_in,
    object_of,
    text_in,
    whole_in,
)
from serving.profile.profiles import ProfileSet
from serving.values.slice_specs import Share

SCHEMA = 2
_ORIGIN_TEXTS = ("measured", "command", "build", "imported")
_ORIGIN_NUMBERS = ("seconds", "noise", "error")
_OPTIONAL = ("p99_us", "yardstick_us", "activation_bytes", "power_w")

Identity = tuple[str, str, str]
"""Model, variant, device kind: what a file's place promises."""


def render(found: ProfileSet) -> str:
    """Return the file's text: a line for each point, so that a change of one is a change of one line."""
    head = {
        "schema": SCHEMA,
        "model": found.model,
        "variant": found.variant,
        "device_kind": found.device_kind,
    }
    shares = ",\n".join(_share_text(profile) for profile in found.profiles)
    return f'{json.dumps(head, indent=1)[:-2]},\n "shares": [\n{shares}\n ]\n}}\n'


def _share_text(profile: Profile) -> str:
    fields = {
        "share": str(profile.share),
        "load_us": profile.load_us,
        "warm_us": profile.warm_us,
        "memory_bytes": profile.memory_bytes,
        **({} if profile.import_bytes is None else {"import_bytes": profile.import_bytes}),
        "origin": origin_fields(profile.origin),
    }
    head = json.dumps(fields, indent=1)[1:-2].replace("\n", "\n  ")
    points = ",\n".join(f"    {json.dumps(_point_fields(point))}" for point in profile.points)
    return f'  {{{head},\n   "points": [\n{points}\n   ]\n  }}'


def origin_fields(origin: Origin) -> dict[str, object]:
    """Return the known fields of an origin, for JSON."""
    fields = asdict(origin) | {"machine": dict(origin.machine)}
    return {name: value for name, value in fields.items() if value}


def _point_fields(point: Point) -> dict[str, object]:
    fields = asdict(point)
    return {name: value for name, value in fields.items() if value or name not in _OPTIONAL}


def parse(content: bytes, identity: Identity, source: str) -> ProfileSet:
    """Return the profiles of a file's bytes; ValueError says what is wrong with it. `source`: the file's
    name."""
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
        profiles = [_profile(entry, identity, source) for entry in list_in(fields, "shares")]
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"a field is missing or of the wrong kind: {error}") from error
    if not profiles:
        raise ValueError("it has no shares")
    if len({each.share for each in profiles}) != len(profiles):
        raise ValueError("two profiles of the same share")
    return ProfileSet(*identity, ()).joined(profiles)


def _profile(entry: object, identity: Identity, source: str) -> Profile:
    fields = object_of(entry, "a share")
    points = tuple(_point(point) for point in list_in(fields, "points"))
    if len({(point.size, point.rows) for point in points}) != len(points):
        raise ValueError("two points for the same rows and size")
    if (streams := fields.get("streams", 1)) != 1:  # files of earlier versions have it
        raise ValueError(
            f"streams: got {streams!r:.40}, expected 1 or no such key: no profile is of several batches "
            "at once any more; measure a share of several processes instead, such as mig:2g.35gb*2"
        )
    load_us, memory_bytes = whole_in(fields, "load_us"), whole_in(fields, "memory_bytes")
    warm_us = whole_in({"warm_us": 0, **fields}, "warm_us")
    imports = whole_in(fields, "import_bytes") if "import_bytes" in fields else None
    share, origin = Share.parse(text_in(fields, "share")), parse_origin(fields.get("origin", {}))
    return Profile(*identity, points, load_us, memory_bytes, source, share, warm_us, origin, imports)


def parse_origin(entry: object) -> Origin:
    """Return the origin of a JSON object; TypeError or ValueError names what is wrong."""
    fields = object_of(entry, "origin")
    machine = object_of(fields.get("machine", {}), "machine")
    given = {**dict.fromkeys(_ORIGIN_TEXTS, ""), **dict.fromkeys(_ORIGIN_NUMBERS, 0), **fields}
    measured, command, build, imported = (text_in(given, name) for name in _ORIGIN_TEXTS)
    seconds, noise, error = (number_in(given, name) for name in _ORIGIN_NUMBERS)
    about = tuple((name[:TEXT_MAX], text_in(machine, name)) for name in machine)
    return Origin(measured, command, about, build, seconds, noise, error, imported)


def _point(entry: object) -> Point:
    fields: Fields = {**dict.fromkeys(_OPTIONAL, 0), **object_of(entry, "a point")}
    point = Point(
        size=whole_in(fields, "size"),
        rows=whole_in(fields, "rows", LARGEST),
        p50_us=number_in(fields, "p50_us"),
        p95_us=number_in(fields, "p95_us"),
        count=whole_in(fields, "count", LARGEST),
        p99_us=number_in(fields, "p99_us"),
        yardstick_us=number_in(fields, "yardstick_us"),
        activation_bytes=whole_in(fields, "activation_bytes"),
        power_w=number_in(fields, "power_w"),
    )
    ordered = 0 < point.p50_us <= point.p95_us <= LONGEST_US
    if not (point.rows and point.count and ordered and (not point.p99_us or point.p99_us >= point.p95_us)):
        raise ValueError(f"impossible point {entry}"[:TEXT_MAX])
    return point
