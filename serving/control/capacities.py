"""What replicas carry, by variant and kind of slice: guessed from profiles, until a job has simulated it."""

from collections.abc import Callable, Iterable, Mapping

from serving.control.commands import FindCapacity
from serving.control.holdings import Holdings
from serving.policy.scaling.capacity import Capacity
from serving.policy.scaling.guess import guess
from serving.profile.curve import Profile
from serving.specs import ServedModel, Share, SliceSpec

RENEWED = 0.1
"""By how much one replica's guess differs between two profiles before a table is made anew: a profile is
refined every second that its slice is idle."""

Key = tuple[str, str, str, int, float]
"""Model, variant, kind of slice, SLO and percentile: what a table holds for."""


class Capacities:
    """Of all scaled models."""

    def __init__(self, holdings: Holdings, kind_of: Callable[[SliceSpec], str]) -> None:
        self._holdings = holdings
        self._kind_of = kind_of
        self._guesses: dict[Key, tuple[Profile, Capacity]] = {}
        self._found: dict[Key, Capacity] = {}
        self._asked: set[Key] = set()
        self._kinds: dict[SliceSpec, str] = {}
        self._looked_up: dict[tuple[str, str, Share], dict[str, Capacity]] = {}
        self._there: dict[tuple[str, Share, str, str], Profile] | None = None

    def kind(self, spec: SliceSpec) -> str:
        """The name of slices that compute alike."""
        known = self._kinds.get(spec)
        if known is None:
            known = self._kinds[spec] = f"{self._kind_of(spec)} {spec.share}"
        return known

    def renew(self) -> None:
        """Something may have been measured since what was looked up last."""
        self._looked_up.clear()
        self._there = None

    def of(self, model: ServedModel, spec: SliceSpec) -> dict[str, Capacity]:
        """By variant that may answer, the most accurate first, on slices like that; those that nobody has
        measured are left out. The same until `renew`: who decides asks for each of many slices."""
        key = (model.name, spec.device, spec.share)
        if key not in self._looked_up:
            self._looked_up[key] = self._look_up(model, spec)
        return self._looked_up[key]

    def _look_up(self, model: ServedModel, spec: SliceSpec) -> dict[str, Capacity]:
        found: dict[str, Capacity] = {}
        for variant in model.own.variants:
            profile = self._profile(spec, model.name, variant)
            if profile is not None:
                key = self._key(model, variant, self.kind(spec))
                found[variant] = self._found.get(key) or self._guess(key, model, profile)
        return found

    def _profile(self, spec: SliceSpec, model: str, variant: str) -> Profile | None:
        if self._there is None:
            self._there = self._holdings.there()
        known = self._there.get((spec.device, spec.share, model, variant))
        return known or self._holdings.stored(spec, model, variant)

    def ask(self, model: ServedModel, specs: Iterable[SliceSpec], most: int) -> list[FindCapacity]:
        """Tables that are to be made; each is asked for once."""
        commands: list[FindCapacity] = []
        for spec in {self.kind(each): each for each in specs}.values():
            for variant in self.of(model, spec):
                key = self._key(model, variant, self.kind(spec))
                profile = self._profile(spec, model.name, variant)
                if profile is None:
                    continue
                before = self._guesses.get(key)
                if key not in self._asked or (before is not None and self._differs(before, model, profile)):
                    self._guesses[key] = (profile, guess(profile, model))
                    self._asked.add(key)
                    commands.append(FindCapacity(model, variant, key[2], profile, most))
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
