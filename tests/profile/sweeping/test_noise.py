"""What is said of a noisy machine: it is refused with its evidence, a quiet one is not."""

from collections.abc import Iterator
from random import Random

import pytest

from serving.profile.sweeping.noise import REFUSED_IN_A_ROW, Evidence, Steadiness


def yardsticks(spread: float, count: int = 400) -> tuple[int, ...]:
    rng = Random(1)
    return tuple(round(500 * (1 + abs(rng.gauss(0, spread / 2)))) for _ in range(count))


def test_a_quiet_machine_is_measured() -> None:
    assert Evidence(yardsticks(0.05), others=0.02, stolen=0.01).quiet


@pytest.mark.parametrize(
    "evidence",
    [Evidence(yardsticks(0.9)), Evidence(yardsticks(0.05), others=0.4),
     Evidence(yardsticks(0.05), stolen=0.2)],
)  # fmt: skip
def test_a_noisy_one_is_not_and_the_evidence_is_said(evidence: Evidence) -> None:
    assert not evidence.quiet
    said = str(evidence)
    assert f"others had {evidence.others:.0%}" in said
    assert f"the hypervisor {evidence.stolen:.0%}" in said
    assert "of 400 runs" in said


def accepted(steadiness: Steadiness, medians: list[int]) -> Iterator[bool]:
    return (steadiness.accepts([each - 1, each, each + 1]) for each in medians)


def test_a_disturbed_trial_is_thrown_away() -> None:
    steadiness = Steadiness()
    assert list(accepted(steadiness, [500, 505, 700, 498])) == [True, True, False, True]
    assert steadiness.thrown_away == 1
    assert steadiness.spread < 0.02


def test_a_machine_that_stays_slower_is_measured_as_it_is() -> None:
    steadiness = Steadiness()
    found = list(accepted(steadiness, [500] * 4 + [700] * 8))
    assert found == [True] * 4 + [False] * REFUSED_IN_A_ROW + [True] + [False] * REFUSED_IN_A_ROW + [True]
    assert steadiness.spread > 0.3


def test_without_a_yardstick_all_counts() -> None:
    assert Steadiness().accepts([])
    assert Steadiness().spread == 0
