"""The board: shares follow the courses, ends outlive a restart, and operators have the last word."""

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from router.management.rollouts.board import RolloutBoard, RolloutError
from router.observing.rollout_status import RolloutStatus
from router.observing.telemetry import Telemetry
from serving.ports import Reply, Serving
from serving.runtime.calls.splitting import Splits
from serving.selection.feedback import Feedback
from serving.selection.labels import CANDIDATE, PRESENT
from serving.values.rollouts import ACCURACY, ATTAINMENT, RolloutSpec
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED, MODEL_ERROR
from tests.builders import model_spec, served
from tests.router.happenings import end, request

S = 1_000_000
SPEC = RolloutSpec("m", (0.5, 1.0), 3 * S, margins={ATTAINMENT: 0.05})


class House:
    """A board over two models, and a clock of whole seconds."""

    def __init__(self, folder: Path, revision: str = "one", spec: RolloutSpec = SPEC) -> None:
        self.candidate = replace(served(model_spec("m-2")), rollout=spec, revision=revision)
        self.models: dict[str, Any] = {"m": served(model_spec("m")), "m-2": self.candidate}
        self.now_s, self.ready = 0, {"m": True, "m-2": True}
        self.telemetry = Telemetry(self.models.values())
        self.splits = Splits(1)
        serving = SimpleNamespace(
            models=self.models, now_us=lambda: self.now_s * S, model_ready=lambda name: self.ready[name]
        )
        self.renewed: list[str] = []

        async def renew(model: str) -> None:
            self.renewed.append(model)

        self.board = RolloutBoard(
            cast(Serving, serving), self.telemetry, self.splits, folder / "penstock.yaml", renew
        )

    def seconds(self, count: int, failing: int = 0) -> None:
        """So many seconds, each with 50 requests of both models; of the candidate some fail."""
        for _ in range(count):
            self.now_s += 1
            for number in range(50):
                end(self.telemetry, request("m"))
                end(self.telemetry, request("m-2"), MODEL_ERROR if number < failing else COMPLETED)
            if self.board.look():
                asyncio.run(self.board.keep())

    def label(self, count: int) -> None:
        """Labels on so many answers of each: all of m are right, and every third of m-2."""
        book = self.splits.labels.books["m"]
        for number in range(count):
            for member, wrong in ((PRESENT, False), (CANDIDATE, number % 3 > 0)):
                reply = Reply(COMPLETED)
                reply.outputs = (Tensor("Y", "FP32", (1, 4), np.eye(4, dtype=np.float32)[0].tobytes()),)
                query = book.answered(member, reply, 1, ("", 0))
                book.learn([Feedback(query, labels=(int(wrong),))], 0, "")

    def act(self, act: str) -> RolloutStatus:
        """What an operator asks of m, as the route does it."""
        now = self.board.act("m", act)
        asyncio.run(self.board.keep())
        return now

    @property
    def share(self) -> float:
        split = self.splits.by_model.get("m")
        return split.share if split else 0.0

    @property
    def state(self) -> str:
        return self.board.describe()[0]["state"]


def test_a_good_candidate_gets_its_steps_and_then_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    house = House(tmp_path)
    assert house.share == 0
    house.seconds(1)
    assert (house.share, house.state) == (0.5, "canary")
    house.seconds(20)
    assert (house.share, house.state) == (1.0, "promoted")
    assert [each.getMessage().partition(":")[0] for each in caplog.records] == [
        "m-2 gets 50 % of the requests for m (canary)", "m-2 gets 100 % of the requests for m (promoted)"
    ]  # fmt: skip


