"""Changes under load: which requests are lost, what breaks a promise; and a real gateway that is changed."""

import argparse
import itertools
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from loadtests.failures import changes, moves
from loadtests.failures.changes import DONE, GIVEN_UP, SCENARIOS, Move, Scenario
from loadtests.failures.losses import DOWN, GOOD, LATE, LOST, REFUSAL, ending, judge
from loadtests.harness.record import CLOSED, NO_ANSWER, REFUSED, Record
from loadtests.stand.living import Living
from serving.values.vocabulary import ALL_OUTCOMES, Kind

OF = {scenario.name: scenario for scenario in SCENARIOS}
SHARE, KILLED = OF["share change"], OF["gateway killed"]
FROM_S, UNTIL_S = 10.0, 13.0  # of the change


def moved(ended: str = DONE, *faults_s: float) -> Move:
    return Move(
        FROM_S, UNTIL_S, ended, ("why",), list(faults_s), (faults_s[0], UNTIL_S) if faults_s else (0, 0)
    )


def ran(*others: tuple[float, int, str]) -> Record:
    """A digit every 100 ms for 20 s, each answered in 20 ms, a text each second; and these others, which are
    digits: due (seconds), status, reason."""
    right = [(number / 10, 0, 200, "") for number in range(1, 200)]
    texts = [(float(number), 1, 200, "") for number in range(1, 20)]
    rows = sorted([*right, *texts, *((due_s, 0, status, reason) for due_s, status, reason in others)])
    record = Record([int(due_s * 1e9) for due_s, *_ in rows], [load for _, load, *_ in rows])
    for number, (due_s, _, status, reason) in enumerate(rows):
        record.sent_ns[number] = int(due_s * 1e9)
        record.done_ns[number] = int(due_s * 1e9) + 20_000_000
        record.statuses[number], record.reasons[number] = status, reason
    return record


def broken(scenario: Scenario, record: Record, move: Move) -> list[str]:
    return list(judge(scenario, record, move, [], []).broken)


def test_an_error_is_lost_unless_it_is_a_stated_refusal() -> None:
    for outcome in ALL_OUTCOMES:
        found = ending(503, outcome.reason.value, True, 5.0, moved())
        turned_away = outcome.kind in (Kind.REJECTED, Kind.SHED)
        mistaken = outcome.reason.value in ("bad_input", "too_large", "unknown_model")
        assert found == (REFUSAL if turned_away and not mistaken else LOST), outcome
    assert ending(503, "a word that nobody knows", True, 5.0, moved()) == LOST
    assert ending(0, NO_ANSWER, True, 5.0, moved()) == LOST


def test_an_answer_is_in_time_or_late() -> None:
    assert (ending(200, "", True, 5.0, moved()), ending(200, "", False, 5.0, moved())) == (GOOD, LATE)


@pytest.mark.parametrize("reason", [REFUSED, CLOSED])
def test_who_comes_while_the_killed_gateway_is_down_is_not_lost_and_who_came_before_is(reason: str) -> None:
    move = moved(DONE, 11.0)
    assert ending(0, reason, True, 11.5, move) == DOWN
    assert ending(0, reason, True, 10.99, move) == LOST
    assert ending(0, reason, True, UNTIL_S + 0.1, move) == LOST
    assert ending(0, reason, True, 11.5, moved()) == LOST  # nobody was killed


def test_every_request_is_in_exactly_one_part_of_its_model() -> None:
    finding = judge(SHARE, ran((10.05, 503, "overload"), (13.5, 500, "model_error")), moved(), [], [])
    for parts in finding.parts.values():
        shown = (parts["before"], parts["window"], parts["after"])
        assert parts["whole"].offered == sum(part.offered for part in shown)
    digits = finding.parts["digits"]
    assert digits["window"].endings == {GOOD: 40, REFUSAL: 1, LOST: 1}
    assert digits["before"].attainment == digits["after"].attainment == 1.0
    assert digits["window"].attainment == pytest.approx(40 / 42)
    assert digits["window"].p99_ms == pytest.approx(20, abs=0.01)
    assert finding.outcomes == {"digits": {"503 overload": 1, "500 model_error": 1}, "minilm": {}}
    assert finding.took_s == UNTIL_S - FROM_S


def test_one_lost_request_breaks_the_promise_whenever_it_comes() -> None:
    assert broken(SHARE, ran(), moved()) == []
    for due_s in (3.05, 11.05, 18.05):
        assert broken(SHARE, ran((due_s, 500, "model_error")), moved()) == ["1 requests were lost"]


def test_what_a_killed_process_had_accepted_may_be_lost_and_nothing_else() -> None:
    at_death, later = (10.95, 0, CLOSED), (12.5, 503, "worker_lost")
    assert broken(KILLED, ran(at_death), moved(DONE, 11.0)) == []
    (said,) = broken(KILLED, ran(at_death, later), moved(DONE, 11.0))
    assert said.startswith("1 requests that no killed process had")


