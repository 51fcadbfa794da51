"""`workers:` and `guards:`: what they become, and one sentence with its place for each mistake."""

from pathlib import Path

import pytest

from router.settings import load_settings
from router.verbs.plan import plan_lines
from serving.values.slice_specs import WorkersSpec
from serving.values.specs import Guard, guards_of
from tests.router.settings.samples import GATEWAY, gateway_faults, write_gateway


def with_workers(workers: str) -> str:
    return f"workers: {workers}\n{GATEWAY}"


def with_guards(guards: str, at: str = "SCORES") -> str:
    return GATEWAY.replace("slo_ms: 40", f"guards: {{{at}: {guards}}}")


def test_what_is_stated_holds_and_the_rest_has_no_bound(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN", "secret")
    stated = "{environment: {B: '2', A: ''}, inherit: [OWN], memory_mb: 100.5, open_files: 64, orphan_s: 0.5}"
    read = load_settings(write_gateway(home, with_workers(stated)))
    owner = str(home / "penstock.yaml")
    variables = (("A", ""), ("B", "2"))
    assert read.workers == WorkersSpec(variables, ("OWN",), 105_381_888, 64, orphan_s=0.5, owner=owner)
    assert read.warnings == ()
    assert "secret" not in repr(read)
    limits = "at most 100.5 MB each; at most 64 open files a process"
    wait = "wait 0.5 s for the next gateway after a crash"
    assert f"workers: {limits}; {wait}; given A, B, OWN" in plan_lines(read)
    plain = load_settings(write_gateway(home, GATEWAY))
    assert plain.workers == WorkersSpec(owner=owner)
    assert not [line for line in plan_lines(plain) if "workers" in line or "guard" in line]


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ("{memory: 3}", "1:11: workers.memory: unknown key; got 'memory', expected environment, inherit, "
         "memory_mb, open_files, processes, spare or orphan_s (did you mean memory_mb?)"),
        ("{memory_mb: 5}", "1:22: workers.memory_mb: too small; got 5, expected 64 or more"),
        ("{open_files: 3}", "1:23: workers.open_files: too small; got 3, expected 64 or more"),
        ("{environment: {1A: x}}", "1:25: workers.environment.1A: not the name of a variable; got '1A', "
         "expected letters, digits and '_', first no digit"),
        ("{environment: {A: 1}}", "1:28: workers.environment.A: not text; got 1, expected text; quote what "
         "YAML would take for another type"),
        ('{environment: {A: "\\0"}}', "1:28: workers.environment.A: not text; got '\\x00', expected text; "
         "quote what YAML would take for another type"),
        ("{environment: {OMP_NUM_THREADS: '4'}}", "1:25: workers.environment.OMP_NUM_THREADS: threads of a "
         "slice are its own; got 'OMP_NUM_THREADS', expected `threads` in `slices:`"),
        ("{environment: {PATH: x}, inherit: [PATH]}", "1:45: workers.inherit[0]: `environment` sets 'PATH' "
         "already; expected it in one of them"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(home: Path, workers: str, said: str) -> None:
    assert gateway_faults(home, with_workers(workers)) == [f"penstock.yaml:{said}"]


def test_a_worker_may_hold_more_than_the_models_of_a_slice(home: Path) -> None:
    text = with_workers("{memory_mb: 500}").replace("name: cpu-b,", "name: cpu-b, memory_mb: 500,")
    assert gateway_faults(home, text) == [
        "penstock.yaml:1:22: workers.memory_mb: too small for a worker; got 500, expected more than the "
        "500 MB that a slice's models may hold (memory_mb)"
    ]


def test_variables_that_are_not_there_or_come_anyway_are_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    read = load_settings(write_gateway(home, with_workers("{inherit: [NOWHERE, PATH]}")))
    assert [str(each).replace(f"{home}/", "") for each in read.warnings] == [
        "penstock.yaml:1:21: workers.inherit[0]: the environment has no 'NOWHERE': workers get none",
        "penstock.yaml:1:30: workers.inherit[1]: workers get 'PATH' anyway",
    ]


@pytest.mark.parametrize(("user", "warned"), [(0, True), (1000, False)])
def test_root_is_told_that_its_processes_are_not_counted(
    home: Path, monkeypatch: pytest.MonkeyPatch, user: int, warned: bool
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    read = load_settings(write_gateway(home, with_workers("{processes: 100}")))
    said = [str(each) for each in read.warnings if "holds no process of root to it" in str(each)]
    assert bool(said) is warned


def test_guards_are_those_of_the_outputs(home: Path) -> None:
    read = load_settings(write_gateway(home, with_guards("{finite: true, min: 0, max: 1.5}")))
    assert [guards_of(model.spec) for model in read.models] == [{"SCORES": Guard(True, 0, 1.5)}, {}]
    assert "  guard: SCORES is finite, at least 0, at most 1.5, or the request fails" in plan_lines(read)


@pytest.mark.parametrize(
    ("guards", "at", "said"),
    [
        ("{min: 0}", "SCORE", "8:14: models[0].guards.SCORE: unknown output; got 'SCORE', expected SCORES "
         "(did you mean SCORES?)"),
        ("{}", "SCORES", "8:14: models[0].guards.SCORES: guards nothing; expected finite: true, min or max"),
        ("{finite: false}", "SCORES", "8:14: models[0].guards.SCORES: guards nothing; expected finite: true, "
         "min or max"),
        ("{min: 2, max: 1}", "SCORES", "8:36: models[0].guards.SCORES.max: below min; got 1, expected 2 or "
         "more"),
        ("{mini: 2}", "SCORES", "8:23: models[0].guards.SCORES.mini: unknown key; got 'mini', expected "
         "finite, min or max (did you mean min?)"),
        ("3", "SCORES", "8:22: models[0].guards.SCORES: not a mapping; got 3, expected keys and values "
         "(key: value)"),
    ],
)  # fmt: skip
def test_a_guard_that_guards_nothing_is_named(home: Path, guards: str, at: str, said: str) -> None:
    assert gateway_faults(home, with_guards(guards, at)) == [f"penstock.yaml:{said}"]


@pytest.mark.parametrize(
    ("datatype", "guard", "said"),
    [
        ("BYTES", "{min: 0}", "8:14: models[0].guards.SCORES: 'SCORES' is BYTES, whose values have no "
         "bounds; expected an output of numbers"),
        ("BOOL", "{min: 0}", "8:14: models[0].guards.SCORES: 'SCORES' is BOOL, whose values have no bounds; "
         "expected an output of numbers"),
        ("INT32", "{finite: true}", "8:23: models[0].guards.SCORES.finite: INT32 is finite anyway; expected "
         "min or max"),
    ],
)  # fmt: skip
def test_a_guard_fits_the_datatype(home: Path, datatype: str, guard: str, said: str) -> None:
    model = home / "models" / "digits" / "model.yaml"
    model.write_text(
        model.read_text().replace("{name: SCORES, datatype: FP32", f"{{name: SCORES, datatype: {datatype}")
    )
    assert gateway_faults(home, with_guards(guard)) == [f"penstock.yaml:{said}"]
