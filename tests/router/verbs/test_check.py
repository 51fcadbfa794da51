"""`penstock check`: errors, warnings, contradictions with what was measured, and the plan."""

from dataclasses import replace
from pathlib import Path

import pytest

from router.verbs.check import Report, check
from router.verbs.feasibility import Measured
from serving.profile.derived.latency import Latency
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel
from tests.builders import profile
from tests.router.settings.samples import GATEWAY, write_accuracy, write_deployment, write_gateway


def figures(**variants_us: float) -> Measured:
    """One row costs the same on every slice; a variant that is not named is not measured."""

    def measured(model: ServedModel, slice_spec: SliceSpec, variant: str) -> Latency | None:
        row_us = variants_us.get(variant)
        return None if row_us is None else Latency(profile(row_us=row_us))

    return measured


FAST = figures(linear=100, cnn=300, fp32=35_120, int8=2_600)


def report(home: Path, old: str = "", new: str = "", measured: Measured = FAST) -> Report:
    write_deployment(home)
    write_accuracy(home / "models" / "digits", {"linear": 0.964, "cnn": 0.9912})
    return check(write_gateway(home, GATEWAY.replace(old, new, 1)), lambda _: measured)


def test_an_slo_that_the_model_brings_is_reported_at_the_entry(tmp_path: Path) -> None:
    (error,) = report(tmp_path, measured=figures(linear=1, cnn=1, fp32=300_000)).errors
    assert (error.line, error.column, error.where) == (13, 5, "models[1].slo_ms")
    assert error.message.endswith("slice cpu-b; raise it above 300 ms")


def test_the_most_accurate_variant_in_time_is_proposed(tmp_path: Path) -> None:
    (error,) = report(
        tmp_path, "default_variant: linear", "", figures(cnn=50_000, linear=10, fp32=1, int8=1)
    ).errors
    assert "digits cnn's measured 50 ms" in error.message
    assert error.message.endswith("or answer with a faster variant (linear: 0.01 ms)")


def test_a_late_variant_that_answers_only_when_pinned_is_a_warning(tmp_path: Path) -> None:
    found = report(tmp_path, measured=figures(cnn=50_000, linear=10, fp32=1, int8=1))
    assert found.errors == ()
    (warning,) = found.warnings
    assert (
        "40 ms is below digits cnn's measured 50 ms for one row on slice cpu-a; a request" in warning.message
    )


def test_a_slice_that_is_too_slow_beside_one_in_time_is_a_warning(tmp_path: Path) -> None:
    def measured(model: ServedModel, slice_spec: SliceSpec, variant: str) -> Latency:
        slow = (model.name, slice_spec.name, variant) == ("minilm", "cpu-a", "fp32")
        return Latency(profile(row_us=300_000 if slow else 10))

    found = report(tmp_path, measured=measured)
    assert found.errors == ()
    assert "250.5 ms is below minilm fp32's measured 300 ms" in found.warnings[0].message
    assert "slice cpu-a" in found.warnings[0].message


def test_a_latency_that_equals_the_slo_is_in_time(tmp_path: Path) -> None:
    assert report(tmp_path, measured=figures(linear=40_000, cnn=40_000, fp32=1, int8=1)).warnings == ()


def test_what_was_never_measured_is_a_note(tmp_path: Path) -> None:
    found = report(tmp_path, measured=figures(linear=10, cnn=10, fp32=10))
    assert found.sound
    assert found.notes == (
        "minilm: not yet measured (int8 on cpu-a, int8 on cpu-b): will be swept at the first start",
    )
    assert "note: minilm: not yet measured (all variants):" in str(report(tmp_path, measured=figures()))


def test_errors_and_warnings_of_the_file_are_reported_together(tmp_path: Path) -> None:
    found = report(tmp_path, "cores: 1}", "cores: 1, threads: 3}\n  - {name: cpu-c, core: 1}")
    assert [error.where for error in found.errors] == ["slices[1].core"]
    assert [warning.where for warning in found.warnings] == ["slices[0].threads"]
    assert found.plan == ()
    assert [line.split(":")[0] for line in str(found).splitlines()] == ["error", "warning"]


def test_a_missing_file_is_reported_like_any_other_error(tmp_path: Path) -> None:
    found = check(tmp_path / "penstock.yaml", lambda _: FAST)
    assert str(found) == f"error: {tmp_path}/penstock.yaml:1:1: no such file"


def of_size(**sizes_mb: int) -> Measured:
    """Profiles that count imports apart, of variants that take so much."""

    def measured(model: ServedModel, slice_spec: SliceSpec, variant: str) -> Latency | None:
        size_mb = sizes_mb.get(variant, 1)
        return Latency(replace(profile(row_us=100), memory_bytes=size_mb << 20, import_bytes=190 << 20))

    return measured


def test_a_model_of_which_nothing_fits_its_slice_is_an_error(tmp_path: Path) -> None:
    asked = ("cores: 1}", "cores: 1, memory_mb: 150}")
    (error,) = report(tmp_path, *asked, measured=of_size(linear=198, cnn=199)).errors
    assert str(error).endswith(
        "digits linear takes 198 MB, and slice cpu-a has 150 MB for models (memory_mb): it cannot be loaded; "
        "raise memory_mb"
    )


def test_a_variant_that_does_not_fit_where_another_answers_is_a_warning(tmp_path: Path) -> None:
    found = report(tmp_path, "cores: 1}", "cores: 1, memory_mb: 150}", measured=of_size(cnn=199))
    (warning,) = found.warnings
    assert "digits cnn takes 199 MB, and slice cpu-a has 150 MB" in str(warning)
    assert found.sound


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (("cpu",), "slices: cpu, on the one core that may be used; `slices:` would say otherwise"),
        (
            ("cpu-1", "cpu-2", "cpu-3"),
            "slices: cpu-1 to cpu-3, one for each of 3 cores, the gateway's included; "
            "`slices: [{name: cpu, cores: 1, count: 2}]` would leave it one",
        ),
    ],
)
def test_the_plan_says_which_slices_there_are_where_the_file_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], line: str
) -> None:
    for module in ("router.verbs.plan", "router.settings.machine.slices"):
        monkeypatch.setattr(f"{module}.default_slices", lambda *_: names)
    write_deployment(tmp_path)
    file = write_gateway(tmp_path, "models: [{path: models/minilm}]")
    assert check(file, lambda _: FAST).plan[-1] == line
    assert not [each for each in report(tmp_path).plan if each.startswith("slices:")]


def test_replicas_that_follow_the_load_are_a_warning_where_no_solver_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaled = ("default_variant: linear", "default_variant: linear\n    replicas: {min: 1, max: 1}")
    assert not report(tmp_path, *scaled).warnings
    monkeypatch.setattr("router.verbs.check.find_spec", lambda _name: None)
    (warning,) = report(tmp_path, *scaled).warnings
    assert warning.where == "models[0].replicas"
    assert "scipy is not installed" in warning.message
    assert "pip install 'penstock[plan]'" in warning.message
