"""The profiles of one variant on one kind of device, over its shares: what a profile file holds."""

from collections.abc import Iterable
from dataclasses import dataclass

from serving.profile.curve import Profile
from serving.values.slice_specs import Share


@dataclass(frozen=True, slots=True)
class ProfileSet:
    """At most one profile for each share, ascending."""

    model: str
    variant: str
    device_kind: str
    profiles: tuple[Profile, ...]

    def of(self, share: Share) -> Profile | None:
        """Return the profile of that share; None where there is none."""
        return next((profile for profile in self.profiles if profile.share == share), None)

    def shares(self, kind: str) -> tuple[Share, ...]:
        """Return the measured shares of that kind, ascending, each once."""
        return tuple(dict.fromkeys(each.share for each in self.profiles if each.share.kind == kind))

    def joined(self, others: Iterable[Profile]) -> "ProfileSet":
        """Return the set with `others` in the place of profiles of the same share that are not better."""
        chosen = {each.share: each for each in self.profiles}
        for each in others:
            if each.share not in chosen or _worth(each) >= _worth(chosen[each.share]):
                chosen[each.share] = each
        ordered = tuple(chosen[share] for share in sorted(chosen))
        return ProfileSet(self.model, self.variant, self.device_kind, ordered)


def _worth(profile: Profile) -> tuple[bool, bool, str]:
    """Return an order: what is measured, then what is imported, then what is predicted; then the newest."""
    return profile.measured, not profile.predicted, profile.origin.measured
