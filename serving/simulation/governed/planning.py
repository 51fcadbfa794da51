"""Plans for a controller in virtual time: what is to be instead, where devices are lost and loads fail."""

from dataclasses import dataclass
from typing import Protocol

from serving.control.state.desired import DesiredState
from serving.control.state.observed import plain

NONE = "there is no other plan"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a plan is made from: devices that are `lost`, (device, model) of loads that fail, and what is
    wanted as long as no other plan is there."""

    lost: frozenset[str]
    failing: frozenset[tuple[str, str]]
    standing: DesiredState


@dataclass(frozen=True, slots=True)
class VirtualPlan:
    """What is to be wanted, and the states on the way."""

    wanted: DesiredState
    by: tuple[DesiredState, ...] = ()


class Planner(Protocol):
    """Makes the next best plan. `from_rest`: its states begin only if control rests at what is standing."""

    from_rest: bool

    def plan(self, facts: Facts) -> VirtualPlan | str:
        """Return a plan, or a sentence that says why there is none."""
        ...


class Stubborn:
    """Has no other plan."""

    from_rest = False

    def plan(self, facts: Facts) -> VirtualPlan | str:  # noqa: ARG002  a Planner
        """See `Planner`."""
        return NONE


def plain_names(wanted: DesiredState) -> DesiredState:
    """Return the state with the names that the planner has given."""
    return wanted.renamed({each.spec.name: plain(each.spec.name) for each in wanted.slices})
