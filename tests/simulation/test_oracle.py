"""Catalogue 1: work-conserving batching against queueing theory."""

from dataclasses import dataclass
from functools import cache

import pytest

from loadtests.virtual.virtual_world import Run, World, offer
from serving.simulation.tally import Tally
from serving.simulation.traffic.arrivals import Arrival
from serving.values.specs import BatchingSpec
from tests.simulation.catalogue import LATENCY_OF_BOUND, MEAN_BATCH_ERROR, SAMPLING_ERROR

GREEDY = World(BatchingSpec("static"), slo_us=60_000_000, batch_max=256)  # whatever waits goes at once
ARRIVALS = 40_000


@dataclass(frozen=True)
class Played:
    """A run of the greedy world, at the rate that its arrivals came to."""

    rate: float  # a microsecond
    arrivals: tuple[Arrival, ...]
    tally: Tally


@cache
def play(load: float) -> Played:
    """`load`: lambda * alpha."""
    per_s = load / GREEDY.alpha_us * 1e6
    arrivals = tuple(offer(GREEDY, per_s, ARRIVALS / per_s, seed=0))
    return Played(len(arrivals) / arrivals[-1].at_us, arrivals, Run(GREEDY).play(arrivals))


def bound_us(rate: float) -> float:
    """Inoue's bound on the mean latency of batch service in alpha * b + beta (arXiv 1912.06322)."""
    alpha, beta = GREEDY.alpha_us, GREEDY.beta_us
    row, launch = rate * alpha, rate * beta
    light = (alpha + beta) / (2 * (1 - row)) * (1 + 2 * launch + (1 - launch) / (1 + row))
    heavy = 1.5 * beta / (1 - row) + alpha / 2 * (row + 2) / (1 - row**2)
    return min(light, heavy)


def waits_of_bulk_service(arrivals: tuple[Arrival, ...]) -> list[int]:
    """Latencies of a server that, when free, takes all that is there."""
    waits, free_us, first = [], 0, 0
    while first < len(arrivals):
        start_us, after = max(free_us, arrivals[first].at_us), first
        while after < len(arrivals) and arrivals[after].at_us <= start_us:
            after += 1
        free_us = start_us + GREEDY.each[0].latency_us(after - first)
        waits += [free_us - arrival.at_us for arrival in arrivals[first:after]]
        first = after
    return waits


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
def test_the_mean_latency_is_that_of_the_closed_form(load: float) -> None:
    played = play(load)
    mean_us = sum(played.tally.waits_us) / len(played.tally.waits_us)
    least, most = LATENCY_OF_BOUND
    assert least <= mean_us / bound_us(played.rate) <= most + SAMPLING_ERROR


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.5, 0.7])  # at .3 the server idles, and every idle time adds a row
def test_the_mean_batch_carries_the_load(load: float) -> None:
    played = play(load)
    expected = played.rate * GREEDY.beta_us / (1 - played.rate * GREEDY.alpha_us)
    assert played.tally.rows / played.tally.batches == pytest.approx(expected, rel=MEAN_BATCH_ERROR)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.7])
def test_every_request_waits_as_in_a_queue_with_bulk_service(load: float) -> None:
    played = play(load)
    assert sorted(played.tally.waits_us) == sorted(waits_of_bulk_service(played.arrivals))
