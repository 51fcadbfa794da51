"""What the roster keeps is what a look at every slice would find."""

from hypothesis import given
from hypothesis import strategies as st

from serving.scheduler.roster import FREE, Roster
from serving.vocabulary import NEVER_US

opens = st.sampled_from([FREE, 5, 10, 20, NEVER_US])
doubts = st.sampled_from([7, 15, NEVER_US])
notes = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2), opens, doubts), max_size=40)


@given(notes, st.sampled_from([0, 6, 12, 25]))
def test_it_knows_free_ripe_and_doubtful_slices(given: list[tuple[int, int, int, int]], now_us: int) -> None:
    roster, there = Roster(), dict[int, tuple[int, int, int]]()
    for number, state, opens_us, doubt_us in given:
        if number in there and state == 2:
            roster.remove(number)
            del there[number]
            continue
        roster.note(number, state == 0, opens_us, doubt_us)
        there[number] = state, opens_us, doubt_us
        roster.ripen(now_us)
    assert len(roster) == len(there)
    assert roster.free == sorted(number for number, each in there.items() if each[1] == FREE)
    assert roster.ripe == sorted(number for number, each in there.items() if 0 <= each[1] <= now_us)
    assert roster.opens_us == min([each[1] for each in there.values() if each[1] > now_us], default=NEVER_US)
    assert roster.doubt_us == min([each[2] for each in there.values()], default=NEVER_US)
    assert roster.steady == sum(each[0] > 0 for each in there.values())
    assert roster.suspects == sum(each[0] == 0 for each in there.values())
