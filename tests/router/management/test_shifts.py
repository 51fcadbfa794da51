"""The board of shifts: it counts each request once, says a shift once, and outlives a restart."""

import asyncio
import json
import logging
from pathlib import Path

import numpy as np
import pytest

from router.management.shifts import ShiftBoard
from router.observing.telemetry.counting.answers import AnswerCounts
from router.observing.telemetry.counting.journal import Journal
from router.observing.telemetry.counting.shapes import HOUR_S
from serving.values.tensor import Tensor
from tests.router.happenings import reply, request


class House:
    def __init__(self, folder: Path, kept: int = 4096) -> None:
        self.now_s = 1000.0 * HOUR_S
        self.journal = Journal(kept)
        self.board = ShiftBoard(self.journal, folder / "penstock.yaml", lambda: self.now_s)

    def requests(self, count: int, rows: int = 1) -> None:
        for _ in range(count):
            self.journal.done(request("m", rows), reply(), 1_000, True)

    def hours(self, count: int, each: int = 1000) -> None:
        for _ in range(count):
            self.requests(each)
            self.board.look()
            self.now_s += HOUR_S
            if self.board.look():
                asyncio.run(self.board.keep())


def test_a_shift_is_said_once_until_it_is_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    house = House(tmp_path)
    house.hours(4)
    caplog.set_level(logging.WARNING)
    house.requests(3000, rows=30)
    for _ in range(3):
        house.board.look()
    assert house.board.describe()["m"]["rows"] > 0.2
    assert [each.getMessage() for each in caplog.records] == [
        "the rows of requests for m are others than in the last days"
    ]


def test_another_kind_of_answers_is_said_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    house = House(tmp_path)
    answers = AnswerCounts(0, 2)
    house.board = ShiftBoard(house.journal, tmp_path / "penstock.yaml", lambda: house.now_s, {"m": answers})

    def answer(row: tuple[float, float], count: int) -> None:
        for number in range(count):
            reply_of = reply()
            reply_of.outputs = [Tensor("y", "FP64", (1, 2), np.array(row).tobytes())]
            answers.take(reply_of, number * 1_000_000)

    for _ in range(4):
        answer((0.9, 0.1), 1000)
        house.hours(1)
    caplog.set_level(logging.WARNING)
    answer((0.4, 0.6), 3000)
    house.board.look()
    assert [each.getMessage() for each in caplog.records] == [
        "the classes of answers of m are others than in the last days",
        "the confidences of answers of m are others than in the last days",
    ]


def test_each_request_counts_once_and_a_flood_by_its_last(tmp_path: Path) -> None:
    house = House(tmp_path, kept=10)
    house.requests(7)
    house.board.look()
    house.board.look()
    house.requests(100)
    house.board.look()
    assert house.board._models["m"]._now["rows"] == {"1": 17}


def test_a_restart_knows_what_is_usual_and_only_counts_are_kept(tmp_path: Path) -> None:
    House(tmp_path).hours(5)
    kept = json.loads((tmp_path / ".penstock" / "penstock.shapes.json").read_text())
    assert kept.keys() == {"m"}
    assert kept["m"].keys() == {"rows", "sizes", "variants", "classes", "confidences"}
    again = House(tmp_path)
    again.requests(600, rows=30)
    again.board.look()
    assert again.board.describe()["m"]["rows"] == 1


def test_a_folder_that_cannot_be_written_to_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".penstock").write_text("no folder")
    House(tmp_path).hours(4)
    said = [each for each in caplog.records if "what is usual cannot be kept" in each.getMessage()]
    assert len(said) == 1


@pytest.mark.parametrize("text", ["{", "[1]", '{"m": {}}', '{"m": {"rows": 3, "sizes": {}, "variants": {}}}'])
def test_a_damaged_file_is_passed_over(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / ".penstock" / "penstock.shapes.json"
    file.parent.mkdir()
    file.write_text(text)
    assert House(tmp_path).board.describe() == {}
    assert "what is usual cannot be read" in caplog.text
