"""Deployments on disk whose models were measured, on a machine of four cores, for what is placed on them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from serving.profile.curve import Point, Profile
from serving.profile.device import device_kind
from serving.profile.files.corun import CoRun, Tenant
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import Share, SliceSpec
from tests.router.settings.samples import write_deployment

HERE = device_kind(SliceSpec("", ()))
"""This machine's kind of CPU."""

H200 = "gpu-nvidia-h200"
CORES = (1.0, 2.0, 4.0)
ROWS = (1, 2, 4, 8, 16)

MODELS = """\
models:
  - {path: models/digits, slo_ms: 25, slices: [cpu-a], variants: [linear], default_variant: linear}
  - {path: models/minilm, slo_ms: 200, slices: [cpu-a, cpu-b], variants: [fp32]}
"""
SLICES = "slices: [{name: cpu-a, cores: 1}, {name: cpu-b, cores: 2, threads: 2}]\n"
GATEWAY = SLICES + MODELS
HOST = f"devices: [{{name: host, kind: {HERE}, cores: 4, memory_gb: 8}}]\n"


def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may use the cores 0 to 3, whatever the machine has."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2, 3})


def deployment(home: Path, gateway: str = HOST + GATEWAY) -> Path:
    """Its settings file. On one core a batch takes 1 ms and, a row, 1 ms of digits or 2.5 ms of minilm (twice
    that of its larger size), on more cores as much less as there are."""
    path = write_deployment(home, gateway)
    for cores in CORES:
        measured(home, "digits", "linear", Share("cores", cores), 1000 / cores)
        measured(home, "minilm", "fp32", Share("cores", cores), 2500 / cores, sizes=(64, 128))
    return path


def measured(
    home: Path, model: str, variant: str, share: Share, row_us: float, sizes: Sequence[int] = (0,)
) -> Profile:
    """Kept as committed: of this machine's CPU for cores, else of an H200."""
    kind = HERE if share.kind == "cores" else H200
    points = tuple(
        Point(size, rows, us, 1.1 * us, 30, activation_bytes=rows << 10)
        for size in sizes
        for rows in ROWS
        for us in [1000 + row_us * rows * max(size // 64, 1)]
    )
    profile = Profile(
        model, variant, kind, points, load_us=300_000, warm_us=20_000, memory_bytes=1 << 20, share=share
    )
    ProfileStore(home / "profiles").write(profile)
    return profile


def beside(home: Path, tenant: Tenant, other: Tenant, slowdown: float) -> None:
    """It was measured that `tenant` takes so many times as long beside `other`."""
    ProfileStore(home / "profiles").write_co_runs(HERE, [CoRun(tenant, (other,), 1000.0, 1000 * slowdown, 9)])
