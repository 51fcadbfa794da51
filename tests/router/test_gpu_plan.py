"""What `penstock check` and the start say of slices on GPUs."""

from pathlib import Path

import pytest

from router.gpu_plan import gpu_lines
from router.settings import load_settings
from tests.router.settings.samples import write_deployment

FLEET = """\
devices: [{name: h, kind: gpu-nvidia-h200, count: 3, rehearse: true}]
slices:
  - {name: c, cores: 1}
  - {name: half, device: h, share: "mps:50", count: 2}
models: [{path: models/digits}]
"""


SAYS = "(gpu-nvidia-h200): 2 times mps:50; no model is loaded, answers come as profiles say"
ENTRY = '  - {name: half, device: h, share: "mps:50", count: 2}\n'


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("", "", [f"rehearsed, h-1 to h-3, each {SAYS}"]),
        ("half, device: h,", "half, device: h-2,", [f"rehearsed, h-2 {SAYS}"]),
        (ENTRY, "", []),
    ],
)
def test_alike_devices_have_one_line(tmp_path: Path, old: str, new: str, lines: list[str]) -> None:
    settings = load_settings(write_deployment(tmp_path, FLEET.replace(old, new)))
    assert [*gpu_lines(settings)] == lines
