"""Gateways that share answers while Redis comes and goes: what counts as broken, and a real run."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from loadtests.failures import redis_faults
from loadtests.failures.redis_faults import (
    BARE,
    KILLED,
    RESTARTED,
    RESUMED,
    SHARING,
    STOPPED,
    WITH,
    Asked,
    Course,
    Phase,
    Side,
    judge,
    play_all,
)
from loadtests.harness.gateway import Gateway
from loadtests.harness.wire import ask
from loadtests.stand.checked import RIGHT
from tests.loadtests.patience import PATIENT_MS

pytestmark = [pytest.mark.live, pytest.mark.in_turn(2)]

SIDE = Side(5.0, 9.0, {RIGHT: 100}, {"miss": 100}, 0.1)
BARE_PHASE = Phase(BARE, SIDE, SIDE)
SHARED = replace(SIDE, results={"hit": 95, "miss": 5})


def test_a_phase_with_right_answers_in_time_is_sound() -> None:
    assert judge(Phase(KILLED, replace(SIDE, p99_ms=12.4), SIDE), BARE_PHASE, 2.0) == []
    assert judge(Phase(WITH, SIDE, SHARED), BARE_PHASE, 2.0) == []


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        (Phase(KILLED, replace(SIDE, endings={RIGHT: 99, "503": 1}), SIDE), "new: 1 x 503"),
        (Phase(STOPPED, SIDE, replace(SIDE, p99_ms=12.6)), "again: 3.6 ms more than without Redis at p99"),
        (
            Phase(KILLED, replace(SIDE, late_ms=6.0), SIDE),
            "new: the client was 6.0 ms late (p99): nothing can be said",
        ),
        (Phase(WITH, SIDE, SIDE), "again: only 0 answers were the other gateway's: {'miss': 100}"),
    ],
)
def test_each_broken_promise_is_said(phase: Phase, said: str) -> None:
    assert judge(phase, BARE_PHASE, 2.0) == [said]


class Shared(Course):
    """While Redis answers, one gateway has answers of the other; asked for anew where a stall kept those of a
    phase from being there in time."""

    def play(self, name: str, gateways: Sequence[Gateway], strike: Callable[[], None] | None = None) -> None:
        super().play(name, gateways, strike)
        give_up_s = time.monotonic() + 60
        while name in SHARING and not self.phases[-1].again.results.get("hit"):
            assert time.monotonic() < give_up_s, f"{name}: no gateway has an answer of the other"
            time.sleep(0.1)
            question = Asked(redis_faults._row(next(self._numbers)), Counter())
            for gateway in gateways:
                assert question.fault(ask(gateway, question.request)) == ""
            self.phases[-1].again.results.update(question.results)


@pytest.mark.slow
def test_whatever_becomes_of_redis_every_request_has_its_right_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redis_faults, "SLO_S", PATIENT_MS / 1e3)
    course = Shared(40, 1.0, 0)
    play_all(course, budget_ms=200.0)
    assert [phase.name for phase in course.phases] == [BARE, WITH, STOPPED, RESUMED, KILLED, RESTARTED]
    for phase in course.phases:
        for side in (phase.new, phase.again):
            assert set(side.endings) == {RIGHT}, phase
        assert phase.name not in SHARING or phase.again.results.get("hit"), phase
