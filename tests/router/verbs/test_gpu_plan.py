"""What `penstock check` and the start say of slices on GPUs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from router.settings import load_settings
from router.verbs.gpu_plan import gpu_lines
from serving.values.slice_specs import Share, SliceSpec
from tests.router.settings.samples import write_deployment

ON_CORES = SliceSpec("c", (0,))
HALF = SliceSpec("", (), device="h-1", part=Share("mps", 50.0), kind="gpu-nvidia-h200", rehearsed=True)
SAYS = "(gpu-nvidia-h200): 2 times mps:50; no model is loaded, answers come as profiles say"


def halves(*devices: str, rehearsed: bool = True) -> list[SliceSpec]:
    return [
        replace(HALF, name=f"{device}-{n}", device=device, rehearsed=rehearsed)
        for device in devices
        for n in "ab"
    ]


@pytest.mark.parametrize(
    ("slices", "lines"),
    [
        ([ON_CORES], []),
        ([ON_CORES, *halves("h-1", "h-2", "h-3")], [f"rehearsed, h-1 to h-3, each {SAYS}"]),
        (halves("h-2"), [f"rehearsed, h-2 {SAYS}"]),
        (
            halves("cuda:0", rehearsed=False),
            ["cuda:0 (gpu-nvidia-h200): 2 times mps:50, as cuda:0-a, cuda:0-b"],
        ),
    ],
)
def test_alike_devices_have_one_line(
    tmp_path: Path, slices: Sequence[SliceSpec], lines: Sequence[str]
) -> None:
    settings = load_settings(write_deployment(tmp_path, "models: [{path: models/digits}]\n"))
    assert [*gpu_lines(replace(settings, slices=tuple(slices)))] == lines
