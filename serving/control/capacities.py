"""What replicas carry, by variant and kind of slice: guessed from profiles, until a job has simulated it."""

from collections.abc import Iterable, Mapping

from serving.control.commands import FindCapacity
from serving.control.observed import ObservedState
from serving.control.topology import SliceClass, kind_name
from serving.policy.scaling.capacity import Capacity
from serving.policy.scaling.guess import guess
from serving.profile.curve import Profile
from serving.specs import ServedModel

RENEWED = 0.1
"""By how much one replica's guess differs between two profiles before a table is made anew: a profile is
refined every second that its slice is idle."""

Key = tuple[str, str, str, int, float]
"""Model, variant, kind of slice, SLO and percentile: what a table holds for."""


class Capacities:
    """Of all scaled models."""

    def __init__(self, holdings: ObservedState) -> None:
        self._holdings = holdings
        self._guesses: dict[Key, tuple[Profile, Capacity]] = {}
        self._found: dict[Key, Capacity] = {}
        self._asked: set[Key] = set()
        self._looked_up: dict[tuple[str, str], dict[str, Capacity]] = {}
        self._there: dict[tuple[str, str, str], Profile] | None = None  # by kind, model and variant

    def renew(self) -> None:
        """Something may have been measured since what was looked up last."""
        self._looked_up.clear()
        self._there = None

    def of(self, model: ServedModel, slice_class: SliceClass) -> dict[str, Capacity]:
        """By variant that may answer, the most accurate first, on slices like that; those that nobody has
        measured are left out. The same until `renew`."""
        key = (model.name, slice_class.kind)
        if key not in self._looked_up:
            self._looked_up[key] = self._look_up(model, slice_class)
        return self._looked_up[key]

    def _look_up(self, model: ServedModel, slice_class: SliceClass) -> dict[str, Capacity]:
        found: dict[str, Capacity] = {}
        for variant in model.own.variants:
            profile = self._profile(slice_class, model.name, variant)
            if profile is not None:
                key = self._key(model, variant, slice_class.kind)
                found[variant] = self._found.get(key) or self._guess(key, model, profile)
        return found

    def _profile(self, slice_class: SliceClass, model: str, variant: str) -> Profile | None:
        if self._there is None:
            self._there = {}
            for record, replica in self._holdings.replicas():
                if replica.profile is not None:
                    kind = kind_name(replica.device_kind, record.spec)
                    self._there.setdefault((kind, replica.model, replica.variant), replica.profile)
        known = self._there.get((slice_class.kind, model, variant))
        stored = (self._holdings.stored(spec, model, variant) for spec in slice_class.specs)
        return known or next((each for each in stored if each is not None), None)

    def ask(self, model: ServedModel, places: Iterable[SliceClass], most: int) -> list[FindCapacity]:
        """Tables that are to be made; each is asked for once."""
        commands: list[FindCapacity] = []
        for slice_class in {each.kind: each for each in places}.values():
            for variant in self.of(model, slice_class):
                key = self._key(model, variant, slice_class.kind)
                profile = self._profile(slice_class, model.name, variant)
                if profile is None:
                    continue
                before = self._guesses.get(key)
                differs = before is not None and self._differs(before, model, profile)
                if differs or key not in self._asked:
                    self._guesses[key] = (profile, guess(profile, model))
                    self._asked.add(key)
                    commands.append(FindCapacity(model, variant, key[2], profile, most))
                elif before is not None:  # looked at, and as good as the one before
                    self._guesses[key] = (profile, before[1])
        return commands

    def found(self, asked: FindCapacity, capacity: Capacity) -> None:
        """A table is there; of an SLO that has changed meanwhile it says nothing of the new one."""
        self._found[self._key(asked.model, asked.variant, asked.kind)] = capacity

    def forget(self, models: Mapping[str, object]) -> None:
        """All models but these are gone."""
        self._asked = {key for key in self._asked if key[0] in models}
        self._guesses = {key: told for key, told in self._guesses.items() if key[0] in models}
        self._found = {key: told for key, told in self._found.items() if key[0] in models}

    def _key(self, model: ServedModel, variant: str, kind: str) -> Key:
        return model.name, variant, kind, model.slo_us, model.own.percentile

    def _guess(self, key: Key, model: ServedModel, profile: Profile) -> Capacity:
        told = self._guesses.get(key)
        if told is None:
            told = self._guesses[key] = (profile, guess(profile, model))
        return told[1]

    @staticmethod
    def _differs(before: tuple[Profile, Capacity], model: ServedModel, profile: Profile) -> bool:
        if before[0] is profile:
            return False
        was, now = before[1].rate(1), guess(profile, model).rate(1)
        return abs(now - was) > RENEWED * was
