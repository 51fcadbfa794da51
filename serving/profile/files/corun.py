"""What was measured of variants that ran on one device at the same time, and the file that holds it.

`profiles/<device kind>/interference.json`, schema 1: values to JSON and back. Only what was measured is
stored; sensitivities and pressures are fitted where they are needed. Every field is checked on the way in: a
damaged or foreign file raises ValueError, which says what is wrong.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass
from itertools import groupby

from serving.profile.curve import UNKNOWN, Origin
from serving.profile.files.document import origin_fields, parse_origin
from serving.profile.files.fields import LARGEST, list_in, number_in, object_of, text_in, whole_in
from serving.values.slice_specs import Share

SCHEMA = 1
OTHERS_MAX = 60
"""Contexts that a device serves at once (CUDA MPS since 13.1)."""


@dataclass(frozen=True, slots=True, order=True)
class Tenant:
    """A variant on a share of a device, running batches of `rows` at size bucket `size`."""

    model: str
    variant: str
    share: Share
    rows: int
    size: int = 0


@dataclass(frozen=True, slots=True)
class CoRun:
    """Measured (medians): a batch of `tenant` takes `alone_us` by itself, `beside_us` while `others` run."""

    tenant: Tenant
    others: tuple[Tenant, ...]
    alone_us: float
    beside_us: float
    count: int
    origin: Origin = UNKNOWN

    @property
    def slowdown(self) -> float:
        """Beside over alone; noise can make it less than 1."""
        return self.beside_us / self.alone_us


def render(device_kind: str, runs: Iterable[CoRun]) -> str:
    """Return the file's text: the runs by where they come from, a line for each."""
    head = json.dumps({"schema": SCHEMA, "device_kind": device_kind}, indent=1)[:-2]
    ordered = sorted(runs, key=lambda run: (astuple(run.origin), run.tenant, run.others))
    measured = ",\n".join(
        _session_text(origin, session) for origin, session in groupby(ordered, key=lambda run: run.origin)
    )
    return f'{head},\n "measured": [\n{measured}\n ]\n}}\n'


def _session_text(origin: Origin, runs: Iterable[CoRun]) -> str:
    about = json.dumps({"origin": origin_fields(origin)}, indent=1)[1:-2].replace("\n", "\n  ")
    lines = ",\n".join(f"    {json.dumps(_run_fields(run))}" for run in runs)
    return f'  {{{about},\n   "runs": [\n{lines}\n   ]\n  }}'


def _run_fields(run: CoRun) -> dict[str, object]:
    return {
        "tenant": _tenant_fields(run.tenant),
        "others": [_tenant_fields(other) for other in run.others],
        "alone_us": run.alone_us,
        "beside_us": run.beside_us,
        "count": run.count,
    }


def _tenant_fields(tenant: Tenant) -> dict[str, object]:
    return {**asdict(tenant), "share": str(tenant.share)}


def parse(content: bytes, device_kind: str) -> tuple[CoRun, ...]:
    """Return the co-runs of a file's bytes; ValueError says what is wrong with it."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:  # endless brackets exhaust the parser
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        raise ValueError(f"expected co-runs of schema {SCHEMA}")
    if fields.get("device_kind") != device_kind:
        raise ValueError(f"it is of {fields.get('device_kind')!r:.80}, its place says {device_kind!r}")
    try:
        return tuple(run for entry in list_in(fields, "measured") for run in _session(entry))
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"a field is missing or of the wrong kind: {error}") from error


def _session(entry: object) -> list[CoRun]:
    fields = object_of(entry, "a measured session")
    origin = parse_origin(fields.get("origin", {}))
    return [_run(run, origin) for run in list_in(fields, "runs")]


def _run(entry: object, origin: Origin) -> CoRun:
    fields = object_of(entry, "a run")
    others = tuple(_tenant(other) for other in list_in(fields, "others"))
    alone_us, beside_us = number_in(fields, "alone_us"), number_in(fields, "beside_us")
    count = whole_in(fields, "count", LARGEST)
    if not (0 < len(others) <= OTHERS_MAX and alone_us and beside_us and count):
        raise ValueError(f"impossible run {entry}"[:1000])
    return CoRun(_tenant(fields["tenant"]), others, alone_us, beside_us, count, origin)


def _tenant(entry: object) -> Tenant:
    fields = object_of(entry, "a tenant")
    rows = whole_in(fields, "rows", LARGEST)
    if not rows:
        raise ValueError("a tenant runs batches of at least 1 row")
    size = whole_in({"size": 0, **fields}, "size", LARGEST)
    share = Share.parse(text_in(fields, "share"))
    return Tenant(text_in(fields, "model"), text_in(fields, "variant"), share, rows, size)
