"""Where replicas can be for a while that stand in for what has to go before its successor is there. Pure.

A copy of a slice goes where there is room on a device of its kind, on its own device too (so that in MIG an
instance makes way for a larger one). Where none fits, its models are placed each by itself, as their demands
have options, with batches that keep their SLO beside what is there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serving.policy.placement.terms.plan import PlacedReplica
from serving.policy.placement.terms.problem import Instances, Option
from serving.policy.transition.change import Change
from serving.policy.transition.ledger import Delta, Shortfall, Stages, TransitionLedger
from serving.values.slice_specs import Share

STAND_INS_MAX = 32
"""For one slice. Far more than are of use: a bound on what is tried."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A device as it is when what is in its target's way is `cleared`, and when the target has `begun`."""

    device: str
    cleared: Stages
    begun: Stages


class StandIns:
    """Those that make a goal possible; in the ledger they are added, but not there yet."""

    def __init__(self, ledger: TransitionLedger, goal: Goal) -> None:
        self._ledger = ledger
        self._goal = goal
        self._sides = [ledger.move(goal.device, each).delta for each in (goal.cleared, goal.begun)]
        self.found: list[Change] = []

    def find(self) -> list[Change] | None:
        """Return all that are needed; None, and none added, where there is no room for them."""
        before = self._ledger.stages[self._goal.device]
        for change in [*self._ledger.changes[self._goal.device]]:
            if before[change.number].ended != self._goal.cleared[change.number].ended:
                self._copy(change)
        while (lacks := self.lacks()) and len(self.found) < STAND_INS_MAX:
            model, lack = next(iter(lacks.items()))
            if not self._single(model, lack):
                break
        if not lacks:
            return self.found
        for change in self.found:
            self._ledger.drop(change)
        return None

    def lacks(self) -> dict[str, Shortfall]:
        """Return what would be missing at either stage of the goal with what has been found so far."""
        worst: dict[str, Shortfall] = {}
        for delta in self._deltas():
            for model, lack in self._ledger.lacks(delta).items():
                other = worst.get(model, lack)
                worst[model] = Shortfall(max(lack.rate, other.rate), max(lack.domains, other.domains))
        return dict(sorted(worst.items()))

    def _deltas(self) -> Iterator[Delta]:
        for side in self._sides:
            total = Delta()
            total.add(side)
            for change in self.found:
                for replica in change.ends:
                    total.change(replica.resident, self._ledger.fleet.domain_of[change.device], 1)
            yield total

    def _copy(self, change: Change) -> None:
        """Put the same slice elsewhere, with the replicas of it that would be missing."""
        lacks = self.lacks()
        wanted = [each.resident for each in change.ends if each.resident.model in lacks]
        if not wanted:
            return
        for device in self._hosts([each.model for each in wanted if lacks[each.model].domains]):
            of_kind = all(self._ledger.pool(device).fits(each.option) for each in wanted)
            if of_kind and self._put(device, change.share, wanted):
                return

    def _single(self, model: str, lack: Shortfall) -> bool:
        """Return a replica of the model by itself: the smallest that is enough, else the one that carries
        most."""
        demand = self._ledger.fleet.demand_of[model]
        for device in self._hosts([model] if lack.domains else []):
            pool = self._ledger.pool(device)
            budget_us = demand.slack * demand.slo_us
            offers = [
                PlacedReplica(model, option, offer.rows, offer.throughput)
                for option in demand.options
                if pool.fits(option) and (offer := option.offer(budget_us, self._slowdown(device, option)))
            ]
            offers.sort(key=lambda each: _worse(each, lack))
            if any(self._put(device, each.option.share, [each]) for each in offers):
                return True
        return False

    def _slowdown(self, device: str, option: Option) -> float:
        """Return how many times as long its batches take beside what is on the device."""
        if isinstance(self._ledger.pool(device).division, Instances):
            return 1.0
        there = self._ledger.layout(device, self._standing(device, self._ledger.stages[device]))
        return 1 + option.sensitivity * sum(each.routed.pressure for each in there)

    def _hosts(self, apart: Sequence[str]) -> list[str]:
        """Return the devices with some room, first those on which nothing is still to come; for models that
        lack failure domains, only in others than they are in."""
        ledger = self._ledger
        domain_of, taken = ledger.fleet.domain_of, set[str]()
        for delta in self._deltas():
            lacks = ledger.lacks(delta)
            for model in apart:
                if model in lacks and lacks[model].domains:
                    taken |= ledger.domains(model, delta)
        hosts = [device for device in ledger.free | {self._goal.device} if domain_of[device] not in taken]
        return sorted(hosts, key=lambda each: (each == self._goal.device, each in ledger.unbegun, each))

    def _put(self, device: str, share: Share, residents: Sequence[PlacedReplica]) -> bool:
        """Return whether there is room for them there; then they are added."""
        ledger, division = self._ledger, self._ledger.pool(device).division
        profile = division.profile(share) if isinstance(division, Instances) else None
        number = max(ledger.stages[device], default=-1) + 1
        for start in reversed(profile.starts) if profile else (-1,):
            change = Change.stand_in(device, number, share, start, residents)
            ledger.add(change)
            self.found.append(change)
            if self._fits(device):
                return True
            self.found.pop()
            ledger.drop(change)
        return False

    def _fits(self, device: str) -> bool:
        before = self._ledger.stages[device]
        if not self._ledger.fits(device, before, self._standing(device, before)):
            return False
        if device != self._goal.device:
            return True
        cleared, begun = (self._standing(device, each) for each in (self._goal.cleared, self._goal.begun))
        return self._ledger.fits(device, cleared, begun)

    def _standing(self, device: str, stages: Stages) -> Stages:
        """Return those stages with the stand-ins found so far there."""
        return {**stages, **{each.number: each.first for each in self.found if each.device == device}}


def _worse(resident: PlacedReplica, lack: Shortfall) -> tuple[bool, float, float]:
    """Return the less, the sooner it is tried."""
    amount = resident.option.share.amount
    if resident.capacity >= lack.rate:
        return False, amount, -resident.capacity
    return True, -resident.capacity, amount
