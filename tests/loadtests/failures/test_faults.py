"""Faults under load: what counts as a broken promise; and the promises, kept by a real gateway."""

import argparse

import pytest

from loadtests.failures import faults
from loadtests.failures.faults import REFUSED, SCENARIOS, SLO_S, Fault, Finding, Row, judge, run
from loadtests.harness.gateway import Gateway
from loadtests.harness.wire import Answer
from loadtests.stand.checked import RIGHT, Client, Sent
from tests.loadtests.patience import PATIENT_MS

KILL, KILL_OF_TWO, STOP, _, POISON = SCENARIOS
SOUND, POISONOUS = Row((1.0, 2.0, 0.5, 0.25)), Row((-1.0, 2.0, 0.5, 0.25))
FAULT = Fault(10.0, 11.0)


def ran(*violations: tuple[float, str], row: Row = SOUND) -> Client:
    """A run of 1000 right answers in 20 s and these others, by due time."""
    client = Client(Gateway("nowhere", 0, 0))
    endings = [(number / 50, RIGHT) for number in range(1000) if not 10 <= number / 50 <= 11]
    for due_s, what in sorted([*endings, *violations]):
        question = SOUND if what == RIGHT else row
        client.sent.append(Sent(question, due_s, due_s, due_s + SLO_S / 2, what))
    return client


def verdict(client: Client, whole: bool = True, fault: Fault = FAULT) -> Finding:
    return judge(KILL, client, fault, whole)


def test_violations_in_the_lost_batch_and_until_the_worker_is_back_break_nothing() -> None:
    lost = [(9.99, "503 worker_lost")] * 9
    gap = [(10.0 + number / 50, "503 no_replica") for number in range(50)]
    finding = verdict(ran(*lost, *gap))
    assert finding.broken == []
    assert finding.answered_again_s == pytest.approx(1.02 + SLO_S / 2)
    assert finding.counts["503 no_replica"] == 50
    assert sum(found.get("503 worker_lost", 0) for _, found in finding.timeline) == 9


@pytest.mark.parametrize("due_s", [5.0, 9.9, 11.2, 15.0])
def test_violations_before_the_fault_or_after_the_return_break_the_promise(due_s: float) -> None:
    (said,) = verdict(ran(*[(due_s, "504 deadline_unmet")] * 9)).broken
    assert said == "9 violations outside of the lost batch and the gap: {'504 deadline_unmet': 9}"


def test_where_another_slice_serves_the_model_the_gap_is_no_excuse() -> None:
    gap = [(10.3 + number / 50, "503 no_replica") for number in range(20)]
    assert judge(KILL_OF_TWO, ran(*gap), FAULT, True).broken
    assert judge(KILL_OF_TWO, ran((9.99, "503 worker_lost")), FAULT, True).broken == []


@pytest.mark.parametrize(
    ("what", "said"),
    [("no answer: TimeoutError", "1 x no answer: TimeoutError"), ("200 wrong", "1 x 200 wrong")],
)
def test_a_missing_or_a_wrong_answer_is_never_excused(what: str, said: str) -> None:
    assert said in verdict(ran((10.5, what))).broken


def test_a_worker_that_stays_away_and_surplus_bytes_are_told() -> None:
    client = ran()
    client.surplus_bytes = 3
    found = verdict(client, whole=False).broken
    assert found == ["3 bytes came that nobody had asked for", "a worker is missing at the end"]


def test_nothing_is_said_of_violations_by_a_client_that_was_late() -> None:
    client = ran()
    for one in client.sent[::10]:
        one.sent_s += 0.02
    (said,) = verdict(client).broken
    assert said.startswith("the client was 20.0 ms late")


def test_a_poisonous_row_that_passes_and_a_sound_one_that_fails_with_it_are_told() -> None:
    assert judge(POISON, ran((5.0, REFUSED), row=POISONOUS), None, True).broken == []
    (passed,) = judge(POISON, ran((5.0, "503 worker_lost"), row=POISONOUS), None, True).broken
    assert passed == "1 poisonous rows ended otherwise: {'503 worker_lost': 1}"
    (hit,) = judge(POISON, ran((5.0, REFUSED)), None, True).broken
    assert hit == "1 sound rows failed: {'500 model_error': 1}"


def test_only_every_number_doubled_is_right() -> None:
    doubled = b"".join(Row((2.0, 4.0, 1.0, 0.5)).request.partition(b"}")[2:])[-16:]
    assert SOUND.fault(Answer(200, {"inference-header-content-length": "0"}, doubled)) == ""
    assert SOUND.fault(Answer(200, {"inference-header-content-length": "0"}, doubled[::-1]))
    assert SOUND.fault(Answer(200, {}, doubled))


@pytest.mark.in_turn(2)
@pytest.mark.live
@pytest.mark.slow
@pytest.mark.parametrize("scenario", [KILL, STOP, POISON], ids=lambda one: one.name)
def test_every_request_of_a_run_gets_one_answer_and_poisonous_rows_fail_alone(
    scenario: faults.Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "SLO_S", PATIENT_MS / 1e3)
    monkeypatch.setattr(faults, "STALL_S", 3.0 if scenario is STOP else 20.0)  # nor is a worker replaced
    asked = argparse.Namespace(policy="slo", rate=120.0, seconds=4.0, seed=0)
    client, fault, whole = run(scenario, asked)
    finding = judge(scenario, client, fault, whole)
    assert [said for said in finding.broken if " late" not in said] == []  # a busy machine makes them so
    assert finding.counts["in time"] > 100
    if fault is None:
        assert finding.counts[REFUSED] == sum(finding.counts.values()) // faults.POISON_EVERY
    else:
        assert 0 < finding.answered_again_s < faults.BACK_S
        again_s = fault.at_s + finding.answered_again_s
        failed = [one for one in client.sent if one.what != RIGHT]
        assert [one for one in failed if one.done_s < fault.at_s or one.sent_s > again_s] == []
