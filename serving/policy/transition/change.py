"""What differs between the old and the new slices of a device, slice by slice. Pure.

A slice of the same share (and place, in MIG) is kept: models are loaded and unloaded there without it being
destroyed. A replica of the same model and variant on it is kept too: its batches are sized anew.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from serving.policy.placement.terms.plan import PlacedReplica, Slot
from serving.policy.transition.state import TransitionReplica, TransitionSlice, replicas
from serving.values.slice_specs import Share


class Stage(NamedTuple):
    """How far a slice is: what is to go from it is gone (`ended`), what is to come is there (`begun`), what
    stays has its new batches (`sized`); each is so from the first where there is nothing such. `void`: it is
    destroyed until something begins on it."""

    ended: bool
    begun: bool
    sized: bool
    void: bool = False


NEW = Stage(ended=True, begun=True, sized=True)


@dataclass(slots=True)
class Change:
    """A slice from its old content to its new one.

    `stood`: it is in the old placement; `stays`: it is in the new one. `ends` and `begins`: replicas that are
    only in the old and only in the new; `kept`: those in both, before and after. `temporary`: the slice is in
    neither, and ends what it has.
    """

    device: str
    number: int
    share: Share
    start: int
    stood: bool
    stays: bool
    ends: tuple[TransitionReplica, ...] = ()
    begins: tuple[TransitionReplica, ...] = ()
    kept: tuple[tuple[TransitionReplica, TransitionReplica], ...] = ()
    temporary: bool = False
    _contents: dict[Stage, TransitionSlice | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def stand_in(
        cls, device: str, number: int, share: Share, start: int, residents: Sequence[PlacedReplica]
    ) -> "Change":
        """Return a slice that is there for a while."""
        ends = replicas(residents)
        return cls(device, number, share, start, stood=False, stays=False, ends=ends, temporary=True)

    def content(self, stage: Stage) -> TransitionSlice | None:
        """Return the content of the slice at that stage, all of it routed; None if the slice is not there."""
        if stage not in self._contents:
            self._contents[stage] = self._content(stage)
        return self._contents[stage]

    @property
    def first(self) -> Stage:
        """What it is at when it is as in the old placement; for a stand-in, when it stands."""
        goes = bool(self.ends) or (self.stood and not self.stays)
        return Stage(ended=not goes, begun=not self.begins, sized=not self.resized)

    def _content(self, stage: Stage) -> TransitionSlice | None:
        if (not self.stays and stage.ended) or (not self.stood and not self.temporary and not stage.begun):
            return None
        if self.can_be_void and stage.void:
            return None
        kept = [after if stage.sized else before for before, after in self.kept]
        there = [*kept, *(() if stage.ended else self.ends), *(self.begins if stage.begun else ())]
        there.sort(key=lambda each: each.number)
        return TransitionSlice(self.number, self.share, self.start, tuple(there))

    @property
    def can_be_void(self) -> bool:
        """Whether nothing is on it between what ends and what begins."""
        return self.stood and self.stays and not self.kept

    @property
    def resized(self) -> bool:
        """Whether what stays has other batches than before."""
        return any(before != after for before, after in self.kept)


def changes(device: str, before: Sequence[Slot], after: Sequence[Slot]) -> Iterator[Change]:
    """Yield a change for each slice of either, those of the old placement first, in order."""
    partner = dict(_pairs(before, after))
    for number, slot in enumerate(before):
        if number in partner:
            yield _kept(device, number, slot, after[partner[number]])
        else:
            ends = replicas(slot.residents)
            yield Change(device, number, slot.share, slot.start, stood=True, stays=False, ends=ends)
    kept = set(partner.values())
    added = [slot for place, slot in enumerate(after) if place not in kept]
    for number, slot in enumerate(added, len(before)):
        begins = replicas(slot.residents)
        yield Change(device, number, slot.share, slot.start, stood=False, stays=True, begins=begins)


def _identity(resident: PlacedReplica) -> tuple[str, str, int]:
    return resident.model, resident.option.variant, resident.option.processes


def _pairs(before: Sequence[Slot], after: Sequence[Slot]) -> Iterator[tuple[int, int]]:
    """Yield which old slice is which new one: of one share and place, those first that have most in
    common."""
    common = []
    for old, slot in enumerate(before):
        for new, other in enumerate(after):
            if (slot.share, slot.start) == (other.share, other.start):
                held = Counter(map(_identity, slot.residents)) & Counter(map(_identity, other.residents))
                common.append((slot.residents != other.residents, -held.total(), old, new))
    olds, news = set[int](), set[int]()
    for _, _, old, new in sorted(common):
        if old not in olds and new not in news:
            olds.add(old)
            news.add(new)
            yield old, new


def _kept(device: str, number: int, before: Slot, after: Slot) -> Change:
    """Return a slice that stays."""
    missing = list(replicas(before.residents))
    kept: list[tuple[TransitionReplica, TransitionReplica]] = []
    begins: list[TransitionReplica] = []
    for resident in after.residents:
        same = next((each for each in missing if _identity(each.resident) == _identity(resident)), None)
        if same is None:
            begins.append(TransitionReplica(len(before.residents) + len(begins), resident, True))
        else:
            missing.remove(same)
            kept.append((same, TransitionReplica(same.number, resident, True)))
    return Change(
        device,
        number,
        before.share,
        before.start,
        stood=True,
        stays=True,
        ends=tuple(missing),
        begins=tuple(begins),
        kept=tuple(kept),
    )
