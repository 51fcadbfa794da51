"""The moves from one placement to the next, what they cost, and whether the change is worth it.

A replica stays if its slice stays (device, share, start) and it is the same there (model, variant,
processes). Another batch or capacity moves nothing. If a device has equal slices, those with the most in
common count as the same slice.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from serving.policy.placement.terms.check import faults, shortfalls
from serving.policy.placement.terms.plan import ROUNDING, PlacedReplica, Placement, Slot, cost, domains, short
from serving.policy.placement.terms.problem import Option, Parts, PlacementProblem

SETTLE_US = 60_000_000
"""A loaded replica is counted on a minute later. By then its caches are warm and it gets its share of the
rows."""
FACTOR = 2.0
"""A start costs so many times the replica's part of a device. With make-before-break, the replica that it
replaces is held as well while it starts."""

Replica = tuple[str, str, int]
"""What identifies a replica, wherever it runs: (model, variant, processes)."""


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """A replica on a slice of a device."""

    device: str
    slot: Slot
    resident: PlacedReplica


@dataclass(frozen=True, slots=True)
class Moves:
    """The replicas that start, end and stay, in the order of their devices.

    `kept` has the replicas as they will be.
    """

    started: tuple[ReplicaPlace, ...] = ()
    ended: tuple[ReplicaPlace, ...] = ()
    kept: tuple[ReplicaPlace, ...] = ()

    @property
    def by_model(self) -> dict[str, tuple[int, int, int]]:
        """How many replicas of each model (start, end, stay), in the order of the models' names."""
        counts = [
            Counter(each.resident.model for each in part) for part in (self.started, self.ended, self.kept)
        ]
        started, ended, kept = counts
        return {
            model: (started[model], ended[model], kept[model]) for model in sorted(started | ended | kept)
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a new placement is taken, and why.

    `saving`: what it saves within the horizon. `cost`: what its moves cost.
    """

    taken: bool
    reason: str
    saving: float = 0.0
    cost: float = 0.0


def replica(resident: PlacedReplica) -> Replica:
    """Return what identifies a replica, in whatever batches it runs."""
    return resident.model, resident.option.variant, resident.option.processes


def start_us(option: Option) -> int:
    """Return the time from the start of a replica until it can be counted on, in us."""
    return option.load_us + SETTLE_US


def slots_us(slots: Iterable[Slot]) -> int:
    """Return the time to start all replicas of these slots, one after the other, in us."""
    return sum(start_us(each.option) for slot in slots for each in slot.residents)


def common(old: Slot, new: Slot) -> Counter[Replica]:
    """Return the replicas that both slots have."""
    if len(old.residents) == len(new.residents) == 1:
        first, second = replica(old.residents[0]), replica(new.residents[0])
        return Counter((first,) if first == second else ())
    return Counter(map(replica, old.residents)) & Counter(map(replica, new.residents))


def same_slices(old: Sequence[Slot], new: Sequence[Slot]) -> list[tuple[int, int]]:
    """Return (place in `old`, place in `new`) of the slots that are one slice before and after.

    All slots are of one device. Of several pairings, return the one that keeps the replicas that would take
    longest to start.
    """
    found: list[tuple[int, int]] = []
    alike: dict[tuple[object, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, slots in enumerate((old, new)):
        for place, slot in enumerate(slots):
            alike[slot.share, slot.start][side].append(place)
    for before, after in alike.values():
        if len(before) == len(after) == 1:
            found.append((before[0], after[0]))
        elif before and after:
            from scipy.optimize import linear_sum_assignment  # see `placement.programs`

            worth = np.array([[kept_us(old[one], new[other]) for other in after] for one in before])
            rows, columns = linear_sum_assignment(worth, maximize=True)
            pairs = zip(rows.tolist(), columns.tolist(), strict=True)
            found += [(before[row], after[column]) for row, column in pairs]
    return found


def kept_us(old: Slot, new: Slot) -> int:
    """Return the starting time that is saved when the slot `old` becomes `new`, in us."""
    both = common(old, new)
    if not both:
        return 0
    each_us = {replica(each): start_us(each.option) for each in new.residents}
    return sum(each_us[name] * count for name, count in both.items())


def stays_us(old: Sequence[Slot], new: Sequence[Slot]) -> int:
    """Return the starting time that is saved on a device that goes from `old` to `new`, in us."""
    return sum(kept_us(old[one], new[other]) for one, other in same_slices(old, new))


def moves(old: Placement, new: Placement) -> Moves:
    """Return the moves that lead from `old` to `new`, in the order of the devices' names."""
    started: list[ReplicaPlace] = []
    ended: list[ReplicaPlace] = []
    kept: list[ReplicaPlace] = []
    for device in sorted({*old, *new}):
        before, after = old.get(device, ()), new.get(device, ())
        same = same_slices(before, after)
        both = [common(before[one], after[other]) for one, other in same]
        stays = dict(zip((other for _, other in same), both, strict=True))
        for place, slot in enumerate(after):
            staying, coming = _split(slot, stays.get(place, Counter()))
            kept += [ReplicaPlace(device, slot, each) for each in staying]
            started += [ReplicaPlace(device, slot, each) for each in coming]
        stays = dict(zip((one for one, _ in same), both, strict=True))
        for place, slot in enumerate(before):
            ended += [
                ReplicaPlace(device, slot, each) for each in _split(slot, stays.get(place, Counter()))[1]
            ]
    return Moves(tuple(started), tuple(ended), tuple(kept))


def _split(slot: Slot, staying: Counter[Replica]) -> tuple[list[PlacedReplica], list[PlacedReplica]]:
    """Split the slot's residents into (those among `staying`, the others)."""
    left = staying.copy()
    parts: tuple[list[PlacedReplica], list[PlacedReplica]] = ([], [])
    for resident in slot.residents:
        stays = left[replica(resident)] > 0
        left[replica(resident)] -= 1
        parts[not stays].append(resident)
    return parts


def move_cost(problem: PlacementProblem, moved: Moves, factor: float = FACTOR) -> float:
    """Return what the started replicas cost.

    Each costs its slice's part of its device's price until it can be counted on, times `factor`. Raise
    KeyError if a device is not the problem's.
    """
    each_hour = (
        problem.pool_of[place.device].price * _part(problem, place) * start_us(place.resident.option) / 3.6e9
        for place in moved.started
    )
    return factor * sum(each_hour, 0.0)


def _part(problem: PlacementProblem, place: ReplicaPlace) -> float:
    """Return the slice's part of its device, by amount or by memory slices."""
    division = problem.pool_of[place.device].division
    if isinstance(division, Parts):
        return place.slot.share.amount / division.total
    profile = division.profile(place.slot.share)
    largest = max((each.size for each in division.geometry), default=1)
    return profile.size / largest if profile else 1.0


def accept(problem: PlacementProblem, old: Placement, new: Placement, horizon_s: float) -> Verdict:
    """Return whether to go from `old` to `new`, and why.

    Take `new` if `old` breaks a rule or carries less of the demands. Refuse `new` if it does so itself.
    Otherwise take it if it saves more within the horizon than its moves cost.
    """
    if wrong := faults(problem, new):
        return Verdict(False, f"the new plan is none: {wrong[0]}")
    if wrong := faults(problem, old):
        return Verdict(True, f"the old plan does not hold any more: {wrong[0]}")
    lacked, lacks = lacking(problem, old), lacking(problem, new)
    if lacks < lacked - ROUNDING:
        return Verdict(True, f"the old plan falls short: {shortfalls(problem, old)[0]}")
    if lacks > lacked + ROUNDING:
        return Verdict(False, f"the new plan falls short: {shortfalls(problem, new)[0]}")
    moved = moves(old, new)
    spent = move_cost(problem, moved)
    saving = (cost(problem, old) - cost(problem, new)) * horizon_s / 3600
    count = len(moved.started)
    price = f"starting {count} {'replica' if count == 1 else 'replicas'} costs {spent:.3g}"
    if saving > spent:
        return Verdict(True, f"it saves {saving:.3g} in {horizon_s:g} s, {price}", saving, spent)
    gain = f"it saves only {saving:.3g}" if saving > 0 else "it saves nothing"
    return Verdict(False, f"{gain} in {horizon_s:g} s, {price}", saving, spent)


def lacking(problem: PlacementProblem, placement: Placement) -> float:
    """Return what the placement lacks of the demands, as a sum of parts.

    The sum is over the missing part of each model's rate, and the missing part of its failure domains.
    """
    missing = [rate / problem.demand_of[model].rate for model, rate in short(problem, placement).items()]
    spread = domains(problem, placement)
    for each in problem.demands:
        if each.rate > 0 and each.domains_min > 0:
            there = len(spread.get(each.model, ()))
            missing.append(max(0, each.domains_min - there) / each.domains_min)
    return sum(missing, 0.0)
