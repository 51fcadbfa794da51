"""`version_policy:` as Triton has it: which of a model's versions are served.

It also takes Triton's long forms: `latest: {num_versions: 2}`, `specific: {versions: [1, 3]}`, `all: {}`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from router.settings.values.fields import refuse
from router.settings.values.problems import fault, shown

ALL: Final = "all"
EXPECTED: Final = "all, {latest: 2} or {specific: [1, 3]}"
VERSION_MAX: Final = 999_999_999
_LONG: Final = {"latest": "num_versions", "specific": "versions"}
"""The one key of each long form."""


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """`latest`: so many of the highest versions; None for those of `specific`, or for all if that is ()."""

    latest: int | None = 1
    specific: tuple[int, ...] = ()

    def choose(self, there: Sequence[int]) -> tuple[int, ...]:
        """Return the versions to serve of those that there are, both ascending."""
        if self.latest is not None:
            return tuple(there[-self.latest :])
        return tuple(each for each in there if not self.specific or each in self.specific)


def read_policy(value: object) -> VersionPolicy:
    """Return the policy that a settings file states; a validator of pydantic. Raises ValueError."""
    if value == ALL:
        return VersionPolicy(None)
    if not isinstance(value, dict) or len(value) != 1:
        raise refuse(fault("not a version policy", value, EXPECTED))
    ((kind, stated),) = value.items()
    if isinstance(stated, dict) and (not stated or [*stated] == [_LONG.get(kind)]):
        stated = next(iter(stated.values()), None)
    if kind == ALL and stated is None:
        return VersionPolicy(None)
    if kind == "latest" and _is_version(stated):
        return VersionPolicy(int(stated))
    if kind == "specific" and isinstance(stated, list) and stated and all(map(_is_version, stated)):
        return VersionPolicy(None, tuple(sorted({int(each) for each in stated})))
    raise refuse(fault("not a version policy", value, EXPECTED))


def _is_version(value: Any) -> bool:
    """Return whether it is a number from 1; JSON of protobuf has large numbers as strings of digits."""
    digits = (
        isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(VERSION_MAX))
    )
    return (digits or type(value) is int) and 1 <= int(value) <= VERSION_MAX


def missing(policy: VersionPolicy, there: Sequence[int]) -> str:
    """Return what is wrong with a policy that names versions without a folder; "" where nothing is."""
    absent = [each for each in policy.specific if each not in there]
    if not absent:
        return ""
    known = (
        f"there are {', '.join(map(str, there))}" if there else "the model's folder has no numbered folder"
    )
    return f"no version {shown(absent[0])}; {known}"
