"""What does not answer is left alone for a while, never for good."""

from hypothesis import given
from hypothesis import strategies as st

from serving.cache.breaker import FAILURES_MAX, PAUSE_MAX_US, PAUSE_US, STEADY, Breaker


def healed() -> Breaker:
    breaker = Breaker()
    breaker.heal()
    return breaker


def test_nothing_is_asked_before_an_attempt_which_may_be_at_once() -> None:
    breaker = Breaker()
    assert (breaker.closed, breaker.attempt_us) == (False, 0)
    breaker.heal()
    assert breaker.closed


def test_it_opens_after_so_many_failures_in_a_row_and_says_so_once() -> None:
    breaker = healed()
    for _ in range(FAILURES_MAX - 1):
        assert not breaker.fail(10)
    breaker.succeed()
    opened = [breaker.fail(10) for _ in range(FAILURES_MAX + 3)]
    assert opened.index(True) == FAILURES_MAX - 1
    assert opened.count(True) == 1
    assert (breaker.closed, breaker.attempt_us) == (False, 10 + PAUSE_US)


def test_pauses_double_up_to_a_bound_and_are_short_again_once_it_is_steady() -> None:
    breaker, pauses = healed(), []
    for _ in range(9):
        breaker.trip(0)
        pauses.append(breaker.attempt_us)
    assert pauses[:3] == [PAUSE_US, 2 * PAUSE_US, 4 * PAUSE_US]
    assert pauses[-1] == PAUSE_MAX_US
    breaker.heal()
    breaker.trip(0)
    assert breaker.attempt_us == PAUSE_MAX_US, "it has proved nothing yet"
    breaker.heal()
    for _ in range(STEADY):
        breaker.succeed()
    breaker.trip(0)
    assert breaker.attempt_us == PAUSE_US


@given(st.lists(st.sampled_from(["fail", "succeed", "trip", "attempt"]), max_size=400))
def test_whatever_happens_an_attempt_is_near(events: list[str]) -> None:
    breaker, row = healed(), 0
    for now_us, event in enumerate(events):
        was_closed = breaker.closed
        if event == "fail":
            row += 1
            assert breaker.fail(now_us) == (was_closed and row >= FAILURES_MAX)
        elif event == "succeed":
            breaker.succeed()
            row = 0
        elif event == "trip":
            breaker.trip(now_us)
        elif not breaker.closed:
            breaker.heal()
            row = 0
        if was_closed and not breaker.closed:
            assert PAUSE_US <= breaker.attempt_us - now_us <= PAUSE_MAX_US
        assert breaker.attempt_us <= now_us + PAUSE_MAX_US
