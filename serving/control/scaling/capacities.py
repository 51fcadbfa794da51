"""What replicas carry, by variant and kind of slice: a guess from profiles, until a job has simulated it."""

from collections.abc import Iterable, Mapping

from serving.control.commands import FindCapacity
from serving.control.scaling.topology import SliceClass, kind_name
from serving.control.state.observed import ObservedState
from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.carried.guess import guess
from serving.profile.curve import Profile
from serving.values.specs import ServedModel

RENEWED = 0.1
"""The least change of one replica's guess between two profiles that makes a table again.

A profile is refined every second that its slice is idle.
"""

Key = tuple[str, str, str, int, float]
"""Model, variant, kind of slice, SLO and percentile: a table holds for these."""


class Capacities:
    """The capacities of all scaled models."""

    def __init__(self, observed: ObservedState) -> None:
        self._observed = observed
        self._guesses: dict[Key, tuple[Profile, Capacity]] = {}
        self._found: dict[Key, Capacity] = {}
        self._asked: set[Key] = set()
        self._looked_up: dict[tuple[str, str], dict[str, Capacity]] = {}
        self._there: dict[tuple[str, str, str], Profile] | None = None  # by kind, model and variant

    def renew(self) -> None:
        """Forget what was looked up, because measurements may have changed it."""
        self._looked_up.clear()
        self._there = None

    def of(self, model: ServedModel, slice_class: SliceClass) -> dict[str, Capacity]:
        """Return a model's capacity on such slices by variant that may answer, the most accurate first.

        Variants without a profile are left out. The result stays the same until `renew`.
        """
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
            for record, replica in self._observed.replicas():
                if replica.profile is not None:
                    kind = kind_name(replica.device_kind, record.spec)
                    self._there.setdefault((kind, replica.model, replica.variant), replica.profile)
        known = self._there.get((slice_class.kind, model, variant))
        stored = (self._observed.stored(spec, model, variant) for spec in slice_class.specs)
        return known or next((each for each in stored if each is not None), None)

    def ask(self, model: ServedModel, places: Iterable[SliceClass], most: int) -> list[FindCapacity]:
        """Return commands for missing tables; each table is asked for once."""
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
                elif before is not None:  # the new profile agrees with the old one
                    self._guesses[key] = (profile, before[1])
        return commands

    def found(self, asked: FindCapacity, capacity: Capacity) -> None:
        """Keep a table. If the SLO has changed since the command, the table does not hold for the new one."""
        self._found[self._key(asked.model, asked.variant, asked.kind)] = capacity

    def forget(self, models: Mapping[str, object]) -> None:
        """Forget all models but these."""
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
