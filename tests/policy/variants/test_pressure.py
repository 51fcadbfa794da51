"""A panel is pressed while it is more than the slices can carry, and not at once no more."""

from math import inf

from serving.policy.variants.pressure import Pressure

PANEL = (0, 1)
SECOND_US = 1_000_000


def known() -> Pressure:
    """Of a panel that takes 1 ms a row."""
    pressure = Pressure(2)
    for _ in range(100):
        pressure.ran(0, 600.0)
        pressure.ran(1, 400.0)
    return pressure


def overloaded(pressure: Pressure, rate: int, slices: float, begin_s: int, crowded: bool = False) -> bool:
    """After ten seconds of so many rows a second; `crowded`: one in twenty is turned away."""
    for place in range(10 * rate):
        now = begin_s * SECOND_US + place * SECOND_US // rate
        pressure.voted(crowded and place % 20 == 0)
        if pressure.arrived(1, now):
            pressure.look(slices, PANEL, now)
    return pressure.overloaded


def test_it_presses_above_the_time_there_is_and_lets_go_well_below() -> None:
    pressure = known()
    assert not overloaded(pressure, 800, 1, 0)
    assert overloaded(pressure, 1000, 1, 10)
    assert overloaded(pressure, 800, 1, 20)
    assert not overloaded(pressure, 600, 1, 30)


def test_it_presses_where_votes_are_turned_away_and_tries_again_in_seconds() -> None:
    """Other models take the slices' time."""
    pressure = known()
    assert overloaded(pressure, 500, 1, 0, crowded=True)
    for place in range(100):
        pressure.voted(crowded=False)
        pressure.arrived(1, 10 * SECOND_US + place * 2000)
    pressure.look(1, PANEL, 10 * SECOND_US + 200_000)
    assert pressure.overloaded
    assert not overloaded(pressure, 500, 1, 11)


def test_nothing_presses_while_nobody_knows_costs_or_limits() -> None:
    assert not overloaded(Pressure(2), 1000, 1, 0)
    assert not overloaded(known(), 5000, inf, 0)
