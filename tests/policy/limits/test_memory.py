"""Memory that clients hold: what is paused, refused and ended as it comes near its limit."""

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.limits.memory import HeldMemory, Level, level_of, relieve

LIMIT = 1000
HOLDINGS = st.lists(
    st.builds(
        lambda address, size, growing, answer: HeldMemory(address, size, growing and not answer, answer),
        st.sampled_from("abc"),
        st.integers(1, 400),
        st.booleans(),
        st.booleans(),
    ),
    max_size=12,
)
BESIDES = st.integers(0, 1200)


def sum_of(observed: list[HeldMemory], places: list[int]) -> int:
    return sum(observed[place].size_bytes for place in places)


def test_the_levels_begin_at_their_shares() -> None:
    found = {held: level_of(held, LIMIT) for held in (0, 799, 800, 899, 900, 949, 950, 1000, 1001)}
    assert list(found.values()) == [
        Level.EASY, Level.EASY, Level.PAUSE, Level.PAUSE, Level.REFUSE, Level.REFUSE, Level.CUT, Level.CUT,
        Level.FULL,
    ]  # fmt: skip


@given(HOLDINGS, BESIDES)
def test_what_is_left_fits_or_nothing_is_left_to_end(observed: list[HeldMemory], besides: int) -> None:
    relief = relieve(observed, besides, LIMIT)
    assert len({*relief.ended}) == len(relief.ended)
    left = [place for place in range(len(observed)) if place not in relief.ended]
    assert not left or besides + sum_of(observed, left) <= LIMIT


@given(HOLDINGS, BESIDES)
def test_only_the_address_that_holds_most_loses_anything(observed: list[HeldMemory], besides: int) -> None:
    relief = relieve(observed, besides, LIMIT)
    left = [*range(len(observed))]
    for place in [*relief.ended, *([relief.paused] if relief.paused >= 0 else [])]:
        totals = dict.fromkeys((each.address for each in observed), 0)
        for each in left:
            totals[observed[each].address] += observed[each].size_bytes
        assert totals[observed[place].address] == max(totals.values())
        left.remove(place)


@given(HOLDINGS, BESIDES)
def test_nothing_is_ended_that_need_not_be(observed: list[HeldMemory], besides: int) -> None:
    """An upload is only where all of it does not fit, an answer only from 95 % on."""
    relief = relieve(observed, besides, LIMIT)
    held = besides + sum(each.size_bytes for each in observed)
    for place in relief.ended:
        level = level_of(held, LIMIT)
        assert level is Level.FULL or (level is Level.CUT and observed[place].answer)
        held -= observed[place].size_bytes


@given(HOLDINGS, BESIDES)
def test_an_upload_is_paused_from_80_percent_on_and_another_goes_on(
    observed: list[HeldMemory], besides: int
) -> None:
    relief = relieve(observed, besides, LIMIT)
    if relief.paused < 0:
        return
    left = [place for place in range(len(observed)) if place not in relief.ended]
    assert besides + sum_of(observed, left) >= 0.8 * LIMIT
    assert relief.paused in left
    assert observed[relief.paused].growing
    assert sum(observed[place].growing for place in left) > 1


def test_at_80_percent_the_largest_upload_of_the_address_that_holds_most_is_paused() -> None:
    observed = [
        HeldMemory("a", 390, True, False),
        *(HeldMemory("b", size, True, False) for size in (150, 250, 50)),
    ]
    relief = relieve(observed, 0, LIMIT)
    assert (relief.ended, relief.paused) == ([], 2)


def test_the_last_upload_that_is_read_on_is_not_paused() -> None:
    observed = [HeldMemory("a", 500, False, False), HeldMemory("a", 350, True, False)]
    assert relieve(observed, 0, LIMIT).paused == -1


def test_at_95_percent_the_reader_that_stands_still_for_longest_goes_first() -> None:
    readers = [
        HeldMemory("a", 30, False, True),
        HeldMemory("a", 300, False, True),
        HeldMemory("b", 200, False, True),
    ]
    assert relieve(readers, 440, LIMIT).ended == [0]
    assert relieve(readers, 410, LIMIT).ended == []


def test_who_only_uploads_loses_nothing_while_all_of_it_fits() -> None:
    observed = [HeldMemory("a", 900, True, False), HeldMemory("b", 90, False, True)]
    assert relieve(observed, 10, LIMIT).ended == []
    assert relieve(observed, 11, LIMIT).ended == [0]
