"""Asking the cache goes on where it pays, ends soon where it does not, and comes back when it pays again."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.cache.benefit import ASKS, CLASSES, COMPUTATIONS, GATEWAY_US, TURN, CacheBenefit, class_of
from serving.values.tensor import Tensor
from tests.seeds import some

ASK_US, KEEP_US = 8.0, 4.0
ROUND = CLASSES * TURN  # asks until each class has had its turn

HEAVY_US, LIGHT_US = 5000.0, 20.0
"""The device's time for a question: of an encoder of texts, of a small perceptron."""


class House:
    """A model behind its cache, which keeps all that is asked of it."""

    def __init__(self, device_us: float) -> None:
        self.worth = CacheBenefit()
        self.device_us = device_us
        self.kept: set[int] = set()
        self.took_us = 0.0  # by the cache
        self.asked = 0

    def ask(self, question: int) -> bool:
        """Whether it asked the cache."""
        if not self.worth.asks([Tensor("X", "FP32", (1, 64), text_of(question))]):
            return False
        answered = question in self.kept
        self.asked += 1
        self.took_us += ASK_US
        self.worth.asked(ASK_US, answered)
        if not answered:
            self.kept.add(question)
            self.took_us += KEEP_US
            self.worth.computed(self.device_us, KEEP_US)
        return True

    def play(self, questions: Iterable[int]) -> None:
        for question in questions:
            self.ask(question)

    def asks_until(self, enabled: bool, questions: Iterable[int]) -> int:
        """How many questions it takes until the cache is on, or off."""
        for number, question in enumerate(questions, start=1):
            self.ask(question)
            if self.worth.enabled is enabled:
                return number
        raise AssertionError(f"never {'on' if enabled else 'off'}")


@lru_cache(50_000)  # a generator takes longer to seed than the cache takes to ask
def text_of(question: int) -> bytes:
    return np.random.default_rng(question).bytes(256) if question else bytes(256)


def zipf(asks: int, seed: int = 1, keys: int = 20_000) -> list[int]:
    shares = 1 / np.arange(1, keys + 1)
    rng = np.random.default_rng(seed)
    return [int(number) for number in rng.permutation(keys)[rng.choice(keys, asks, p=shares / shares.sum())]]


@pytest.mark.parametrize("device_us", [LIGHT_US, HEAVY_US])
def test_where_nobody_asks_again_it_is_off_after_a_bounded_loss(device_us: float) -> None:
    house = House(device_us)
    lost_us = ASK_US + KEEP_US  # an ask
    bound = max(ASKS, COMPUTATIONS * (device_us + GATEWAY_US) / lost_us) + 2
    assert house.asks_until(False, count()) <= bound
    assert house.worth.gain_us < 0


@pytest.mark.slow
def test_while_it_is_off_a_thirty_second_of_the_calls_asks() -> None:
    house = House(LIGHT_US)
    house.asks_until(False, count())
    asked, calls = house.asked, ROUND
    house.play(range(10_000, 10_000 + calls))
    assert not house.worth.enabled
    assert (house.asked - asked) / calls == pytest.approx(1 / CLASSES, rel=0.1)
    assert house.worth.bypassed == calls - (house.asked - asked)


@pytest.mark.slow
@pytest.mark.parametrize("device_us", [LIGHT_US, HEAVY_US])
@pytest.mark.parametrize("seed", some(range(3)))
def test_where_questions_are_popular_it_stays_on(device_us: float, seed: int) -> None:
    house = House(device_us)
    for question in zipf(50_000, seed):
        assert house.ask(question)
    assert house.worth.gain_us > 0


@pytest.mark.slow
def test_where_questions_become_popular_it_comes_back() -> None:
    for device_us, limit in ((HEAVY_US, 2 * TURN), (LIGHT_US, 2 * ROUND)):
        house = House(device_us)
        house.asks_until(False, count(1_000_000))
        assert house.asks_until(True, zipf(4 * ROUND)) <= limit
        on = house.asked
        house.play(zipf(20_000, seed=2))
        assert house.asked - on == 20_000, "and stays"


@pytest.mark.slow
def test_where_everybody_asks_the_same_it_comes_back_whatever_they_ask() -> None:
    for question in range(1, 40, 7):
        house = House(LIGHT_US)
        house.asks_until(False, count(1_000_000))
        assert house.asks_until(True, [question] * (ROUND + TURN)) <= ROUND + TURN


@pytest.mark.slow
def test_questions_that_come_back_at_long_last_are_found_in_the_sample() -> None:
    house = House(HEAVY_US)
    house.asks_until(False, count(1_000_000))
    assert house.asks_until(True, (number % 5000 for number in count())) <= 3 * ROUND


@pytest.mark.slow
@given(st.floats(0, 1), st.sampled_from([LIGHT_US, HEAVY_US]), st.integers(0, 3))
def test_it_is_where_it_gains_and_not_where_it_loses(share: float, device_us: float, seed: int) -> None:
    """Nearly always, wherever gain or loss is of the size of what an ask takes."""
    worth = CacheBenefit()
    saved_us = device_us + GATEWAY_US
    gain_us = share * saved_us - ASK_US - (1 - share) * KEEP_US
    rng = np.random.default_rng(seed)
    on = 0
    asks = 20_000
    for hit in rng.random(asks) < share:
        on += worth.enabled
        worth.asked(ASK_US, bool(hit))
        if not hit:
            worth.computed(device_us, KEEP_US)
    if gain_us > ASK_US:
        assert on > 0.95 * asks
    elif gain_us < -ASK_US / 2:
        assert on < 0.25 * asks


def test_a_pause_of_the_machine_is_not_held_against_the_cache() -> None:
    house = House(LIGHT_US)
    house.play(zipf(2000))
    for _ in range(5):
        house.worth.asked(50_000.0, True)
        assert house.worth.enabled
        house.play(zipf(100))


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100)), max_size=200))
def test_what_is_not_known_switches_nothing(asks: list[tuple[bool, float]]) -> None:
    worth = CacheBenefit()
    for answered, took_us in asks:
        worth.asked(took_us, answered)
    assert (worth.enabled, worth.gain_us) == (True, 0.0), "nothing was computed: nobody knows what is saved"


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=3))
def test_a_question_is_always_of_the_same_class(inputs: list[bytes]) -> None:
    one, other = (
        class_of([Tensor("X", "INT8", (len(data),), kind(data)) for data in inputs])
        for kind in (bytes, memoryview)
    )
    assert one == other < CLASSES


def test_questions_spread_evenly_over_the_classes() -> None:
    questions = 32_000
    numbers = np.random.default_rng(5).random((questions, 64), dtype=np.float32)
    sizes = np.bincount(
        [class_of([Tensor("X", "FP32", (1, 64), row.tobytes())]) for row in numbers], minlength=CLASSES
    )
    assert sizes.min() > 0.85 * questions / CLASSES
    assert sizes.max() < 1.15 * questions / CLASSES
