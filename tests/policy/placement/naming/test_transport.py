"""What the transport problem's solution promises: no more than there is, worth most, in whole units."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.placement.assignment import transport as module
from serving.policy.placement.assignment.transport import Arcs, transport
from tests.seeds import drawn

counts = st.lists(st.integers(0, 3), min_size=1, max_size=3)
Ways = dict[tuple[int, int], float]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Ways, list[int], list[int]]:
    supply, demand = draw(counts), draw(counts)
    every = [(source, sink) for source in range(len(supply)) for sink in range(len(demand))]
    ways = draw(st.dictionaries(st.sampled_from(every), st.sampled_from([0.5, 1.0, 1.5, 4.0])))
    return dict(sorted(ways.items())), supply, demand


def arcs(ways: Ways) -> Arcs:
    sources, sinks = [source for source, _ in ways], [sink for _, sink in ways]
    return np.array(sources, np.int64), np.array(sinks, np.int64), np.array([*ways.values()], np.float64)


def best(ways: list[tuple[tuple[int, int], float]], supply: list[int], demand: list[int]) -> float:
    """By trying every whole number of units on every way."""
    if not ways:
        return 0.0
    (source, sink), worth = ways[0]
    found = 0.0
    for units in range(min(supply[source], demand[sink]) + 1):
        left, wanted = list(supply), list(demand)
        left[source] -= units
        wanted[sink] -= units
        found = max(found, units * worth + best(ways[1:], left, wanted))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("program_max", [0, 20_000])
@settings(max_examples=drawn(100), deadline=None)
@given(problems())
def test_the_flows_are_whole_within_bounds_and_worth_most(
    program_max: int, given_problem: tuple[Ways, list[int], list[int]]
) -> None:
    """As a linear program and matched unit by unit; against all ways to do it."""
    ways, supply, demand = given_problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PROGRAM_MAX", program_max)
        flows = transport(arcs(ways), supply, demand)
    assert flows.dtype == np.int64
    assert (flows >= 0).all()
    for place, most in enumerate(supply):
        assert sum(flow for (source, _), flow in zip(ways, flows, strict=True) if source == place) <= most
    for place, most in enumerate(demand):
        assert sum(flow for (_, sink), flow in zip(ways, flows, strict=True) if sink == place) <= most
    worth = sum(worth * flow for worth, flow in zip(ways.values(), flows, strict=True))
    assert worth == pytest.approx(best(list(ways.items()), supply, demand))


@pytest.mark.parametrize("program_max", [0, 20_000])
def test_all_of_the_demand_is_met_where_every_source_reaches_every_sink(
    program_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROGRAM_MAX", program_max)
    ways = {(source, sink): 1.0 + 100 * (source == sink == 0) for source in range(3) for sink in range(2)}
    flows = transport(arcs(ways), [2, 2, 3], [4, 3])
    assert flows.sum() == 7
    assert flows[0] == 2


def test_without_a_way_nothing_flows() -> None:
    assert transport(arcs({}), [1], [1]).tolist() == []