def test_a_moment_without_a_replica_breaks_a_change_in_which_nothing_dies() -> None:
    (said,) = broken(SHARE, ran((11.05, 503, "no_replica")), moved())
    assert "routed nowhere" in said
    assert broken(KILLED, ran((11.05, 503, "no_replica")), moved(DONE, 11.0)) == []


def test_a_change_that_ends_otherwise_than_it_should_breaks_the_promise() -> None:
    assert broken(SHARE, ran(), moved(GIVEN_UP)) == ["it was given up, not done: why"]
    assert broken(OF["rolled back"], ran(), moved(GIVEN_UP)) == []


def test_what_is_not_in_force_afterwards_is_said() -> None:
    class Told(Living):
        def __init__(self, shares: dict[str, int], on: dict[str, str], state: str = "steady") -> None:
            self.shares, self.on, self.state = shares, on, state

        def placement(self) -> dict[str, object]:
            slices = [{"name": name, "cores": cores, "threads": cores} for name, cores in self.shares.items()]
            models = {model: {"slices": [name]} for model, name in self.on.items()}
            return {"slices": slices, "models": models, "progress": {"state": self.state}}

        def workers(self) -> dict[str, int]:
            return dict(zip(self.shares, itertools.count(1), strict=False))

    alone, wide = changes.ALONE, changes.WIDE
    assert changes.untrue(Told({"a": 1, "b": 1}, dict(alone.on)), alone) == []
    assert changes.untrue(Told({"a": 1, "b": 1}, dict(alone.on), "moving"), alone) == ["it is moving still"]
    said = changes.untrue(Told({"wide": 2, "a": 1}, {"digits": "wide", "minilm": "a"}), wide)
    assert [sentence.split(",")[0] for sentence in said] == [
        "slices are {'wide': (2",
        "minilm is on ['a']",
        "workers run for slices ['a'",
    ]


class Quick(Living):
    """The first `at_once` moves to WIDE are over before anybody looks; no process is behind it."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.placed: list[str] = []
        self.killed: list[int] = []

    def place(self, body: Mapping[str, object]) -> str:
        self.placed.append("wide" if body["slices"] is changes.WIDE.slices else "alone")
        return str(len(self.placed))

    def outcome(self, move: str) -> dict[str, object] | None:
        assert move == str(len(self.placed))
        under_way = self.placed[-1] == "wide" and self.placed.count("wide") > self.at_once and not self.killed
        return None if under_way else {"id": move, "result": "done", "reasons": []}

    def workers(self) -> dict[str, int]:
        under_way = self.outcome(str(len(self.placed))) is None
        return {"a": 1, "b": 2, "wide": 3} if under_way else {"wide": 3}

    def until(self, true: Callable[[], bool], what: str, seconds: float = 0.0) -> None:
        assert true(), what


@pytest.mark.parametrize(("name", "victim"), [("old worker killed", 1), ("new worker killed", 3)])
@pytest.mark.parametrize("at_once", [0, 2])
def test_a_move_that_is_over_too_soon_is_ordered_once_more_before_a_worker_is_killed_in_it(
    name: str, victim: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, move = Quick(at_once), Move()
    monkeypatch.setattr(changes, "KILL_AFTER_S", 0.0)
    monkeypatch.setattr(changes, "kill", there.killed.append)
    OF[name].carry_out(there, move)
    assert there.placed == ["wide", "alone"] * at_once + ["wide"]
    assert there.killed == [victim]
    assert move.ended == DONE
    assert len(move.faults_s) == 1


def test_a_move_that_is_over_too_soon_each_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "KILL_AFTER_S", 0.0)
    there = Quick(changes.TRIES)
    with pytest.raises(RuntimeError, match="the move was over before anything could be killed in it"):
        OF["old worker killed"].carry_out(there, Move())
    assert there.killed == []


@pytest.mark.in_turn(3)
@pytest.mark.live
@pytest.mark.slow
@pytest.mark.parametrize("name", ["migration", "gateway killed"])
def test_a_real_gateway_loses_nothing_when_it_is_changed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "CALM_S", 1.0)
    monkeypatch.setattr(moves, "QUIET_S", 0.1)
    asked = argparse.Namespace(digits=40.0, minilm=4.0, seconds=4.0, seed=0)
    finding = moves.play(OF[name], asked)
    assert finding.broken == []
    assert finding.ended == OF[name].ends
    offered = sum(parts["whole"].offered for parts in finding.parts.values())
    assert offered == sum(sum(parts["whole"].endings.values()) for parts in finding.parts.values())
    assert np.isfinite(finding.took_s)
    assert finding.took_s > 0
