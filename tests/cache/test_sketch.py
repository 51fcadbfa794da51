"""The sketch counts: never too low, seldom too high, and it forgets."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from serving.cache.sketch import COUNT_MAX, Sketch
from tests.cache.values import key_of

asks = st.lists(st.integers(0, 30), max_size=200)


@given(asks, st.sampled_from([1, 3, 8, 64]))
def test_an_estimate_is_never_too_low_however_narrow_the_sketch(numbers: list[int], counters: int) -> None:
    sketch = Sketch(counters)
    for number in numbers:
        sketch.add(key_of(number))
    for number, count in Counter(numbers).items():
        assert min(count, COUNT_MAX) <= sketch.estimate(key_of(number)) <= COUNT_MAX
    assert sketch.added == len(numbers)


@given(asks)
def test_an_estimate_is_the_count_where_there_is_room(numbers: list[int]) -> None:
    sketch = Sketch(1 << 14)
    for number in numbers:
        sketch.add(key_of(number))
    counts = Counter(numbers)
    for number in range(40):
        assert sketch.estimate(key_of(number)) == min(counts[number], COUNT_MAX)


@given(asks, st.integers(1, 5))
def test_each_halving_halves_all_that_was_counted(numbers: list[int], halvings: int) -> None:
    sketch = Sketch(1 << 14)
    for number in numbers:
        sketch.add(key_of(number))
    for _ in range(halvings):
        sketch.halve()
    for number, count in Counter(numbers).items():
        assert sketch.estimate(key_of(number)) == min(count, COUNT_MAX) >> halvings
    assert sketch.added == len(numbers) >> halvings


def test_a_count_ends_at_its_maximum_so_that_the_popular_are_forgotten_too() -> None:
    sketch = Sketch(64)
    for _ in range(1000):
        sketch.add(key_of(1))
    assert sketch.estimate(key_of(1)) == COUNT_MAX


def test_keys_that_were_never_asked_for_seldom_seem_to_be() -> None:
    sketch = Sketch(1 << 12)
    for number in range(1000):  # four counters a key
        sketch.add(key_of(number))
    strangers = sum(sketch.estimate(key_of(number)) > 0 for number in range(10_000, 20_000))
    assert strangers / 10_000 < 0.2
