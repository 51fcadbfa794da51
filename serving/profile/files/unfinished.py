"""What an interrupted sweep had measured, run by run, so that the next one goes on from there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from serving.profile.files.fields import LARGEST, list_in, object_of, text_in, whole_in
from serving.profile.sweeping.exploration import BatchRuns, Key

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The runs of a sweep, of `build` on `machine` after `seconds` of measuring: what was measured of
    another build or machine is of no use."""

    build: str
    machine: tuple[tuple[str, str], ...]
    seconds: float
    seen: Mapping[Key, BatchRuns]

    def fits(self, build: str, machine: tuple[tuple[str, str], ...]) -> bool:
        """Return whether a sweep of that build on that machine can go on from it."""
        return (self.build, self.machine) == (build, machine)


def render(found: Unfinished) -> str:
    """Return the unfinished sweep as JSON."""
    seen = [
        {"size": size, "rows": rows, "latencies_us": each.latencies_us, "yardsticks_us": each.yardsticks_us,
         "activation_bytes": each.activation_bytes, "visits": each.visits}
        for (size, rows), each in sorted(found.seen.items())
    ]  # fmt: skip
    about = {"schema": SCHEMA, "build": found.build, "milliseconds": int(found.seconds * 1000)}
    return json.dumps(about | {"machine": dict(found.machine), "seen": seen})


def parse(content: bytes) -> Unfinished:
    """Return the unfinished sweep from its bytes. Raises ValueError, which says what is wrong with the
    bytes."""
    try:
        fields = object_of(json.loads(content), "it")
        if fields.get("schema") != SCHEMA:
            raise ValueError(f"expected an unfinished sweep of schema {SCHEMA}")
        machine = object_of(fields["machine"], "machine")
        about = tuple((name, text_in(machine, name)) for name in machine)
        seen = dict(_seen(entry) for entry in list_in(fields, "seen"))
        return Unfinished(text_in(fields, "build"), about, whole_in(fields, "milliseconds") / 1000, seen)
    except (KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError(f"a field is missing or of the wrong kind: {error}") from error


def _seen(entry: object) -> tuple[Key, BatchRuns]:
    fields = object_of(entry, "a batch")
    size, rows = whole_in(fields, "size"), whole_in(fields, "rows", LARGEST)
    seen = BatchRuns(activation_bytes=whole_in(fields, "activation_bytes"))
    seen.add(_times(fields, "latencies_us"), _times(fields, "yardsticks_us"))
    seen.visits = whole_in(fields, "visits")
    if not (rows and seen.latencies_us):
        raise ValueError("a batch without rows or runs")
    return (size, rows), seen


def _times(fields: Mapping[str, object], name: str) -> list[int]:
    return [whole_in({name: each}, name, 1e12) for each in list_in(fields, name)]
