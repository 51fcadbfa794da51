"""Promises of the soak: what is wrong, missing or grows is broken, and nothing else."""

import pytest

from loadtests.failures.soak import Soak, Tally, judge, slope
from loadtests.harness.gateway import Gateway


def tally(**counts: int) -> Tally:
    found = Tally()
    for ending, count in counts.items():
        for _ in range(count):
            found.count("a client", ending, 1.0)
    return found


def test_growth_is_what_remains_when_peaks_are_left_out() -> None:
    assert slope([10.0] * 50) == 0
    assert slope([10.0, 500.0, 10.0, 10.0, 900.0] * 10) == pytest.approx(0, abs=1)
    assert slope([100 + 0.5 * at for at in range(101)]) == pytest.approx(50)
    assert slope([5.0]) == 0


@pytest.mark.parametrize(
    ("counts", "broken"),
    [
        ({"right": 100, "no_replica": 9}, []),
        ({"right": 100, "wrong": 1}, ["a client: 1 wrong"]),
        ({"right": 100, "missing": 2}, ["a client: 2 missing"]),
        ({"right": 100, "without a reason": 1}, ["a client: 1 without a reason"]),
        ({"right": 80, "no_replica": 20}, ["a client: 80 of 100 were right"]),
    ],
)
def test_wrong_and_missing_answers_are_broken_and_refusals_up_to_a_share_are_not(
    counts: dict[str, int], broken: list[str]
) -> None:
    assert tally(**counts).judged() == broken


def test_what_grows_is_broken_by_its_second_half() -> None:
    soak = Soak(Gateway("nowhere", 0, 0), 0.0)
    soak.samples = {
        "resident MB": [*range(100), *[100.0] * 100],
        "descriptors": [float(each) for each in range(200)],
        "threads": [18.0] * 200,
    }
    assert judge(soak) == ["descriptors grew by 99.0, over 8"]
