"""Every policy has one name, and every queue a policy of its own."""

import pytest

from serving.policy.batching.catalogue import POLICIES, create_policy
from serving.specs import BatchingSpec
from tests.policy.views import LaneSeen, PieceSeen, QueueSeen

SLO_US = 1000


@pytest.mark.parametrize("name", POLICIES)
def test_each_name_gives_a_policy_with_its_own_state(name: str) -> None:
    spec = BatchingSpec(policy=name)
    assert create_policy(spec, SLO_US) is not create_policy(spec, SLO_US)


@pytest.mark.parametrize("name", POLICIES)
def test_without_knobs_no_policy_leaves_a_slice_idle_while_a_piece_waits(name: str) -> None:
    view = QueueSeen((LaneSeen((PieceSeen(1, 10_000, 50),)),))
    assert len(create_policy(BatchingSpec(policy=name), SLO_US).choose(view, 50).pieces) == 1


def test_the_knobs_of_the_settings_reach_the_policy() -> None:
    view = QueueSeen((LaneSeen((PieceSeen(1, 100, 50), PieceSeen(1, 100, 51))),))
    assert create_policy(BatchingSpec("static", size=3, delay_us=7), SLO_US).choose(view, 52).wake_us == 57
    assert len(create_policy(BatchingSpec("static", size=2, delay_us=7), SLO_US).choose(view, 52).pieces) == 2


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        create_policy(BatchingSpec(policy="clairvoyant"), SLO_US)
