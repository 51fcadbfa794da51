"""`penstock profile --import FILE`: profiles that others measured, marked as such."""

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from router.settings.model_file.schema import ONLY_VARIANT
from router.settings.values.problems import one_of, shown
from router.verbs.profiling.asked import MeasureRequestError, find_model, find_numbers
from router.verbs.profiling.importing.forms import Batch, Told, read_batches
from router.verbs.profiling.importing.table import read_table
from router.verbs.profiling.options import ProfileOptions
from serving.profile.curve import Origin, Point, Profile
from serving.profile.files.store import ProfileStore

ROWS_MAX = 1 << 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KIND = re.compile(r"(gpu|cpu)-[a-z0-9][a-z0-9-]{0,60}")


def import_profiles(options: ProfileOptions, file: Path, store: ProfileStore) -> int:
    """Read the file, and keep what it tells where nothing was measured. Print a line for each profile."""
    told = _told(options, file)
    batches = read_batches(read_table(file), told)
    if not batches:
        raise MeasureRequestError(f"{file}: no line tells a latency; nothing is imported")
    profiles = _profiles(batches, file)
    lines, kept = [], 0
    for profile in profiles:
        what = f"{profile.model} {profile.variant} on {profile.share} of {profile.device_kind}"
        if not options.again and _measured(store, profile):
            lines.append(f"{what}: measured already; --again puts the imported one in its place")
            continue
        path = store.write(profile)
        kept += 1
        lines.append(f"{what}: {len(profile.points)} batches, imported, in {path}")
    sys.stdout.write("\n".join([*lines, f"{kept} of {len(profiles)} profiles are imported", ""]))
    return 0


def _told(options: ProfileOptions, file: Path) -> Told:
    batches = find_numbers("--batches", options.batches, ROWS_MAX)
    if len(batches) > 1 or "," in options.shares or "," in options.variant:
        raise MeasureRequestError(f"--import {file}: expected one value of --batches, --shares and --variant")
    model, variant = options.model, options.variant
    if model and (Path(model).is_dir() or Path("models", model).is_dir()):
        spec = find_model(model)
        names = [each.name for each in spec.variants]
        model = spec.name
        if variant and variant not in names:
            raise MeasureRequestError(
                f"--variant: {model} has no variant {shown(variant)}; expected {one_of(names)}"
            )
        variant = variant or (names[0] if len(names) == 1 else "")
    return Told(model, variant, options.kind, options.shares, batches[0] if batches else 0)


def _profiles(batches: Sequence[Batch], file: Path) -> list[Profile]:
    """Return a profile of each variant on each share; the points of one are its batches, by rows."""
    groups: dict[tuple[object, ...], dict[int, Batch]] = {}
    for each in batches:
        model, variant = each.model or file.stem, each.variant or ONLY_VARIANT
        _check_names(each, model, variant)
        points = groups.setdefault((model, variant, each.kind, each.share), {})
        if (before := points.setdefault(each.rows, each)) is not each:
            raise each.line.fault(f"batches of {each.rows} rows are told twice, also at {before.line.place}")
    command = shlex.join(["penstock", *sys.argv[1:]])
    origin = Origin(command=command, imported=file.name)
    return [_profile(key, points, origin) for key, points in groups.items()]


def _check_names(batch: Batch, model: str, variant: str) -> None:
    for what, name in (("model", model), ("variant", variant)):
        if not _NAME.fullmatch(name):
            expected = "letters, digits, '.', '_' and '-'"
            raise batch.line.fault(f"no name of a {what}; got {shown(name)}, expected {expected}")
    if not _KIND.fullmatch(batch.kind):
        expected = "a kind of device such as gpu-nvidia-h200, or --kind"
        raise batch.line.fault(f"no kind of device; got {shown(batch.kind)}, expected {expected}")


def _profile(key: tuple[object, ...], points: dict[int, Batch], origin: Origin) -> Profile:
    first = next(iter(points.values()))
    model, variant = str(key[0]), str(key[1])
    return Profile(
        model,
        variant,
        first.kind,
        tuple(
            Point(0, rows, each.p50_us, each.p99_us, 1, each.p99_us) for rows, each in sorted(points.items())
        ),
        max(each.load_us for each in points.values()),
        max(each.memory_bytes for each in points.values()),
        share=first.share,
        origin=origin,
    )


def _measured(store: ProfileStore, profile: Profile) -> bool:
    """Return whether that share was measured: a file of others must not take its place unasked."""
    known = store.read_set(profile.device_kind, profile.model, profile.variant)
    there = known.profiles if known is not None else ()
    return any(each.share == profile.share and each.measured for each in there)
