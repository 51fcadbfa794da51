"""Published policies carry what they do in an idealised simulation by others' hands, and fail where they do.

The figures are capacities (at most 1 % bad) and goodputs of independent implementations that know all rates,
with latencies that are exact: one run each here. Row letters are those of the catalogue.
"""

from dataclasses import replace

import pytest

from loadtests.virtual.virtual_world import Run, World, good_share, offer
from serving.scheduler.commands import Answer, RunBatch
from serving.values.specs import BatchingSpec
from serving.values.vocabulary import COMPLETED
from tests.seeds import some
from tests.simulation.catalogue import SETTLE_US, TOLERATED_BAD, WORLDS

pytestmark = pytest.mark.in_turn(3)

ERROR = 0.06
REQUESTS = 10_000
GOODPUT_S = 10


def policy(name: str) -> BatchingSpec:
    """`name` or `name:mode`."""
    kind, _, mode = name.partition(":")
    return BatchingSpec(kind, mode=mode, guard_us=0)


def bad_share(world: World, rate: float) -> float:
    return 1 - good_share(world, rate, SETTLE_US / 1e6 + REQUESTS / rate, 1)


CAPACITIES = {  # requests/s in rows A, B, D, E; 0: see below
    "nanily": (0, 791, 4912, 607),
    "nanily:shed": (369, 791, 4912, 621),
    "nexus:earliest_first": (369, 791, 4912, 621),
    "clockwork:keep_heads": (288, 756, 4289, 525),
    "window_drop": (401, 809, 4062, 650),
    "symphony": (359, 752, 5139, 0),
    "symphony:latest": (316, 742, 4147, 0),
    "symphony:beta_lambda": (398, 813, 5139, 650),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "row", "capacity"),
    some(
        [
            (name, row, capacity)
            for name, several in CAPACITIES.items()
            for row, capacity in zip("ABDE", several, strict=True)
            if capacity
        ],
        8,
    ),
)
def test_a_policy_carries_what_it_does_in_an_idealised_simulation_and_no_more(
    name: str, row: str, capacity: float
) -> None:
    world = replace(WORLDS[row], policy=policy(name))
    assert bad_share(world, (1 - ERROR) * capacity) <= TOLERATED_BAD
    assert bad_share(world, (1 + ERROR) * capacity) > TOLERATED_BAD


GOODPUTS = {  # requests/s in row A, offered 300, 400, 500, 700, 1000, 1500
    "nexus:earliest_first": (299, 385, 395, 274, 228, 192),
    "clockwork:keep_heads": (295, 343, 323, 254, 215, 185),
    "window_drop": (299, 394, 472, 547, 596, 637),
    "symphony": (298, 390, 461, 539, 594, 638),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GOODPUTS)
def test_overload_costs_those_that_keep_heads_their_goodput_and_not_those_that_drop_them(name: str) -> None:
    world = replace(WORLDS["A"], policy=policy(name))
    for rate, goodput in zip((300, 400, 500, 700, 1000, 1500), GOODPUTS[name], strict=True):
        good = rate * good_share(world, rate, GOODPUT_S, 1)
        assert good == pytest.approx(goodput, rel=ERROR), rate


@pytest.mark.slow
def test_without_shedding_nanily_collapses_once_a_head_is_late() -> None:
    """Then batches are of one row, which carries 159 requests/s: what is lost is never made good. So its
    capacity on one slice with a tight SLO depends on how long one looks, and is not to be compared."""
    world = replace(WORLDS["A"], policy=policy("nanily"))
    assert bad_share(world, 150) <= TOLERATED_BAD
    assert good_share(world, 500, GOODPUT_S, 1) < 0.05
    shedding = replace(world, policy=policy("nanily:shed"))
    assert 500 * good_share(shedding, 500, GOODPUT_S, 1) == pytest.approx(395, rel=ERROR)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["frontrun", "latest"])
