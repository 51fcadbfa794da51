"""Which loads fail wherever a plan has put them: counted in a row, by place and model."""

from collections import Counter

from serving.control.reconciling import LOAD_TRIES


class FailingLoads:
    """Counts a model's failed loads on a place, until one succeeds there. A place is a slice or a device."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def failed(self, place: str, model: str) -> None:
        """Count a failed load."""
        self._counts[place, model] += 1

    def loaded(self, place: str, model: str) -> None:
        """Forget the failures, because a load has succeeded."""
        self._counts.pop((place, model), None)

    def forget(self, model: str) -> None:
        """Forget a model's failures on all places, because its files are others."""
        for pair in [pair for pair in self._counts if pair[1] == model]:
            del self._counts[pair]

    @property
    def found(self) -> frozenset[tuple[str, str]]:
        """The (place, model) pairs that have failed as often as a rollout allows."""
        return frozenset(pair for pair, times in self._counts.items() if times >= LOAD_TRIES)
