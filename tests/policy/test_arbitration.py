"""What arbitration promises: the most urgent goes first, and who may wait is never kept too long."""

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.arbitration import decide, latest_starts
from serving.policy.batching.interface import Choice
from serving.values.vocabulary import NEVER_US
from tests.policy.choices import changed

NOW_US = 20


def build(latest_start_us: int, latency_us: int, more_us: int, patience_us: int | None) -> Choice:
    """`patience_us`: how long it would wait for more rows, None not at all."""
    return Choice(
        latest_start_us=latest_start_us,
        latency_us=latency_us,
        grown_us=latency_us + more_us,
        wake_us=NEVER_US if patience_us is None else NOW_US + patience_us,
        patient=patience_us is not None,
    )


choices = st.lists(
    st.builds(
        build,
        st.integers(NOW_US - 5, NOW_US + 30),
        st.integers(1, 9),
        st.integers(0, 3),
        st.none() | st.just(NEVER_US - NOW_US) | st.integers(1, 20),
    ),
    min_size=1,
    max_size=6,
)
slices = st.integers(1, 3)


@given(choices, slices)
def test_of_those_ready_or_made_late_by_them_the_least_latest_start_wins_and_the_first_of_equals(
    several: list[Choice], count: int
) -> None:
    index, _ = decide(several, count, NOW_US)
    starts = latest_starts(several, count)
    ready = [
        i
        for i, choice in enumerate(several)
        if not choice.patient or starts[i] <= NOW_US or choice.wake_us <= NOW_US
    ]
    if not ready:
        assert index == -1
        return
    first = min(ready, key=lambda i: (several[i].latest_start_us, i))
    end_us = NOW_US + several[first].latency_us
    made_late = [i for i, start_us in enumerate(starts) if several[i].patient and start_us < end_us]
    assert index == min([*ready, *made_late], key=lambda i: (several[i].latest_start_us, i))


@given(choices, slices)
def test_while_all_may_wait_it_asks_again_when_the_first_no_longer_may_and_then_runs_something(
    several: list[Choice], count: int
) -> None:
    index, wake_us = decide(several, count, NOW_US)
    if index < 0:
        assert NOW_US < wake_us < NEVER_US
        assert decide(several, count, wake_us - 1)[0] == -1
        assert decide(several, count, wake_us)[0] >= 0


def test_a_batch_whose_patience_ends_before_its_latest_start_goes_then() -> None:
    choice = build(NOW_US + 30, 5, 1, 7)
    assert decide([choice], 1, NOW_US) == (-1, NOW_US + 7)
    assert decide([choice], 1, NOW_US + 7)[0] == 0


def test_a_batch_that_may_wait_goes_first_where_one_that_need_not_would_make_it_late() -> None:
    due_soon, full = build(NOW_US + 5, 7, 1, 30), build(NOW_US + 40, 9, 0, None)
    assert decide([due_soon, full], 1, NOW_US)[0] == 0
    assert decide([due_soon, full], 2, NOW_US)[0] == 0  # when the other slice is free again is not said
    assert decide([due_soon, full], 2, NOW_US, None, [NOW_US + 4] * 2)[0] == 1
    assert decide([build(NOW_US + 15, 7, 1, 30), full], 1, NOW_US)[0] == 1


@given(choices, st.data())
def test_what_another_slice_can_start_in_time_is_not_made_late_and_waits_for_it(
    several: list[Choice], data: st.DataObject
) -> None:
    """As if those of which another slice is free before their latest start were not there, but for the rule
    that the first of all that are ready goes."""
    frees = [data.draw(st.integers(NOW_US, NOW_US + 30)) for _ in several]
    starts = latest_starts(several, 2)
    index, _ = decide(several, 2, NOW_US, None, frees)
    ready = [
        i
        for i, choice in enumerate(several)
        if not choice.patient or starts[i] <= NOW_US or choice.wake_us <= NOW_US
    ]
    if not ready:
        assert index == -1
    elif index not in ready:
        assert starts[index] < frees[index]


def test_in_overload_the_one_that_has_had_least_goes_first_only_where_no_other_slice_is_in_time() -> None:
    long, short = build(NOW_US + 1, 20, 0, None), build(NOW_US + 9, 5, 0, None)
    used = [0.9, 0.1]
    assert decide([long, short], 2, NOW_US, used)[0] == 1
    assert decide([long, short], 2, NOW_US, used, [NOW_US + 30, NOW_US + 10])[0] == 1
    assert decide([long, short], 2, NOW_US, used, [NOW_US + 30, NOW_US + 8])[0] == 0


@given(choices, slices)
def test_batches_started_at_their_latest_starts_all_end_in_time_and_never_overlap(
    several: list[Choice], count: int
) -> None:
    exact = [changed(choice, grown_us=choice.latency_us) for choice in several]
    starts = latest_starts(exact, count)
    ends = [start + choice.latency_us for start, choice in zip(starts, exact, strict=True)]
    for early, start, choice in zip(latest_starts(several, count), starts, exact, strict=True):
        assert early <= start <= choice.latest_start_us  # `early` leaves room for one more row
    for start in starts:  # at no start do more batches run than there are slices
        running = sum(one <= start < end for one, end in zip(starts, ends, strict=True))
        assert running <= count


def test_a_long_batch_of_a_later_deadline_goes_before_a_short_one_that_could_still_wait() -> None:
    long, short = Choice(latest_start_us=100 - 90), Choice(latest_start_us=50 - 5)
    assert decide([short, long], 1, NOW_US)[0] == 1


ruled = st.lists(
    st.builds(
        Choice.ranked,
        choices.map(lambda several: several[0]),
        st.sampled_from(["turns", "turns", "turns", "", "shares"]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=5,
)


@given(ruled)
def test_where_all_that_are_ready_follow_one_rule_the_least_rank_goes_first_else_the_least_latest_start(
    several: list[Choice],
) -> None:
    ready = [changed(choice, patient=False) for choice in several]
    index, _ = decide(ready, 1, NOW_US)
    if len({choice.rule for choice in ready}) == 1 and ready[0].rule:
        assert index == min(range(len(ready)), key=lambda i: (ready[i].rank, i))
    else:
        assert index == min(range(len(ready)), key=lambda i: (ready[i].latest_start_us, i))
