"""The rounds of a transition: what is begun, what is let go, what stands in. Pure.

Each round takes the first thing that it finds of those that cost least. There are no more rounds than slices:
a stand-in comes only where something new begins in the same round, and what has begun stays.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from serving.policy.transition.change import NEW, Change
from serving.policy.transition.ledger import Delta, Move, Shortfall, TransitionLedger
from serving.policy.transition.obstacles import beginnings, can_spare, fills, obstacles, sizings, targets
from serving.policy.transition.standins import Goal, StandIns
from serving.policy.transition.steps import Create, Group, Transition, TransitionRefused


class RoundPlanner:
    """From the old placement of the ledger to the new one, at most `limit` devices at a time.

    Devices that gain come before devices that lose: what the former bring is what the latter can spare.
    """

    def __init__(self, ledger: TransitionLedger, limit: int) -> None:
        self._ledger = ledger
        self._limit = limit
        self._groups: list[Group] = []
        self._temporary: list[Change] = []
        self._fills: dict[str, list[Move]] = {}
        self._refused: TransitionRefused | None = None
        self._order = {device: (_loss(ledger, device), device) for device in ledger.changes}

    def run(self) -> Transition | TransitionRefused:
        """Return all of it; Refused where a round finds nothing that it may do."""
        begin = (
            self._begin,
            self._make_room,
            self._begin_together,
            self._resize,
            self._end_temporary,
            self._stand_in,
        )
        finish = (self._finish, self._resize, self._end, self._finish_together)
        ledger = self._ledger
        while ledger.unfinished:
            if any(each() for each in (begin if ledger.unbegun else finish)):
                self._refused = None
            elif not ledger.unbegun or not self._end():
                return self._refused or _unfinished(ledger)
        created = [Create(each.device, each.number, each.share, each.start) for each in self._temporary]
        return Transition(tuple(self._groups), tuple(created))

    def _begin(self) -> bool:
        """Begin what there is room for; return whether anything began."""
        devices = self._sorted(self._ledger.unbegun)
        return self._together_where_spared([self._ways(device) for device in devices])

    def _make_room(self) -> bool:
        """End what is in the way of something new and can be spared; return whether anything ended."""
        devices = self._sorted(self._ledger.unbegun)
        return self._together_where_spared([self._clearings(device) for device in devices])

    def _begin_together(self) -> bool:
        """Begin what costs a model capacity that it gains on another device. Two models change places if each
        can be loaded beside the other. Return whether anything began."""
        devices = self._sorted(self._ledger.unbegun)
        return self._at_one_instant([way for device in devices for way in self._ways(device)])

    def _finish_together(self) -> bool:
        """Make devices what they should be, if each alone would cost a model capacity; return whether any
        changed."""
        return self._at_one_instant([*self._finishing()])

    def _at_one_instant(self, ways: Sequence[Move]) -> bool:
        """Carry out some of them together after which nothing is missing. Whether there were any."""
        gains: dict[str, list[Move]] = defaultdict(list)
        for way in ways:
            for model, rate in way.delta.rates.items():
                if rate > 0:
                    gains[model].append(way)
        for first in ways:
            moves = self._closed(first, gains)
            if moves:
                self._carry_out(moves)
                return True
        return False

    def _closed(self, first: Move, gains: dict[str, list[Move]]) -> list[Move]:
        """Return the move and others by which nothing is missing in the end; none where there are none."""
        moves, total = {first.device: first}, Delta()
        total.add(first.delta)
        while lacks := self._ledger.lacks(total):
            model = min(lacks)
            others = [each for each in gains[model] if each.device not in moves]
            if not others or len(moves) == self._limit:
                return []
            best = max(others, key=lambda each: each.delta.rates[model])
            moves[best.device] = best
            total.add(best.delta)
        return list(moves.values())

    def _resize(self) -> bool:
        """Give replicas that stay their new batches, all at one instant if possible; return whether any got
        them."""
        moves = []
        for device in self._sorted(self._ledger.unfinished):
            stages = self._ledger.stages[device]
            sized = sizings(self._ledger, device, stages)
            if sized and self._ledger.fits(device, stages, {**stages, **sized}):
                moves.append(self._ledger.move(device, sized))
        total = Delta()
        for move in moves:
            total.add(move.delta)
        if moves and not self._ledger.lacks(total):
            self._carry_out(moves)
            return True
        return self._together_where_spared([[move] for move in moves])

    def _end_temporary(self) -> bool:
        """End stand-ins that are not needed any more; return whether any ended."""
        standing: dict[str, list[int]] = defaultdict(list)
        for each in self._temporary:
            if self._ledger.stages[each.device][each.number] != NEW:
                standing[each.device].append(each.number)
        return self._together_where_spared(
            # one move a device: of two, the second would bring back what the first has ended
            [
                self._ledger.move(device, dict.fromkeys(some, NEW))
                for some in [numbers, *[[each] for each in numbers]]
            ]
            for device, numbers in standing.items()
        )

    def _stand_in(self) -> bool:
        """Begin something new in the place of what stands in elsewhere; return whether anything began."""
        for device in self._sorted(self._ledger.unbegun):
            for target in targets(self._ledger, device):
                cleared = obstacles(self._ledger, target)
                if cleared is None:
                    continue
                for begun in beginnings(self._ledger, target, cleared):
                    fits = self._ledger.fits(device, cleared, begun)
                    if fits and self._reach(Goal(device, cleared, begun)):
                        return True
        return False

    def _reach(self, goal: Goal) -> bool:
        stand_ins = StandIns(self._ledger, goal)
        lacks = stand_ins.lacks()
        found = stand_ins.find()
        if found is None:
            self._refused = self._refused or _refusal(self._ledger, goal.device, lacks)
            return False
        self._temporary += found
        for change in found:
            self._carry_out([self._ledger.move(change.device, {change.number: change.first})])
        for stages in (goal.cleared, goal.begun):
            self._carry_out([self._ledger.move(goal.device, stages)])
        return True

    def _end(self) -> bool:
        """End what is not needed any more, whether its room is needed or not; return whether anything
        ended."""
        devices = self._sorted(self._ledger.unfinished)
        return self._together_where_spared([self._endings(device) for device in devices])

    def _finish(self) -> bool:
        """Make devices what they should be; return whether any changed."""
        return self._together_where_spared([[move] for move in self._finishing()])

    def _finishing(self) -> Iterator[Move]:
        for device in self._sorted(self._ledger.unfinished):
            stages = self._ledger.stages[device]
            new = dict.fromkeys(stages, NEW)
            if self._ledger.fits(device, stages, new):
                yield self._ledger.move(device, new)

    def _sorted(self, devices: Iterable[str]) -> list[str]:
        return sorted(devices, key=self._order.__getitem__)

    def _ways(self, device: str) -> list[Move]:
        if device not in self._fills:
            self._fills[device] = fills(self._ledger, device)
        return self._fills[device]

    def _clearings(self, device: str) -> Iterator[Move]:
        if not can_spare(self._ledger, device):
            return
        for target in targets(self._ledger, device):
            stages = obstacles(self._ledger, target)
            if stages and stages != self._ledger.stages[device]:
                yield self._ledger.move(device, stages)
                sized = {**stages, **sizings(self._ledger, device, stages)}
                if self._ledger.fits(device, self._ledger.stages[device], sized):
                    yield self._ledger.move(device, sized)

    def _endings(self, device: str) -> Iterator[Move]:
        stages = self._ledger.stages[device]
        going = [each.number for each in self._ledger.changes[device] if not stages[each.number].ended]
        for numbers in [going, *[[each] for each in going]] if going else []:
            yield self._ledger.move(device, {each: stages[each]._replace(ended=True) for each in numbers})

    def _together_where_spared(self, choices: Iterable[Iterable[Move]]) -> bool:
        """Carry out, of each device's moves, the first after which nothing is missing; together, on as many
        devices as may be changed at a time. Whether there was any."""
        total, moves, changed = Delta(), list[Move](), set[str]()
        for ways in choices:
            for move in ways:
                if not self._ledger.lacks(move.delta, total):
                    total.add(move.delta)
                    moves.append(move)
                    if not move.is_sizing:
                        changed.add(move.device)
                    break
            if len(changed) == self._limit:
                break
        self._carry_out(moves)
        return bool(moves)

    def _carry_out(self, moves: list[Move]) -> None:
        self._groups += self._ledger.carry_out(moves)
        for move in moves:
            self._fills.pop(move.device, None)


def _loss(ledger: TransitionLedger, device: str) -> float:
    """Return the capacity that the device loses from the old placement to the new, as a sum of shares of each
    model's promised capacity."""
    floor = ledger.floors.capacity
    rates = ledger.move(device, dict.fromkeys(ledger.stages[device], NEW)).delta.rates
    return sum(-rate / floor[model] for model, rate in sorted(rates.items()) if rate < 0 and floor.get(model))


def _refusal(ledger: TransitionLedger, device: str, lacks: dict[str, Shortfall]) -> TransitionRefused:
    """Return why nothing stands in for what is in the way there."""
    model, lack = max(lacks.items(), key=lambda each: each[1].rate)
    if lack.rate:
        what = f"{lack.rate:.6g} of its {ledger.floors.capacity[model]:.6g} rows/s"
    else:
        what = f"one of its {ledger.floors.spread[model]} failure domains"
    reason = f"while {device} changes, {model} would be without {what}: nothing has room for a stand-in"
    return TransitionRefused(reason, model, device)


def _unfinished(ledger: TransitionLedger) -> TransitionRefused:
    device = min(ledger.unbegun or ledger.unfinished)
    return TransitionRefused(
        f"{device} cannot change alone: more devices have to change at the same time", "", device
    )
