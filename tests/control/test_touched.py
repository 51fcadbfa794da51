"""Control looks only at slices that have changed, and decides as if it had looked at all of them."""

import pytest

from serving.control.commands import Command
from serving.control.reconciling import Reconciling
from serving.control.state.desired import DesiredState
from serving.control.state.earliest import Earliest
from serving.values.vocabulary import NEVER_US
from tests.frozen.__main__ import Job, digest


@pytest.mark.parametrize("kind", ["Simple", "Residing"])
@pytest.mark.parametrize("seed", [1, 17, 80])
def test_all_slices_anew_at_each_event_lead_to_the_same_commands(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(kind, str(seed))
    usual = digest(job)
    advance, events = Reconciling.advance, 0

    def thorough(self: Reconciling, current: DesiredState, now_us: int) -> list[Command]:
        nonlocal events
        events += 1
        self._observed.touched |= self._outstanding.all()
        return advance(self, current, now_us)

    monkeypatch.setattr(Reconciling, "advance", thorough)
    assert digest(job) == usual
    assert events > 1


def test_the_earliest_instant_is_found_whatever_was_set_before() -> None:
    due = Earliest[str]()
    assert due.least_us == NEVER_US
    for at_us in range(300):
        due.set("a", 1000 - at_us)
        due.set("b", 2000)
    assert due.least_us == 701
    due.set("a", 5000)
    assert due.least_us == 2000
    assert due.due(2000) == ["b"]
    due.set("b", NEVER_US)
    assert due.due(4999) == []
    assert due.due(5000) == ["a"]
    assert due.least_us == NEVER_US
