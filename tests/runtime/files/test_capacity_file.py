"""Promises of tables that are kept: each stands for what was asked, and for nothing else."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from serving.control.commands import FindCapacity
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.carried.guess import guess
from serving.runtime.files.capacity_file import KEPT, CapacityFile
from tests.builders import model_spec, profile, served

TABLE = Capacity((1, 2), (1.0, 4.0), ((100.0, 210.0), (60.5, 150.0)))
ASKED = FindCapacity(served(), "a", "cpu cores:1", profile(), 4)


def test_a_table_is_there_for_the_same_question_in_another_process(tmp_path: Path) -> None:
    CapacityFile(tmp_path / "local" / "c.json").write(ASKED, TABLE)
    assert CapacityFile(tmp_path / "local" / "c.json").read(ASKED) == TABLE


def test_it_stands_for_a_profile_that_is_hardly_another_and_for_no_other(tmp_path: Path) -> None:
    kept = CapacityFile(tmp_path / "c.json")
    kept.write(ASKED, TABLE)
    assert kept.read(replace(ASKED, profile=profile(row_us=102))) == TABLE
    assert kept.read(replace(ASKED, profile=profile(row_us=150))) is None


@pytest.mark.parametrize(
    "other",
    [
        replace(ASKED, kind="cpu cores:2"),
        replace(ASKED, variant="b"),
        replace(ASKED, most=8),
        replace(ASKED, model=replace(ASKED.model, slo_us=1_000)),
        replace(ASKED, model=served(model_spec("n"))),
    ],
)
def test_it_stands_for_no_other_question(tmp_path: Path, other: FindCapacity) -> None:
    kept = CapacityFile(tmp_path / "c.json")
    kept.write(ASKED, TABLE)
    assert kept.read(other) is None


def told(**changes: str) -> str:
    """A file with a table in which some fields say something else, as JSON."""
    one = str(guess(ASKED.profile, ASKED.model).rate(1))
    fields = {"one": one, "counts": "[1, 2]", "cvs": "[1.0]", "rates": "[[100.0, 210.0]]"} | changes
    return '{"KEY": {' + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}}"


def test_a_file_that_was_written_by_hand_is_read(tmp_path: Path) -> None:
    kept = CapacityFile(tmp_path / "c.json")
    kept.write(ASKED, TABLE)
    (key,) = kept._tables()
    (tmp_path / "c.json").write_text(told().replace("KEY", key))
    assert kept.read(ASKED) == Capacity((1, 2), (1.0,), ((100.0, 210.0),))


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", '{"KEY": {}}', '{"KEY": {"one": "x"}}', '{"KEY": 3}', "[" * 100_000,
        told(one="9" * 400), told(one="NaN"), told(counts="[1, Infinity]"), told(counts="[]", rates="[[]]"),
        told(counts="[0, 2]"), told(counts="[2, 1]"), told(counts="[1]"), told(cvs="[]", rates="[]"),
        told(cvs="[1.0, 1.0]", rates="[[100.0, 210.0], [100.0, 210.0]]"), told(rates="[[100.0, NaN]]"),
        told(rates="[[0.0, 210.0]]"), told(rates="[[-1.0, 1e999]]"),
    ],
    ids=lambda content: content[:80],
)  # fmt: skip
def test_a_damaged_file_counts_for_nothing_and_is_replaced(tmp_path: Path, content: str) -> None:
    kept = CapacityFile(tmp_path / "c.json")
    kept.write(ASKED, TABLE)
    (key,) = kept._tables()
    (tmp_path / "c.json").write_text(content.replace("KEY", key))
    assert kept.read(ASKED) is None
    kept.write(ASKED, TABLE)
    assert kept.read(ASKED) == TABLE


def test_the_oldest_are_forgotten(tmp_path: Path) -> None:
    kept = CapacityFile(tmp_path / "c.json")
    kept.write(ASKED, TABLE)
    tables = kept._tables()
    ((key, one),) = tables.items()
    others = {f"{number}": one for number in range(KEPT - 1)}
    (tmp_path / "c.json").write_text(json.dumps({key: one, **others}))
    kept.write(replace(ASKED, most=8), TABLE)
    assert kept.read(ASKED) is None
    assert kept.read(replace(ASKED, most=8)) == TABLE
    assert len(kept._tables()) == KEPT
