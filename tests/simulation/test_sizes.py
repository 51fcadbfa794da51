"""Requests of several sizes: only like ones share a batch, and a batch takes what its size says."""

import numpy as np
import pytest

from loadtests.virtual.virtual_world import Run, VirtualModel, World, offer
from serving.scheduler.commands import RunBatch
from serving.values.specs import BatchingSpec

SIZES = {16: 0.6, 64: 0.3, 256: 0.1}
MODEL = VirtualModel(50_000)
POLICIES = [
    "slo", "static", "aimd", "mark", "slab", "clockwork", "window_drop", "shepherd", "dybatch", "nanily",
    "nexus", "symphony",
]  # fmt: skip


class Batches(Run):
    """A run that keeps each batch's size, rows and time, and checks who is in it."""

    def __init__(self, world: World) -> None:
        self.batches: list[tuple[int, int, int]] = []
        super().__init__(world)

    def ran(self, batch: RunBatch, start_us: int, end_us: int) -> None:
        assert {piece.request.bucket for piece in batch.pieces} == {batch.bucket}
        assert max(piece.request.size for piece in batch.pieces) == batch.size
        self.batches.append((batch.size, batch.rows, end_us - start_us))


@pytest.mark.parametrize("policy", POLICIES)
def test_only_rows_of_one_size_share_a_batch_and_it_takes_what_that_size_takes(policy: str) -> None:
    world = World(BatchingSpec(policy), slo_us=50_000, size_mix=tuple(SIZES.items()))
    run = Batches(world)
    tally = run.play(offer(world, 300, 1.5, 0))
    assert sum(tally.outcomes.values()) == tally.offered
    assert {size for size, _, _ in run.batches} == set(SIZES)
    assert all(took_us == MODEL.latency_us(rows, size) for size, rows, took_us in run.batches)


@pytest.mark.parametrize("policy", ["slo", "symphony", "nexus"])
def test_within_a_bucket_a_batch_is_foretold_to_take_what_its_largest_row_says(policy: str) -> None:
    class Foretold(Batches):
        def ran(self, batch: RunBatch, start_us: int, end_us: int) -> None:
            super().ran(batch, start_us, end_us)
            assert end_us - start_us == pytest.approx(batch.typical_us, abs=1)

    rng = np.random.default_rng(0)
    world = World(BatchingSpec(policy), slo_us=50_000, size_mix=((64, 0.5), (256, 0.5)))
    run = Foretold(world)
    run.play(
        each._replace(size=int(rng.integers(each.size // 4, each.size, endpoint=True)), bucket=each.size)
        for each in offer(world, 300, 1.5, 0)
    )
    assert len({size for size, _, _ in run.batches}) > 20


def test_sizes_come_as_often_as_their_shares_say() -> None:
    world = World(BatchingSpec("slo"), size_mix=tuple(SIZES.items()))
    sizes = [arrival.size for arrival in offer(world, 5000, 4, 0)]
    for size, share in SIZES.items():
        assert sizes.count(size) / len(sizes) == pytest.approx(share, rel=0.1)


def test_a_row_of_another_size_costs_in_proportion_and_a_batch_as_much_as_ever() -> None:
    without, small, large = (MODEL.latency_us(10, size) - MODEL.beta_us for size in (0, 16, 256))
    assert (small, large) == (without / 4, without * 4)
    assert World(BatchingSpec("slo"), size_mix=((16, 1), (256, 1))).row_us == MODEL.alpha_us * 2.125
