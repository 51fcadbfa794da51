"""What the roster keeps is what a look at every slice would find."""

from hypothesis import given
from hypothesis import strategies as st

from serving.scheduler.slices.roster import FREE, Roster
from serving.values.vocabulary import NEVER_US

MODELS = {"": (), "m": ("m",), "n": ("n",), "m+n": ("m", "n")}
"""By the key of like slices."""

opens = st.sampled_from([FREE, 5, 10, 20, NEVER_US])
doubts = st.sampled_from([7, 15, NEVER_US])
notes = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 2), opens, doubts, st.sampled_from([*MODELS])), max_size=40
)


@given(notes, st.sampled_from([0, 6, 12, 25]))
def test_it_knows_free_ripe_and_doubtful_slices_and_like_slices(
    given: list[tuple[int, int, int, int, str]], now_us: int
) -> None:
    roster, there = Roster(), dict[int, tuple[int, int, int, str]]()
    for number, state, opens_us, doubt_us, key in given:
        if number in there and state == 2:
            roster.remove(number)
            del there[number]
            continue
        roster.enroll(number, key, MODELS[key])
        roster.note(number, state == 0, opens_us, doubt_us)
        there[number] = state, opens_us, doubt_us, key
        roster.ripen(now_us)
    assert len(roster) == len(there)
    assert _numbers([each.free for each in roster.alike]) == _at(there, FREE, FREE)
    assert _numbers([each.ripe for each in roster.alike]) == _at(there, 0, now_us)
    assert roster.opens_us == _next_us(there, now_us)
    assert roster.doubt_us == min([each[2] for each in there.values()], default=NEVER_US)
    assert roster.steady == sum(each[0] > 0 for each in there.values())
    assert roster.suspects == sorted(number for number, each in there.items() if each[0] == 0)
    assert sorted(len(each.models) for each in roster.alike) == sorted(
        len(MODELS[key]) for key in {each[3] for each in there.values()}
    )
    for key, models in MODELS.items():
        here = {number: each for number, each in there.items() if each[3] == key}
        for model in models:
            found = [each for each in roster.of_model(model) if each.models == {*models}]
            assert len(found) == bool(here)
            for each in found:
                assert each.count == len(here)
                assert each.suspects == sum(one[0] == 0 for one in here.values())
                assert each.free == _at(here, FREE, FREE)
                assert each.ripe == _at(here, 0, now_us)
                assert each.opens_us(now_us) == _next_us(here, now_us)


def _numbers(several: list[list[int]]) -> list[int]:
    return sorted(number for numbers in several for number in numbers)


def _at(there: dict[int, tuple[int, int, int, str]], first_us: int, last_us: int) -> list[int]:
    """The slices that open between these instants."""
    return sorted(number for number, each in there.items() if first_us <= each[1] <= last_us)


def _next_us(there: dict[int, tuple[int, int, int, str]], now_us: int) -> int:
    return min([each[1] for each in there.values() if each[1] > now_us], default=NEVER_US)
