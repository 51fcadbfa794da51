"""Offers that are looked up are those that trying all batches finds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.placement.formulation.offers import Offers
from serving.policy.placement.terms.problem import Demand, Offer, Option
from serving.values.slice_specs import Share
from tests.policy.placement.builders import mig_pool, mps_pool, option
from tests.seeds import drawn

ROWS = (1, 2, 4, 8)
SHARES = tuple(Share.parse(text) for text in ("mps:10", "mps:50", "mps:101", "mig:1g.10gb", "mig:9g.90gb"))


@st.composite
def options(draw: st.DrawFn) -> Option:
    steps = draw(st.lists(st.integers(0, 3), min_size=4, max_size=4))
    curve = tuple((rows, 10.0 + sum(steps[: place + 1])) for place, rows in enumerate(ROWS))
    share, kind = draw(st.sampled_from(SHARES)), draw(st.sampled_from(("gpu", "other")))
    return Option(kind, share, "v", curve, draw(st.integers(0, 3)), processes=draw(st.integers(1, 2)))


demands = st.builds(
    Demand, st.just("m"), st.just(1.0), st.integers(9, 25).map(lambda us: us / 0.45),
    st.lists(options(), max_size=6).map(tuple),
)  # fmt: skip


@given(demands, st.integers(1, 3))
@settings(max_examples=drawn(40))
def test_they_are_the_demands_own_where_all_options_fit(demand: Demand, times: int) -> None:
    """On the first look and on later ones."""
    for pool in (mps_pool(1), mig_pool(1)):
        fitting = Demand("m", 1.0, demand.slo_us, tuple(each for each in demand.options if pool.fits(each)))
        offers = Offers(pool)
        for _ in range(times):
            assert offers.of(demand) == [*fitting.offers]


def best(demand: Demand, between: bool, held: int) -> float:
    """Rows a second of the best batch on half of a device, of a replica that holds at most so much."""
    found = [0.0]
    for each in demand.options:
        sizes = range(1, ROWS[-1] + 1) if between and each.processes == 1 else ROWS
        if each.kind == "gpu" and each.share == SHARES[1] and each.memory_bytes <= held:
            took_us = {rows: each.latency_us(rows) for rows in sizes}
            found += [
                each.processes * rows * 1e6 / us
                for rows, us in took_us.items()
                if us <= demand.slack * demand.slo_us * (1 + 1e-6)
            ]
    return max(found)


@given(demands, st.booleans())
@settings(max_examples=drawn(40))
def test_where_memory_is_limited_there_is_the_best_one_for_each_amount_of_it(
    demand: Demand, between: bool
) -> None:
    offers = Offers(mps_pool(1, memory_bytes=3), between)
    there = [each for each in offers.of(demand) if each.option.share == SHARES[1]]
    for held in range(4):
        within = [each.throughput for each in there if each.option.memory_bytes <= held]
        assert max(within, default=0.0) == pytest.approx(best(demand, between, held))


def test_between_measured_batches_the_largest_that_is_in_time_counts() -> None:
    way = Option("gpu", SHARES[0], "v", ((1, 100.0), (9, 180.0)))
    demand = Demand("m", 1.0, 145.0 / 0.45, (way,))
    assert Offers(mps_pool(1)).of(demand) == [Offer(way, 1, 100.0, 10_000.0)]
    assert Offers(mps_pool(1), between=True).of(demand) == [Offer(way, 5, 140.0, 5e6 / 140)]


def test_one_with_more_memory_than_an_instance_gives_way() -> None:
    heavy = option("mig:1g.10gb", 20.0, memory_bytes=10 << 30)
    light = option("mig:1g.10gb", 10.0, memory_bytes=9 << 30)
    demand = Demand("m", 1.0, 1e6, (heavy, light))
    assert [each.option for each in Offers(mig_pool(1)).of(demand)] == [light]
