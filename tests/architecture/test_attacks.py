"""docs/attacks.md has each weakness once, with tests and attacks that are there."""

import ast
import re

import pytest

from tests.architecture.source_rules import ROOT

PAGE = (ROOT / "docs" / "attacks.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| (D\d+) \|(.*)\|$", PAGE, re.MULTILINE))
COUNT = 27
OPEN = "**Open**"


def defined(module: str) -> set[str]:
    """The functions and classes of a module of `loadtests/hostile/abuse/`, methods not."""
    path = ROOT / "loadtests" / "hostile" / "abuse" / f"{module}.py"
    tree = ast.parse(path.read_text("utf-8")) if path.exists() else ast.Module([], [])
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)}


def test_each_weakness_has_one_row() -> None:
    found = re.findall(r"^\| (D\d+) \|", PAGE, re.MULTILINE)
    assert sorted(found, key=lambda each: int(each[1:])) == [f"D{number + 1}" for number in range(COUNT)]


@pytest.mark.parametrize("row", ROWS)
def test_what_holds_a_row_is_there(row: str) -> None:
    held_by = ROWS[row].split(" | ")[-1]
    tests = re.findall(r"`(tests/[\w/]+\.py)`", held_by)
    attacks = re.findall(r"`(\w+)\.(\w+)`", held_by)
    assert tests or (OPEN in ROWS[row] and attacks)
    assert [each for each in tests if not (ROOT / each).exists()] == []
    assert [f"{module}.{name}" for module, name in attacks if name not in defined(module)] == []
    assert len(tests) + len(attacks) == held_by.count("`") // 2  # nothing is named in another way
