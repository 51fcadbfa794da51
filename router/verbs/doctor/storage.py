"""Folders that the gateway writes to, and the profiles that it finds there."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from router.management.operations.applied import path_of
from router.settings import Settings
from router.verbs.doctor.finding import Finding, fault, listed, ok, warning
from router.verbs.doctor.machine import Machine
from serving.profile.files.store import LOCAL, ProfileStore
from serving.values.slice_specs import SliceSpec

Kinds = Callable[[SliceSpec], str]
"""The device kind of a slice; "" where nothing tells."""


def check_folders(machine: Machine, settings: Settings) -> Finding:
    """Return whether profiles, placements and recordings can be written."""
    refused = [(what, path) for what, path in _folders(settings) if not _writable(machine, path)]
    if not refused:
        return ok("folders", "profiles, placements and recordings can be written")
    sentence = f"cannot be written: {listed([f'{path} ({what})' for what, path in refused])}"
    cure = "mount a volume that this user may write to, or choose another folder"
    if any(what == "recording.folder" for what, _ in refused):
        return fault("folders", sentence, cure)
    return warning("folders", f"{sentence}; what is measured or applied is lost at a restart", cure)


def check_profiles(settings: Settings, kind_of: Kinds) -> Finding:
    """Return whether what is served was measured on the slices that serve it."""
    store = ProfileStore(settings.profiles)
    slices = {each.name: each for each in settings.slices}
    missing: list[str] = []
    count = 0
    for model in settings.models:
        shares = {(kind_of(slices[name]), slices[name].share) for name in model.slices if name in slices}
        for variant in model.variants:
            count += 1
            if not all(kind and store.read(kind, model.name, variant, share) for kind, share in shares):
                missing.append(f"{model.name}.{variant}")
    if not missing:
        return ok("profiles", f"all {count} variants were measured on their slices")
    sentence = f"not measured on their slices: {listed(missing)}"
    cure = "penstock profile MODEL; without it, the gateway measures at its start, for limits.sweep_s"
    return warning("profiles", sentence, cure)


def _folders(settings: Settings) -> Iterator[tuple[str, Path]]:
    yield "profiles", settings.profiles / LOCAL
    yield "placements", path_of(settings.path).parent
    if settings.recording is not None:
        yield "recording.folder", settings.recording.folder


def _writable(machine: Machine, folder: Path) -> bool:
    """Return whether the folder, or the nearest one above it that is there, can be written."""
    there = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    return there.is_dir() and machine.may(there, os.W_OK | os.X_OK)
