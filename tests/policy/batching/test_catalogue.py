"""Every policy has one name, and every queue a policy of its own."""

import pytest

from serving.policy.batching.catalogue import POLICIES, create_policy
from serving.values.specs import BatchingSpec
from tests.policy.views import LaneSeen, PieceSeen, QueueSeen

SLO_US = 1000
EVERY = [(name, mode) for name, entry in POLICIES.items() for mode in entry.modes or ("",)]


@pytest.mark.parametrize("name", POLICIES)
def test_each_name_gives_a_policy_with_its_own_state(name: str) -> None:
    spec = BatchingSpec(policy=name)
    assert create_policy(spec, SLO_US) is not create_policy(spec, SLO_US)


@pytest.mark.parametrize(("name", "mode"), EVERY)
def test_a_slice_is_left_idle_only_until_an_instant_at_which_the_piece_runs_in_time(
    name: str, mode: str
) -> None:
    view = QueueSeen((LaneSeen((PieceSeen(1, 10_000, 50),)),))
    policy = create_policy(BatchingSpec(policy=name, mode=mode), SLO_US)
    choice = policy.choose(view, 50)
    if choice.lane is None:
        choice = policy.choose(view, choice.wake_us)
    assert len(choice.pieces) == 1
    assert 50 <= choice.latest_start_us < 10_000


@pytest.mark.parametrize(
    ("name", "known"), [("slo", "latency or consolidate"), ("static", "none: it has no modes")]
)
def test_a_mode_of_another_policy_is_an_error_that_names_the_modes_of_this_one(name: str, known: str) -> None:
    with pytest.raises(ValueError, match=f"policy {name} has no mode 'hasty'; expected {known}"):
        create_policy(BatchingSpec(policy=name, mode="hasty"), SLO_US)


def test_the_knobs_of_the_settings_reach_the_policy() -> None:
    view = QueueSeen((LaneSeen((PieceSeen(1, 100, 50), PieceSeen(1, 100, 51))),))
    assert create_policy(BatchingSpec("static", size=3, delay_us=7), SLO_US).choose(view, 52).wake_us == 57
    assert len(create_policy(BatchingSpec("static", size=2, delay_us=7), SLO_US).choose(view, 52).pieces) == 2


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        create_policy(BatchingSpec(policy="clairvoyant"), SLO_US)
