"""`${NAME}` in penstock.yaml: what it becomes, and what is said where it has no value."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.settings.values.document import read_document
from router.settings.values.problems import SettingsError
from router.settings.values.variables import VariableError, expanded

ENVIRON = {"PORT": "8100", "EMPTY": "", "NESTED": "${PORT}"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${PORT}", "8100"),
        ("http://host:${PORT}/v2", "http://host:8100/v2"),
        ("${NONE:-9}", "9"),
        ("${EMPTY:-9}", "9"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("${NONE:-a:-b}", "a:-b"),
        ("$${PORT}", "${PORT}"),
        ("$PORT and $5", "$PORT and $5"),
        ("${NESTED}", "${PORT}"),
    ],
)
def test_a_reference_becomes_what_its_variable_holds(text: str, expected: str) -> None:
    assert expanded(text, ENVIRON) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${NONE}", "the environment has no NONE; set it, or write ${NONE:-default}"),
        ("${}", "names no variable; expected ${NAME}"),
        ("${8}", "names no variable"),
        ("${PORT", "names no variable"),
        ("${PORT-8}", "names no variable"),
    ],
)
def test_a_reference_without_a_value_is_refused(text: str, message: str) -> None:
    with pytest.raises(VariableError) as caught:
        expanded(text, ENVIRON)
    assert message in str(caught.value)


@given(st.text(alphabet="${}PORT:-x", max_size=30))
def test_any_text_is_expanded_or_refused_and_one_without_references_stays(text: str) -> None:
    try:
        found = expanded(text, ENVIRON)
    except VariableError:
        assert "${" in text
        return
    if "${" not in text:
        assert found == text


def read(tmp_path: Path, text: str) -> object:
    file = tmp_path / "penstock.yaml"
    file.write_text(text)
    document = read_document(file)
    assert not document.problems, document.problems
    return document.value


@pytest.mark.parametrize(
    ("written", "held", "expected"),
    [
        ("${V}", "8", 8),
        ("${V}", "0.5", 0.5),
        ("${V}", "true", True),
        ("${V}", "no sense: [", "no sense: ["),
        ("${V:-25}", "", 25),
        ("${V:-}", "", None),
        ('"${V}"', "8", 8),
        ('{port: "${V:-8000}"}', "", {"port": 8000}),
        ('"${V}0"', "8", "80"),
        ('"${V}"', "some text", "some text"),
        ("'${V}'", "8", "8"),
        ("!!str ${V}", "text", "text"),
        ("cpu:${V}", "0-3", "cpu:0-3"),
        ("[1, '${V}']", "2", [1, "2"]),
    ],
)
def test_one_variable_may_become_a_number_and_in_single_quotes_it_stays_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, held: str, expected: object
) -> None:
    monkeypatch.setenv("V", held)
    assert read(tmp_path, f"key: {written}\n") == {"key": expected}


def test_a_variable_that_is_not_set_is_a_problem_at_its_place(tmp_path: Path) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_text("server:\n  rest_port: ${PENSTOCK_NOT_SET}\n")
    (problem,) = read_document(file).problems
    assert (problem.line, problem.column, problem.where) == (2, 14, "server.rest_port")
    assert "the environment has no PENSTOCK_NOT_SET" in problem.message


@pytest.mark.parametrize("text", ["server: {rest_port: ${PORT}}", "slices: [${NAME}]"])
def test_a_variable_without_quotes_inside_brackets_says_what_it_needs(tmp_path: Path, text: str) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_text(text + "\n")
    with pytest.raises(SettingsError) as caught:
        read_document(file)
    (problem,) = caught.value.problems
    assert problem.message == 'not valid YAML: inside {...} and [...] a variable needs quotes: "${NAME}"'
    assert text[problem.column - 2 : problem.column] == "${"
