"""What `penstock check` prints of sound and faulty files."""

from dataclasses import replace
from pathlib import Path

from router.management.operations.applied import AppliedPlacement, digest, keep
from router.settings import load_settings
from tests.goldens.conftest import Golden
from tests.router.settings.rehearsed import REHEARSED
from tests.router.settings.samples import write_deployment
from tests.router.verbs.test_check import figures, of_size, report

LINEAR = "    default_variant: linear\n"
RATE = "{rows_per_s: 500, burst_s: 2, concurrent: 64}"
SHOP = f"tenants: [{{name: shop, weight: 2.5, priority: 1, rate: {RATE}}}]\nserver:"
KEPT = "cache: {memory_mb: 0.5, ttl_s: 2, shared: true}\nmodels:\n"
SMALL = ("cores: 1}", "cores: 1, memory_mb: 150}")
REHEARSE = (
    "slices:\n  - {name: cpu-a, cores: 1}",
    f"{REHEARSED}slices:\n  - {{name: cpu-a, device: h-1}}",
)
SLOW = figures(cnn=50_000, linear=10, fp32=1, int8=1)


def test_check(golden: Golden, tmp_path: Path) -> None:
    scenes = {
        "sound": report(tmp_path),
        "a recording": report(tmp_path, "models:\n", "recording: {files: 3, file_mb: 0.5}\nmodels:\n"),
        "kept answers": report(tmp_path, "models:\n", KEPT),
        "kept answers of one model": report(tmp_path, LINEAR, f"{LINEAR}    cache: true\n"),
        "tenants": report(tmp_path, "server:", SHOP),
        "an SLO below a latency": report(
            tmp_path, "- path: models/minilm", "- {path: models/minilm, slo_ms: 2.7}"
        ),
        "a late variant that requests pin": report(tmp_path, measured=SLOW),
        "not measured": report(tmp_path, measured=figures()),
        "nothing fits": report(tmp_path, *SMALL, measured=of_size(linear=198, cnn=199)),
        "faults of the file": report(
            tmp_path, "cores: 1}", "cores: 1, threads: 3}\n  - {name: cpu-c, core: 1}"
        ),
        "rehearsed without profiles and beside real slices": report(tmp_path, *REHEARSE),
    }  # fmt: skip
    settings = load_settings(write_deployment(tmp_path))
    on = {each.name: each.slices for each in settings.models}
    keep(settings.path, AppliedPlacement("a", "yesterday", digest(settings), settings.slices, on))
    scenes["an applied placement"] = report(tmp_path)
    # what the core feeds differs from machine to machine
    golden(
        "check",
        {name: str(replace(each, feed=())).replace(f"{tmp_path}/", "") for name, each in scenes.items()},
    )
