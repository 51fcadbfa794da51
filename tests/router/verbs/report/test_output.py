"""Where reports go."""

from pathlib import Path

import pytest

from router.verbs.report.output import PIPE_WIDTH, console, save, unwritable


def test_a_file_in_a_folder_that_is_there_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    assert unwritable(file) == ""
    assert save(file, Path.touch) == ""
    assert file.exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent/a.txt", "there is no folder"),
        (".", "is a folder; expected the name of a file to write"),
        ("x" * 300, "cannot be written: File name too long"),
    ],
)
def test_where_none_can_be_written_is_told_before_any_work_is_done(
    tmp_path: Path, name: str, said: str
) -> None:
    assert said in unwritable(tmp_path / name)


def test_why_a_file_was_not_written_is_told(tmp_path: Path) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    file = tmp_path / "a.txt"
    assert save(file, full) == f"{file} cannot be written: No space left on device"


def test_a_pipe_is_wide_enough_to_cut_no_name() -> None:
    assert console().width == PIPE_WIDTH
