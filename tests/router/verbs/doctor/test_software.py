"""What the checks say of the interpreter, and of decisions that are interpreted."""

from dataclasses import replace
from pathlib import Path

from router.verbs.doctor.software import check_compiled, check_python
from tests.router.verbs.doctor.roots import is_fault, is_ok, is_warning, machine


def absent(_: str) -> None:
    return None


def test_an_interpreter_that_is_too_old_is_a_fault() -> None:
    assert is_ok(check_python())
    assert is_ok(check_python((3, 11, 0)))
    assert is_fault(check_python((3, 10, 12)))


def test_interpreted_decisions_are_warned_of_with_what_is_lacking(tmp_path: Path) -> None:
    here = machine(tmp_path)
    assert is_ok(check_compiled(here, compiled=True))
    slow = check_compiled(here, compiled=False, which=lambda name: f"/usr/bin/{name}")
    assert is_warning(slow)
    assert slow.cure == "python -m serving.compiled"
    without = check_compiled(here, compiled=False, which=absent)
    assert "no C compiler" in without.sentence
    assert "gcc" in without.cure
    asked = check_compiled(replace(here, environ={"PENSTOCK_INTERPRETED": "1"}), compiled=True)
    assert is_warning(asked)
    assert asked.cure == "unset PENSTOCK_INTERPRETED"
