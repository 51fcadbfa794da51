"""Stored profiles of what a settings file serves: for control at start, and for `penstock check`."""

from collections.abc import Callable
from pathlib import Path

from router.settings import Settings
from serving.profile.curve import Profile
from serving.profile.derived.latency import Latency
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel


def stored_profile(store: ProfileStore, slice_spec: SliceSpec, model: str, variant: str) -> Profile | None:
    """Return the stored profile of a variant on a slice.

    A real slice goes by no profile that was imported: it is swept at its first start.
    """
    profile = store.read(device_kind(slice_spec), model, variant, slice_spec.share)
    return None if profile is not None and profile.imported and not slice_spec.rehearsed else profile


def known_profiles(settings: Settings, store: ProfileStore) -> dict[tuple[str, str, str], Profile]:
    """Return the stored profile of every served variant on every slice that is to hold it, where there is
    one."""
    known = {}
    for slice_spec in settings.slices:
        for model in settings.models:
            for variant in model.variants if slice_spec.name in model.slices else ():
                profile = stored_profile(store, slice_spec, model.name, variant)
                if profile is not None:
                    known[slice_spec.name, model.name, variant] = profile
    return known


def measured_latency(folder: Path) -> Callable[[ServedModel, SliceSpec, str], Latency | None]:
    """Return a function for the measured latency of a variant on a slice; it returns None if nothing was
    measured."""
    store = ProfileStore(folder)

    def measured(model: ServedModel, slice_spec: SliceSpec, variant: str) -> Latency | None:
        profile = stored_profile(store, slice_spec, model.name, variant)
        return Latency(profile) if profile else None

    return measured
