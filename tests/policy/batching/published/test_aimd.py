"""What `aimd` promises: it finds the batch that the objective allows, and follows when that changes."""

from math import ceil, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.batching.interface import BatchReport
from serving.policy.batching.published.aimd import Aimd
from serving.policy.batching.rules.due import choose_due
from tests.policy.views import NOW_US, LaneSeen, PieceSeen, QueueSeen, ReplicaSeen, queues

SLO_US = 20_000
ROOMY = {"a": ReplicaSeen({0: 10_000})}


class Device:
    """An endless backlog of requests of `piece_rows`, on a device of `alpha_us` a row and `beta_us`."""

    def __init__(self, policy: Aimd, alpha_us: float, beta_us: float, piece_rows: int = 1) -> None:
        self.policy = policy
        self.alpha_us = alpha_us
        self.beta_us = beta_us
        self.view = QueueSeen((LaneSeen((PieceSeen(piece_rows),) * 2000),), ROOMY)

    def run(self, batches: int) -> list[int]:
        """The rows of that many batches in a row."""
        sizes = []
        for _ in range(batches):
            choice = self.policy.choose(self.view, NOW_US)
            took_us = ceil(self.alpha_us * choice.rows + self.beta_us)
            full = len(choice.pieces) < len(self.view.lanes[0].pieces)
            self.policy.on_done(BatchReport("a", choice.rows, 0, took_us, full), NOW_US)
            sizes.append(choice.rows)
        return sizes

    @property
    def best(self) -> float:
        """The largest batch within the objective."""
        return (SLO_US - self.beta_us) / self.alpha_us


@pytest.mark.slow
@given(st.integers(50, 1500), st.integers(0, 8_000))
def test_it_converges_to_the_largest_batch_within_the_objective_and_saw_tooths_below_it(
    alpha_us: int, beta_us: int
) -> None:
    device = Device(Aimd(SLO_US, None, 0), alpha_us, beta_us)
    device.run(600)
    settled = device.run(200)
    assert max(settled) <= device.best + 1
    assert min(settled) >= int(0.9 * int(device.best + 1)) - 1


def test_when_the_device_slows_down_by_two_it_is_back_within_the_objective_after_seven_misses() -> None:
    device = Device(Aimd(SLO_US, None, 0), 100, 0)
    device.run(1000)
    device.alpha_us *= 2
    misses = ceil(log(2) / -log(0.9))
    assert device.run(misses + 1)[-1] <= device.best


@pytest.mark.parametrize("piece_rows", [3, 8, 17])
def test_requests_of_many_rows_do_not_keep_it_from_growing(piece_rows: int) -> None:
    device = Device(Aimd(SLO_US, None, 0), 100, 0, piece_rows)
    device.run(1500)
    assert max(device.run(100)) >= device.best - 2 * piece_rows


@given(st.integers(1, 40))
def test_a_size_in_the_settings_bounds_it(size: int) -> None:
    device = Device(Aimd(SLO_US, size, 0), 1, 0)
    assert max(device.run(200)) == size


def test_it_never_goes_beyond_what_the_profile_allows_and_variants_learn_apart() -> None:
    policy = Aimd(SLO_US, None, 0)
    for rows in range(1, 30):
        policy.on_done(BatchReport("a", rows, 0, 1), NOW_US)
    lane = LaneSeen((PieceSeen(1),) * 100)
    assert policy.choose(QueueSeen((lane,), {"a": ReplicaSeen({0: 8})}), NOW_US).rows == 8
    other = LaneSeen((PieceSeen(1),) * 100, variants=("b",))
    assert policy.choose(QueueSeen((other,), {"b": ReplicaSeen({0: 8})}), NOW_US).rows == 1


def test_unequal_slices_learn_apart() -> None:
    policy = Aimd(SLO_US, None, 0)
    for rows in range(1, 30):
        policy.on_done(BatchReport("a", rows, 0, 1, slice="fast"), NOW_US)
    lane = LaneSeen((PieceSeen(1),) * 100)
    rows_of = {
        name: policy.choose(QueueSeen((lane,), ROOMY, slice=name), NOW_US).rows for name in ("fast", "slow")
    }
    assert rows_of == {"fast": 30, "slow": 1}


@given(queues, st.integers(0, 9))
def test_it_waits_for_company_as_long_as_the_delay_says(view: QueueSeen, delay_us: int) -> None:
    fresh = Aimd(SLO_US, None, delay_us)
    assert fresh.choose(view, NOW_US) == choose_due(view, lambda *_: 1, delay_us, NOW_US)