def test_a_failing_one_gets_nothing_any_more_and_a_restart_knows(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.seconds(3, failing=30)
    assert (house.share, house.state) == (0.0, "rolled back")
    again = House(tmp_path)
    again.seconds(3)
    assert (again.share, again.state) == (0.0, "rolled back")
    assert again.board.describe()[0]["why"] == house.board.describe()[0]["why"]
    other = House(tmp_path, revision="two")
    other.seconds(1)
    assert other.state == "canary"


def test_what_was_promoted_is_so_after_a_restart_once_it_is_ready(tmp_path: Path) -> None:
    House(tmp_path).act("promote")
    again = House(tmp_path)
    again.ready["m-2"] = False
    again.board.follow()
    assert (again.share, again.state) == (0.0, "promoted")
    again.ready["m-2"] = True
    again.seconds(1)
    assert again.share == 1.0


def test_operators_abort_start_again_and_promote(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.seconds(1)
    assert house.act("abort")["state"] == "aborted"
    assert house.share == 0
    house.act("start")
    house.seconds(1)
    assert house.share == 0.5
    assert house.act("promote")["share"] == 1.0
    assert house.share == 1.0


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    house = House(tmp_path)
    with pytest.raises(RolloutError, match=r"nobody has no candidate.*; m has one"):
        house.board.act("nobody", "start")
    house.ready["m-2"] = False
    with pytest.raises(RolloutError, match="m-2 has no replica that is ready"):
        house.act("promote")


def test_candidates_come_change_and_go(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.seconds(2)
    house.models["m-2"] = replace(house.candidate, slo_us=1)  # the same files and rollout: it goes on
    house.board.follow()
    assert house.share == 0.5
    house.models["m-2"] = replace(house.candidate, rollout=replace(SPEC, steps=(0.1, 1.0)))
    house.board.follow()
    assert house.state == "waiting"
    del house.models["m-2"]
    house.board.follow()
    assert (house.board.describe(), house.share) == ([], 0.0)


def test_a_lost_present_model_is_not_looked_at(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.seconds(1)
    del house.models["m"]
    house.seconds(1)
    assert house.state == "canary"


def test_labels_are_taken_until_the_end_where_accuracy_has_a_margin(tmp_path: Path) -> None:
    house = House(tmp_path, spec=replace(SPEC, margins={**SPEC.margins, ACCURACY: 0.1}))
    house.seconds(2)
    books = house.splits.labels.books
    assert books.keys() == {"m"}
    house.label(90)
    house.seconds(1)
    assert house.state == "rolled back"
    assert house.board.describe()[0]["why"].startswith("it is right for 33.33% of 90 requests")
    assert books == {}
    house = House(tmp_path, revision="two")
    house.seconds(1)
    assert (house.state, house.splits.labels.books) == ("canary", {})


@pytest.mark.parametrize("text", ["{", "[]", '{"m-2": {}}', '{"m-2": {"state": "nonsense"}}'])
def test_a_damaged_file_is_passed_over(tmp_path: Path, text: str) -> None:
    file = tmp_path / ".penstock" / "penstock.rollouts.json"
    file.parent.mkdir()
    file.write_text(text)
    house = House(tmp_path)
    house.seconds(1)
    assert house.state == "canary"
    house.act("abort")
    assert json.loads(file.read_text())["m-2"]["state"] == "aborted"


class Versions(House):
    """A board over two versions of m; after a promotion, the second is to have the model's name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        spec = replace(model_spec("m@2"), version=2)
        self.candidate = replace(served(spec), rollout=SPEC, revision="one")
        self.models.pop("m-2")
        self.models["m"] = served(replace(model_spec("m"), version=1))
        self.models["m@2"] = self.candidate
        self.ready["m@2"] = True
        self.telemetry.serve(self.candidate)
        self.board.follow()

    def rounds(self, count: int) -> None:
        """So many looks of the board, a second each."""
        for _ in range(count):
            self.now_s += 1
            self.board.look()
            asyncio.run(self.board.take_places())


def test_a_promoted_version_takes_the_models_name_after_one_more_hold(tmp_path: Path) -> None:
    house = Versions(tmp_path)
    house.rounds(1)
    house.act("promote")
    house.rounds(3)
    assert house.renewed == [], "until then an operator can take it back"
    house.rounds(5)
    assert house.renewed == ["m"], "once, whatever comes of it"


def test_a_version_that_was_taken_back_in_time_does_not_take_the_models_name(tmp_path: Path) -> None:
    house = Versions(tmp_path)
    house.rounds(1)
    house.act("promote")
    house.rounds(2)
    house.act("abort")
    house.rounds(5)
    assert house.renewed == []
    house.act("promote")
    house.rounds(2)
    assert house.renewed == [], "its time begins again"


def test_a_candidate_with_another_name_stays_beside_the_model(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.seconds(1)
    house.act("promote")
    for _ in range(9):
        house.now_s += 1
        asyncio.run(house.board.take_places())
    assert house.renewed == []


def test_a_version_that_is_served_without_a_rollout_is_kept_as_promoted(tmp_path: Path) -> None:
    house = Versions(tmp_path)
    del house.models["m@2"]
    house.models["m"] = replace(house.models["m"], revision="first")
    house.board.follow()
    assert house.board.look()
    asyncio.run(house.board.keep())
    kept = json.loads((tmp_path / ".penstock" / "penstock.rollouts.json").read_text())
    assert (kept["m@1"]["state"], kept["m@1"]["revision"]) == ("promoted", "first")
    house.board.follow()
    assert not house.board.look(), "it is known"


def test_of_versions_the_ends_of_earlier_rollouts_are_kept(tmp_path: Path) -> None:
    house = Versions(tmp_path)
    house.act("abort")
    third = replace(house.candidate, spec=replace(model_spec("m@3"), version=3))
    house.models["m@3"] = third
    house.ready["m@3"] = True
    del house.models["m@2"]
    house.board.follow()
    house.act("promote")
    kept = json.loads((tmp_path / ".penstock" / "penstock.rollouts.json").read_text())
    assert {name: end["state"] for name, end in kept.items()} == {"m@2": "aborted", "m@3": "promoted"}


def test_a_rollout_that_goes_on_is_kept_as_one_that_was_not_judged(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.seconds(1)
    kept = json.loads((tmp_path / ".penstock" / "penstock.rollouts.json").read_text())
    assert kept["m-2"]["state"] == "canary"
    again = House(tmp_path)
    assert again.state == "waiting", "it begins again from the first step"
