"""Which slices are held where models have so many each to themselves: the cheapest, or the dearest.

Sets of slices that can be given out so, one model each, are a transversal matroid (Edmonds and Fulkerson
1965): whoever takes slices in the order of their prices, each that still fits in, has the cheapest of the
largest sets in the end, and in the opposite order the dearest.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ask:
    """`count` slices, each for this model alone, of those that it may use."""

    slices: tuple[str, ...]
    count: int


class SliceOwners:
    """The owner of each slice. `given`: the model of each slice that was taken."""

    def __init__(self, asks: Mapping[str, Ask]) -> None:
        self.given: dict[str, str] = {}
        self._asks = asks
        self._has: dict[str, set[str]] = {model: set() for model in asks}
        self._users: dict[str, list[str]] = {}
        for model, ask in asks.items():
            for name in ask.slices:
                self._users.setdefault(name, []).append(model)

    def take(self, slices: Iterable[str]) -> None:
        """Take each of these that fits in with those taken before, in their order: models may change them
        among each other, and keep their number."""
        for name in slices:
            self._take(name)

    def _take(self, name: str) -> None:
        """Give the slice, breadth first along slices that could be passed on, to a model that has too few."""
        came: dict[str, str] = dict.fromkeys(self._users.get(name, ()), name)  # by which slice, of each model
        waiting = [*came]
        for model in waiting:
            if len(self._has[model]) < self._asks[model].count:
                self._pass_on(model, came)
                return
            for own in self._has[model]:
                for user in self._users[own]:
                    if user not in came:
                        came[user] = own
                        waiting.append(user)

    def _pass_on(self, model: str, came: Mapping[str, str]) -> None:
        while True:
            name = came[model]
            owner = self.given.get(name)
            self.given[name] = model
            self._has[model].add(name)
            if owner is None:
                return
            self._has[owner].discard(name)
            model = owner

    def short(self) -> tuple[list[str], list[str]]:
        """Return (models that together ask for more slices than they may use, those slices); none if all have
        what they ask for. Once all slices were offered, that is why (Hall 1935)."""
        lacking = [model for model, ask in self._asks.items() if len(self._has[model]) < ask.count]
        models = lacking[:1]
        slices: dict[str, None] = {}
        for model in models:
            for name in self._asks[model].slices:
                slices[name] = None
                owner = self.given.get(name)
                if owner is not None and owner not in models:
                    models.append(owner)
        return models, [*slices]