def test_deferred_candidates_of_models_that_share_a_slice_collide(mode: str) -> None:
    """Row E: the slack of a candidate is a row's time, and another model's batch takes five times as long."""
    world = replace(WORLDS["E"], policy=policy(f"symphony:{mode}"))
    assert bad_share(world, 30) > TOLERATED_BAD
    assert bad_share(replace(world, policy=policy("symphony:beta_lambda")), 600) <= TOLERATED_BAD


@pytest.mark.slow
def test_clockwork_s_queues_per_size_give_heads_up_and_so_keep_their_goodput_in_overload() -> None:
    """As published, unlike in the idealised simulation, which keeps heads."""
    world = replace(WORLDS["A"], policy=policy("clockwork:pass_heads"))
    goods = [rate * good_share(world, rate, GOODPUT_S, 1) for rate in (400, 700, 1500)]
    assert goods == sorted(goods)
    assert bad_share(world, (1 - ERROR) * 300) <= TOLERATED_BAD


@pytest.mark.slow
def test_a_guard_of_five_milliseconds_costs_clockwork_most_of_a_tight_slo() -> None:
    world = replace(WORLDS["A"], policy=BatchingSpec("clockwork"))
    assert bad_share(world, 282) > TOLERATED_BAD
    assert bad_share(replace(world, policy=policy("clockwork")), 282) <= TOLERATED_BAD


@pytest.mark.slow
def test_early_drop_gains_on_lazy_drop_as_the_fixed_part_of_a_batch_grows() -> None:
    """Nexus's own figure: batches of 25 rows in 50 ms, an SLO of 100 ms, alpha from 1.8 down to 1.0 ms."""
    early, lazy = policy("nexus:sliding"), policy("nexus:earliest_first")
    mostly_fixed = World(lazy, slo_us=100_000, alpha_us=1000, beta_us=25_000, settle_us=SETTLE_US)
    mostly_by_row = replace(mostly_fixed, alpha_us=1800, beta_us=5000)
    assert bad_share(mostly_fixed, 390) > TOLERATED_BAD
    assert bad_share(replace(mostly_fixed, policy=early), 405) <= TOLERATED_BAD
    assert bad_share(mostly_by_row, 440) <= TOLERATED_BAD
    assert bad_share(replace(mostly_by_row, policy=early), 470) > TOLERATED_BAD


class Ends(Run):
    """Batches that end after a deadline in them."""

    late = 0

    def ran(self, batch: RunBatch, start_us: int, end_us: int) -> None:
        self.late += sum(piece.deadline_us < end_us for piece in batch.pieces)

    def answered(self, answer: Answer, now_us: int) -> None:
        assert answer.outcome is not COMPLETED or now_us <= answer.request.deadline_us


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CAPACITIES if name != "nanily"])
@pytest.mark.parametrize("row", "AE")
def test_with_exact_latencies_nothing_that_is_run_is_late(name: str, row: str) -> None:
    run = Ends(replace(WORLDS[row], policy=policy(name)))
    run.play(offer(run.world, 700, 5, 0))
    assert run.late == 0


@pytest.mark.slow
def test_deferral_uses_slices_in_proportion_to_the_load() -> None:
    """Row D: eager batches keep slices busier than the load needs, the more so the lower it is."""
    eager, deferred = (replace(WORLDS["D"], policy=policy(name)) for name in ("window_drop", "symphony"))
    for rate, target in ((2000, 12), (4000, 14)):  # the largest b with l(b) + b / rate <= 25 ms
        needed = rate * eager.each[0].latency_us(target) / target / 1e6 / 8
        assert busy_share(deferred, rate) <= 1.15 * needed
        assert busy_share(eager, rate) > 1.2 * needed


def busy_share(world: World, rate: float) -> float:
    seconds = 4.0
    tally = Run(world).play(offer(world, rate, SETTLE_US / 1e6 + seconds, 0))
    return tally.busy_us / 1e6 / seconds / world.slices
