"""Profiles on disk: `profiles/<device kind>/<model>.<variant>.json` is committed and comes first;
`profiles/local/<device kind>/...` is what this machine measured by itself.

A damaged, foreign or outdated file is named in `problems` and otherwise treated as absent.
"""

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import cast

from serving.profile.curve import Point, Profile

SCHEMA = 1
LARGEST = 1_000_000
"""Rows or runs of a point. More is damage, and whoever walks through them would never end."""
LONGEST_US = 1e12  # eleven days
STREAMS_MAX = 128  # grids that a device can run at once (CUDA C++ Programming Guide, 17.2)


class ProfileStore:
    """Reads profiles and keeps what was measured here; `folder` is the project's `profiles/`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.problems: list[str] = []

    def read(self, device_kind: str, model: str, variant: str) -> Profile | None:
        """The committed profile, else the local one, else None."""
        for root in (self._folder, self._folder / "local"):
            path = root / device_kind / f"{model}.{variant}.json"
            if not path.is_file():
                continue
            try:
                return parse(path.read_bytes(), (model, variant, device_kind), str(path))
            except (OSError, ValueError) as error:
                self.problems.append(f"{path}: ignored: {error}")
        return None

    def write_local(self, profile: Profile) -> Path:
        """Keep a profile in `local/`, replacing the file in one step so that no reader sees half of it."""
        path = self._folder / "local" / profile.device_kind / f"{profile.model}.{profile.variant}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"schema": SCHEMA} | asdict(profile)
        del content["source"]
        # Its own name: another slice of the same kind may store the same variant at this moment.
        scratch = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.part")
        scratch.write_text(json.dumps(content, indent=1) + "\n")
        scratch.replace(path)
        return path


def parse(content: bytes, identity: tuple[str, str, str], source: str) -> Profile:
    """A profile from a file's bytes; ValueError says what is wrong with it.

    `identity`: the model, variant and device kind that the file's place promises.
    """
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
        points = tuple(_point(entry) for entry in fields["points"])
        load_us, memory_bytes = _whole(fields, "load_us"), _whole(fields, "memory_bytes")
        streams = _whole({"streams": 1} | fields, "streams", STREAMS_MAX)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"a field is missing or of the wrong kind: {error}") from error
    if len({(point.size, point.rows) for point in points}) != len(points):
        raise ValueError("two points for the same rows and size")
    if not streams:
        raise ValueError("streams must be at least 1: the batches that ran at once while it was measured")
    return Profile(*identity, points, load_us, memory_bytes, source, streams)


def _point(entry: object) -> Point:
    if not isinstance(entry, dict):
        raise TypeError("a point must be an object")
    fields = cast("dict[str, object]", entry)
    point = Point(
        size=_whole(fields, "size"),
        rows=_whole(fields, "rows", LARGEST),
        p50_us=_latency(fields, "p50_us"),
        p95_us=_latency(fields, "p95_us"),
        count=_whole(fields, "count", LARGEST),
    )
    if not (point.rows and point.count and 0 < point.p50_us <= point.p95_us <= LONGEST_US):
        raise ValueError(f"impossible point {entry}")
    return point


def _whole(fields: Mapping[str, object], name: str, largest: float = float("inf")) -> int:
    value = fields[name]
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, not {value!r:.40}")
    if not 0 <= value <= largest:
        raise ValueError(f"impossible {name}")
    return value


def _latency(fields: Mapping[str, object], name: str) -> float:
    value = fields[name]
    if not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, not {value!r:.40}")
    return float(value)
