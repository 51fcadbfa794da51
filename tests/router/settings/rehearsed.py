"""Profiles of GPUs for settings that rehearse them."""

from collections.abc import Sequence
from pathlib import Path

from serving.profile.curve import Point, Profile
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import Share

H200 = "gpu-nvidia-h200"
REHEARSED = f"devices: [{{name: h, kind: {H200}, count: 2, rehearse: true}}]\n"


def write_profiles(
    folder: Path, shares: Sequence[str], *names: tuple[str, str], row_us: float = 1000
) -> None:
    """Of these models' variants on these shares of an H200: a row takes `row_us`, eight three times that."""
    points = Point(0, 1, row_us, row_us, 9), Point(0, 8, 3 * row_us, 3 * row_us, 9)
    for share in shares:
        for model, variant in names or (("digits", "cnn"), ("digits", "linear")):
            profile = Profile(model, variant, H200, points, 20_000, 1 << 20, share=Share.parse(share))
            ProfileStore(folder).write(profile)
