"""What can be begun on a device as it is, and what would have to go first. Pure."""

from collections.abc import Iterator

from serving.policy.transition.change import NEW, Change, Stage
from serving.policy.transition.ledger import Move, Stages, TransitionLedger


def targets(ledger: TransitionLedger, device: str) -> list[Change]:
    """Return the slices on which something new is still to come. Slices of models that the device has already
    come first, as their old replicas may go then. The larger come before the smaller."""
    stages = ledger.stages[device]
    there = {each.resident.model for change in ledger.changes[device] for each in change.ends}
    waiting = [each for each in ledger.changes[device] if not stages[each.number].begun]
    return sorted(
        waiting,
        key=lambda change: (
            all(each.resident.model not in there for each in change.begins),
            -change.share.amount,
            change.number,
        ),
    )


def fills(ledger: TransitionLedger, device: str) -> list[Move]:
    """Return the ways to begin something new for which there is room, that which does most first."""
    stages = ledger.stages[device]
    ways: list[Stages] = [dict.fromkeys(stages, NEW)]
    ways += [way for target in targets(ledger, device) for way in beginnings(ledger, target, stages)]
    return [ledger.move(device, way) for way in ways if ledger.fits(device, stages, way)]


def beginnings(ledger: TransitionLedger, target: Change, stages: Stages) -> Iterator[Stages]:
    """Yield the stages of the device after its target has begun: what it replaces gone, too; the other
    slices' new batches besides, which suit their new neighbours; or beside what it replaces."""
    yield {**stages, target.number: NEW}
    sized = sizings(ledger, target.device, stages)
    if sized:
        yield {**stages, **sized, target.number: NEW}
    if not stages[target.number].ended:
        yield {**stages, target.number: Stage(ended=False, begun=True, sized=True)}


def sizings(ledger: TransitionLedger, device: str, stages: Stages) -> Stages:
    """Return the slices with replicas that stay and have yet to get their new batches, with these."""
    return {
        each.number: stages[each.number]._replace(sized=True)
        for each in ledger.changes[device]
        if not stages[each.number].sized
    }


def obstacles(ledger: TransitionLedger, target: Change) -> Stages | None:
    """Return the stages of the device after what is in the target's way has gone: as little as possible, and
    rather what the fleet can spare. None where the target cannot even begin when all that is old is gone."""
    stages = ledger.stages[target.device]
    going = [each for each in ledger.changes[target.device] if not stages[each.number].ended]
    without = {each.number: stages[each.number]._replace(ended=True) for each in going}
    if not _can_begin(ledger, target, {**stages, **without}):
        return None
    for change in sorted(going, key=lambda each: _price(ledger, each), reverse=True):
        fewer = {number: stage for number, stage in without.items() if number != change.number}
        if _can_begin(ledger, target, {**stages, **fewer}):
            without = fewer
    return {**stages, **without}


def can_spare(ledger: TransitionLedger, device: str) -> bool:
    """Return whether there is anything on the device that is to go and could."""
    return any(
        not ledger.stages[device][each.number].ended and not _price(ledger, each)[0]
        for each in ledger.changes[device]
    )


def _can_begin(ledger: TransitionLedger, target: Change, stages: Stages) -> bool:
    return any(ledger.fits(target.device, stages, way) for way in beginnings(ledger, target, stages))


def _price(ledger: TransitionLedger, change: Change) -> tuple[float, float, int]:
    """Return the part of what is promised that would be missing without it, what it carries, and its
    number."""
    ended = ledger.stages[change.device][change.number]._replace(ended=True)
    lacks = ledger.lacks(ledger.move(change.device, {change.number: ended}).delta)
    floor = ledger.floors.capacity
    missing = sum(lack.rate / floor[model] if lack.rate else 1 for model, lack in lacks.items())
    return missing, sum(each.resident.capacity for each in change.ends), change.number
