"""Which slices are held, for how long, and how many of them give a model's batches a place."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replicas:
    """Of a model, over a time: the fewest and the most slices that gave it batches, their number in the mean
    over the time, and how often that number changed."""

    least: int
    most: int
    mean: float
    changes: int


class HeldSlices:
    """The slices with a live worker, from its start to its end."""

    def __init__(self) -> None:
        self._since_us: dict[str, int] = {}  # by slice that is held
        self._spans: list[tuple[str, int, int]] = []  # slice, from when to when, of those that were

    def started(self, slice_name: str, now_us: int) -> None:
        """Note that the slice's worker is started."""
        self._since_us[slice_name] = now_us

    def lost(self, slice_name: str, now_us: int) -> None:
        """Note that the slice's worker is gone."""
        self._spans.append((slice_name, self._since_us.pop(slice_name), now_us))

    def __contains__(self, slice_name: str) -> bool:
        return slice_name in self._since_us

    def within_us(self, start_us: int, end_us: int) -> list[tuple[str, int]]:
        """Return the slices, and for how many microseconds each was held from `start_us` to `end_us`. A slice
        that was held several times is there as often."""
        spans = [*self._spans, *((name, since_us, end_us) for name, since_us in self._since_us.items())]
        return [
            (name, max(min(last_us, end_us) - max(first_us, start_us), 0))
            for name, first_us, last_us in spans
        ]


class Presence:
    """Which variants of `models` get batches on which slices, and how their number changed."""

    def __init__(self, models: Collection[str]) -> None:
        self._there: dict[str, set[tuple[str, str]]] = {name: set() for name in models}
        self._counts: dict[str, list[tuple[int, int]]] = {name: [(0, 0)] for name in models}

    def up(self, slice_name: str, model: str, variant: str, now_us: int) -> None:
        """Note that a replica gets batches from now on."""
        self._there[model].add((slice_name, variant))
        self._note(model, now_us)

    def down(self, slice_name: str, model: str, variant: str, now_us: int) -> None:
        """Note that a replica gets no batches any more."""
        self._there[model].discard((slice_name, variant))
        self._note(model, now_us)

    def gone(self, slice_name: str, now_us: int) -> None:
        """Note that nothing on the slice gets batches any more."""
        for model, there in self._there.items():
            if any(name == slice_name for name, _ in there):
                self._there[model] = {each for each in there if each[0] != slice_name}
                self._note(model, now_us)

    def slices(self, model: str) -> set[str]:
        """Return the slices on which a model gets batches now."""
        return {name for name, _ in self._there[model]}

    def replicas(self, model: str, start_us: int, end_us: int) -> Replicas:
        """Return the replica counts of a model, from `start_us` until before `end_us`."""
        counts = self._counts[model]
        before = [count for at_us, count in counts if at_us <= start_us][-1:] or [0]
        inside = [(at_us, count) for at_us, count in counts if start_us < at_us < end_us]
        steps = [(start_us, before[0]), *inside]
        ends = [*(at_us for at_us, _ in inside), end_us]
        area = sum(count * (until_us - at_us) for (at_us, count), until_us in zip(steps, ends, strict=True))
        numbers = [count for _, count in steps]
        return Replicas(min(numbers), max(numbers), area / max(end_us - start_us, 1), len(inside))

    def _note(self, model: str, now_us: int) -> None:
        counts, count = self._counts[model], len({name for name, _ in self._there[model]})
        if counts[-1][1] == count:
            return
        if counts[-1][0] == now_us:
            counts.pop()
        if not counts or counts[-1][1] != count:
            counts.append((now_us, count))


def together(found: Sequence[Replicas]) -> Replicas:
    """Return the counts of runs of equal length together; `changes` adds up over all of them."""
    return Replicas(
        min(each.least for each in found),
        max(each.most for each in found),
        sum(each.mean for each in found) / len(found),
        sum(each.changes for each in found),
    )


def shares(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return, by slice, the mean over runs of equal length."""
    return {name: sum(each[name] for each in found) / len(found) for name in found[0]}
