"""What `slab` promises: its rule, to the letter; and that it comes to rest just below the objective."""

from math import ceil

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from serving.policy.batching.interface import BatchReport
from serving.policy.batching.published.slab import DEAD_BAND, ROUND_BATCHES, Slab
from serving.policy.batching.rules.due import choose_due
from tests.policy.views import NOW_US, LaneSeen, PieceSeen, QueueSeen, ReplicaSeen, queues

SLO_US = 20_000
ROUNDS = 12


class Device:
    """An endless backlog of requests of `piece_rows`, on a device of `alpha_us` a row and `beta_us`, whose
    profile allows `rows_max`."""

    def __init__(self, alpha_us: float, beta_us: float, rows_max: int = 10_000, piece_rows: int = 1) -> None:
        self.policy = Slab(SLO_US)
        self.alpha_us = alpha_us
        self.beta_us = beta_us
        replica = ReplicaSeen({0: rows_max}, 0.0)
        self.view = QueueSeen((LaneSeen((PieceSeen(piece_rows),) * 500),), {"a": replica})

    def took_us(self, rows: int) -> int:
        return ceil(self.alpha_us * rows + self.beta_us)

    def run(self, rounds: int) -> list[int]:
        """The rows of a batch in each of so many rounds."""
        sizes = []
        for _ in range(rounds):
            for _ in range(ROUND_BATCHES):
                choice = self.policy.choose(self.view, NOW_US)
                self.policy.on_done(
                    BatchReport("a", choice.rows, 0, self.took_us(choice.rows), full=True), NOW_US
                )
            sizes.append(choice.rows)
        return sizes


@given(st.integers(50, int(DEAD_BAND * SLO_US)), st.integers(0, SLO_US // 2))
@example(50, 9950)  # the way is longest where a row costs least of the batch
def test_in_twelve_rounds_it_rests_within_a_tenth_below_the_objective(alpha_us: int, beta_us: int) -> None:
    best = (SLO_US - beta_us) // alpha_us
    device = Device(alpha_us, beta_us, best)
    *_, settled = device.run(ROUNDS)
    assert (1 - DEAD_BAND) * SLO_US <= device.took_us(settled) <= SLO_US
    assert set(device.run(ROUNDS)) == {settled}


@given(st.integers(50, int(DEAD_BAND * SLO_US)), st.integers(0, SLO_US // 2))
def test_without_a_profile_that_bounds_it_the_rule_overshoots_by_a_row_at_most(
    alpha_us: int, beta_us: int
) -> None:
    device = Device(alpha_us, beta_us)
    assert max(device.run(2 * ROUNDS)) <= ceil((SLO_US - beta_us) / alpha_us)


@given(
    st.integers(1, 60), st.lists(st.integers(1, 3 * SLO_US), min_size=ROUND_BATCHES, max_size=ROUND_BATCHES)
)
def test_the_next_size_is_that_of_the_paper(rows: int, latencies_us: list[int]) -> None:
    policy = Slab(SLO_US)
    for _ in range(ROUND_BATCHES):  # ceil(SLO / (SLO / rows)) is the way to any size
        policy.on_done(BatchReport("a", 1, 0, SLO_US // rows), NOW_US)
    lane = LaneSeen((PieceSeen(1),) * 1000)
    view = QueueSeen((lane,), {"a": ReplicaSeen({0: 500})})
    size = policy.choose(view, NOW_US).rows
    for latency_us in latencies_us:
        assert policy.choose(view, NOW_US).rows == size
        policy.on_done(BatchReport("a", size, 0, latency_us), NOW_US)
    mean_us = sum(latencies_us) / ROUND_BATCHES
    residual_us = SLO_US - mean_us
    sign = 1 if residual_us > 0 else -1
    expected = ceil(size * (1 + sign * abs(residual_us) / mean_us) - 1e-9)
    if 0 < residual_us / SLO_US < DEAD_BAND:
        expected = size
    assume(abs(expected - size * SLO_US / mean_us) > 1e-6)  # where rounding decides
    assert policy.choose(view, NOW_US).rows == min(max(expected, 1), 500)


def test_a_device_that_slows_down_by_two_is_followed_in_one_round() -> None:
    device = Device(100, 0)
    device.run(ROUNDS)
    device.alpha_us *= 2
    assert device.took_us(device.run(2)[-1]) <= SLO_US


@pytest.mark.parametrize("piece_rows", [3, 8, 17])
def test_requests_of_many_rows_do_not_keep_it_from_growing(piece_rows: int) -> None:
    device = Device(100, 4000, piece_rows=piece_rows)
    assert device.took_us(device.run(ROUNDS)[-1]) >= (1 - DEAD_BAND) * SLO_US - 100 * piece_rows


def test_batches_smaller_than_the_size_say_nothing_of_it() -> None:
    device = Device(100, 4000)
    (*_, settled) = device.run(ROUNDS)
    for _ in range(3 * ROUND_BATCHES):
        device.policy.on_done(BatchReport("a", 1, 0, 4100), NOW_US)
    assert device.run(1) == [settled]


def test_unequal_slices_variants_and_size_buckets_learn_apart() -> None:
    policy = Slab(SLO_US)
    for _ in range(ROUND_BATCHES):
        policy.on_done(BatchReport("a", 1, 0, SLO_US // 8, slice="fast"), NOW_US)
    replicas = dict.fromkeys("ab", ReplicaSeen({0: 100, 1: 100}))

    def rows(slice_name: str, variant: str, size: int) -> int:
        lane = LaneSeen((PieceSeen(1),) * 50, (variant,), size)
        return policy.choose(QueueSeen((lane,), replicas, slice=slice_name), NOW_US).rows

    learned = {
        key: rows(*key) for key in [("fast", "a", 0), ("slow", "a", 0), ("fast", "b", 0), ("fast", "a", 1)]
    }
    assert list(learned.values()) == [8, 1, 1, 1]


@given(queues)
def test_it_never_waits_for_company(view: QueueSeen) -> None:
    assert Slab(SLO_US).choose(view, NOW_US) == choose_due(view, lambda *_: 1, 0, NOW_US)
