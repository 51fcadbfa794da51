"""Files that are no sane YAML document: one problem, at a place that an editor can go to."""

import sys
from pathlib import Path

import pytest

from router.settings import SettingsError, SettingsProblem
from router.settings.values.document import DEPTH_MAX, FILE_BYTES_MAX, read_document
from tests.router.settings.samples import write_gateway


def fault(home: Path, content: str | bytes) -> str:
    file = home / "penstock.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SettingsError) as caught:
        read_document(file)
    (problem,) = caught.value.problems
    return str(problem).replace(f"{home}/penstock.yaml:", "")


def test_a_missing_file_is_named_with_its_neighbour(tmp_path: Path) -> None:
    write_gateway(tmp_path, "a: 1")
    with pytest.raises(SettingsError) as caught:
        read_document(tmp_path / "penstok.yaml")
    expected = f"{tmp_path}/penstok.yaml:1:1: no such file (did you mean {tmp_path}/penstock.yaml?)"
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "this is a folder"),
        ("nowhere/x", "no such file"),
        ("x" * 300, "cannot be read: File name too long"),
        ("\0", "no file can have this name"),
        ("\ud800", "no file can have this name"),
    ],
)
def test_a_file_that_cannot_be_opened_is_a_problem(tmp_path: Path, name: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        read_document(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "1:1: the file is empty"),
        ("# only a comment\n", "1:1: the file is empty"),
        (b"a: 1\nb: \xff\n", "2:4: not UTF-8 text: byte 0xff cannot be read; save the file as UTF-8"),
        ("a: 1\nb: \x07\n", "2:4: not valid YAML: the character '\\x07' is not allowed in YAML"),
        ("a:\n\tb: 1\n", "2:1: not valid YAML: a tab cannot indent; use spaces"),
        ("a: b: c\n", "1:5: not valid YAML: a ':' stands where no key can; check the indentation"),
        ("a: 1\nb\nc: 2\n", "not valid YAML: a key without its ':'; write `key: value`"),
        ("a: [1, 2\n", "1:4: not valid YAML: this [ is not closed; expected ] before the end of the file"),
        ("a: {b: 1\nc:\n  - d\n", "1:4: not valid YAML: this { is not closed; expected } before line 2"),
        ("a:\n  - {b: 1\n  - {b: 2}\n", "2:5: not valid YAML: this { is not closed; expected } before"),
        ("a: [{b: 1}, {b: 2}\nc: 3\n", "1:4: not valid YAML: this [ is not closed; expected ] before line 2"),
        ("a: {b: 1 c: 2}\n", "1:11: not valid YAML: expected ',' or '}', but got ':'"),
        ("a: 1\n  b: 2\n", "2:4: not valid YAML: a ':' stands where no key can"),
        ("a:\n  b: 1\n c: 2\n", "3:2: not valid YAML: this does not continue the lines above"),
        ("a: *b\n", "1:4: not valid YAML: found undefined alias 'b'; define it earlier with &"),
        ("a: 'open\nb: 1\n", "1:4: not valid YAML: this ' is not closed; expected another ' before the end"),
        ('a: "\\UFFFFFFFF"\n', "not valid YAML: an escape like \\U names no character"),
        ("a: 1\n---\nb: 2\n", "2:1: not valid YAML: but found another document"),
        ("a: &a [*a]\n", "1:4: a[0][0][0][0][0][0][0]: the file unfolds to more than"),
        ("[" * 5000, f"1:{DEPTH_MAX + 1}: not valid YAML: values are nested deeper than {DEPTH_MAX} levels"),
        ("a" * (FILE_BYTES_MAX + 1), "1:1: the file is too large; expected at most 256 KB"),
    ],
)  # fmt: skip
def test_what_is_no_document_is_one_problem_with_a_sentence(
    tmp_path: Path, content: str, expected: str
) -> None:
    assert fault(tmp_path, content).startswith(expected) or expected in fault(tmp_path, content)


def test_aliases_cannot_unfold_a_small_file_into_a_large_value(tmp_path: Path) -> None:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "the file unfolds to more than 20000 values" in fault(tmp_path, "\n".join(lines))


def test_aliases_cannot_nest_past_the_stack(tmp_path: Path) -> None:
    depth = sys.getrecursionlimit()
    lines = ["l0: &l0 [x]"] + [f"l{n}: &l{n} [*l{n - 1}]" for n in range(1, depth)]
    assert "or 32 levels; make it smaller" in fault(tmp_path, "\n".join(lines))


def test_faults_that_leave_the_rest_readable_are_all_kept(tmp_path: Path) -> None:
    text = "a: 1\na: 2\n5: x\n? [k]\n: v\nb: !!int no\nc: !!set {x}\nd: 0x_\n<<: {e: 1}\nf: !!bool maybe\n"
    document = read_document(write_gateway(tmp_path, text))
    assert [(problem.line, problem.where) for problem in document.problems] == [
        (2, "a"), (3, ""), (4, ""), (6, "b"), (7, "c"), (8, "d"), (9, ""), (10, "f")
    ]  # fmt: skip
    assert document.at(("a",)) == 1


def test_scalars_are_read_as_yaml_means_them(tmp_path: Path) -> None:
    text = "[1, 0x10, 1.5, 1e-05, .inf, true, no, null, ~, text, '5', 2024-01-01, !!str 5]"
    values = [1, 16, 1.5, 1e-05, float("inf"), True, False, None, None, "text", "5", "2024-01-01", "5"]
    assert read_document(write_gateway(tmp_path, text)).value == values


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_places_count_from_one_whatever_ends_a_line(tmp_path: Path, line_break: str) -> None:
    document = read_document(
        write_gateway(tmp_path, line_break.join(["\ufeffa: 1", "b:", "  - x", "  - yy"]))
    )
    assert document.value_places[("a",)] == (1, 4)
    assert document.key_places[("b",)] == (2, 1)
    assert document.value_places[("b", 1)] == (4, 5)


def test_a_problem_of_a_missing_value_lies_at_what_should_hold_it(tmp_path: Path) -> None:
    document = read_document(write_gateway(tmp_path, "a:\n  - {b: 1}\n"))
    assert str(document.problem(("a", 0, "c"), "x")) == f"{tmp_path}/penstock.yaml:2:5: a[0].c: x"


def test_a_problem_is_one_printable_line_whatever_the_file_holds() -> None:
    problem = SettingsProblem("a\x1b[31m.yaml", 1, 2, "x\n", "got \ud800 and \u00e9")
    assert str(problem) == "a\\x1b[31m.yaml:1:2: x\\n: got \\ud800 and \u00e9"
