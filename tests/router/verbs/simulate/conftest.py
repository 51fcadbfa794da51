"""A deployment on disk whose models have been measured, and the command run on it."""

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from router.cli import app
from serving.profile.curve import Point, Profile
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import SliceSpec
from tests.router.settings.samples import write_deployment

GATEWAY = """\
slices: [{name: cpu-a, cores: 1}]
models:
  - {path: models/digits, slo_ms: 25, variants: [linear], default_variant: linear}
  - {path: models/minilm, slo_ms: 200, variants: [fp32]}
"""

Simulate = Callable[..., Result]


def measured(home: Path, model: str, variant: str, row_us: float, sizes: tuple[int, ...] = (0,)) -> None:
    """A profile in which a batch takes 1 ms and `row_us` a row, in each size bucket as much longer."""
    kind = device_kind(SliceSpec("any", (0,)))
    points = tuple(
        Point(size, rows, latency_us, 1.1 * latency_us, 30)
        for size in sizes
        for rows in (1, 2, 4, 8, 16)
        for latency_us in [1000 + row_us * rows * max(size // 64, 1)]
    )
    ProfileStore(home / "profiles").write_local(Profile(model, variant, kind, points))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Digits carry some 900 rows a second in 25 ms, minilm 190 of its largest size."""
    write_deployment(tmp_path, GATEWAY)
    measured(tmp_path, "digits", "linear", 1000)
    measured(tmp_path, "minilm", "fp32", 2500, (64, 128))
    return tmp_path


def table(printed: str) -> list[str]:
    """The lines of the table alone, without its titles: other lines below it name models too."""
    lines = iter(printed.splitlines())
    next(line for line in lines if "───" in line)
    return list(takewhile(str.strip, lines))


@pytest.fixture
def simulate(home: Path) -> Simulate:
    """`penstock simulate` on that deployment: two simulated seconds, one seed."""

    def run(*arguments: str, config: str = "penstock.yaml") -> Result:
        short = ["--seconds", "2", "--seeds", "1"]
        return CliRunner().invoke(app, ["simulate", str(home / config), *short, *arguments])

    return run
