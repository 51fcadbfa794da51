"""Evidence: false alarms are bounded however often one looks, and a worse candidate is found."""

from math import exp, log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.rollouts.evidence import Evidence, Trials

counts = st.integers(0, 50)


def block(draw: Random, rate: float, count: int) -> Trials:
    return Trials(sum(draw.random() < rate for _ in range(count)), count)


def looked(draw: Random, rates: tuple[float, float], margin: float, looks: int) -> tuple[float, float]:
    """The most evidence of both kinds at any look."""
    found, worse, fine = Evidence(margin), 0.0, 0.0
    for _ in range(looks):
        found.add(block(draw, rates[0], 18), block(draw, rates[1], 2))
        worse, fine = max(worse, found.worse), max(fine, found.fine)
    return worse, fine


@pytest.mark.slow
@pytest.mark.parametrize(("rates", "margin"), [((0.99, 0.99), 0.0), ((0.95, 0.94), 0.01), ((0.6, 0.5), 0.1)])
def test_a_candidate_within_its_margin_is_seldom_found_worse(
    rates: tuple[float, float], margin: float
) -> None:
    draw, alarm, runs = Random(7), 0.05, 300
    found = sum(looked(draw, rates, margin, 150)[0] >= -log(alarm) for _ in range(runs))
    assert found / runs < alarm + 3 * (alarm * (1 - alarm) / runs) ** 0.5  # three standard errors


@pytest.mark.slow
def test_a_candidate_beyond_its_margin_is_seldom_found_fine() -> None:
    draw, doubt, runs = Random(8), 0.05, 300
    found = sum(looked(draw, (0.97, 0.95), 0.01, 150)[1] >= -log(doubt) for _ in range(runs))
    assert found / runs < doubt + 3 * (doubt * (1 - doubt) / runs) ** 0.5


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.85])
def test_a_much_worse_candidate_is_found_soon(rate: float) -> None:
    draw = Random(9)
    found = Evidence(0.01)
    for _ in range(100):
        found.add(block(draw, 0.99, 18), block(draw, rate, 2))
    assert found.worse > log(1000)
    assert found.fine <= 0.5


def test_an_equal_candidate_is_found_fine_in_the_end() -> None:
    draw = Random(10)
    found = Evidence(0.01)
    for _ in range(600):
        found.add(block(draw, 0.999, 90), block(draw, 0.999, 10))
    assert found.fine > log(20)
    assert found.worse < log(20)


@given(st.lists(st.tuples(counts, counts, counts, counts), max_size=20), st.sampled_from([0.0, 0.01, 0.2]))
def test_no_history_breaks_it(blocks: list[tuple[int, int, int, int]], margin: float) -> None:
    found = Evidence(margin)
    for good, bad, better, worse in blocks:
        found.add(Trials(good, good + bad), Trials(better, better + worse))
    assert found.worse == found.worse  # not nan
    assert found.fine == found.fine
    assert found.baseline.count == sum(good + bad for good, bad, _, _ in blocks)


@given(st.integers(0, 2**32))
def test_the_mean_of_the_next_factor_is_at_most_one_within_the_claim(seed: int) -> None:
    """The promise of an e-process, exactly: over all outcomes of a block of one trial each."""
    draw = Random(seed)
    margin = draw.choice([0.0, 0.01, 0.1])
    old = draw.uniform(margin, 1)
    new = draw.uniform(max(old - margin, 0.0), 1)  # at least the baseline's less the margin
    history = [(Trials(draw.randint(0, 9), 9), Trials(draw.randint(0, 9), 9)) for _ in range(3)]
    mean = 0.0
    for first, p_first in ((1, old), (0, 1 - old)):
        for second, p_second in ((1, new), (0, 1 - new)):
            found = Evidence(margin)
            for pair in history:
                found.add(*pair)
            before = found.worse
            found.add(Trials(first, 1), Trials(second, 1))
            mean += p_first * p_second * exp(found.worse - before)
    assert mean <= 1 + 1e-6
