"""Which versions of a model an entry of `models:` serves, and which of them answers for the model's name.

Without a rollout that is the highest. With one, the highest is the candidate of the version before, until it
is promoted: what was promoted, and what was rolled back, is kept beside penstock.yaml.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from router.settings.model_file.folders import MODEL_FILE, locate, stated_in, versions_in
from router.settings.model_file.models import load_model
from router.settings.served.ends import Ends
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, SettingsError, SettingsProblem
from router.settings.values.schema import ServedSection
from router.settings.values.versions import VersionPolicy, missing, read_policy
from serving.policy.rollouts.course import CourseState
from serving.values.specs import ModelSpec
from serving.values.versions import version_name

PROMOTED: Final = CourseState.PROMOTED.value


@dataclass(frozen=True, slots=True)
class ServedVersions:
    """`present` answers requests that name no version: 0 for a model without versions. `others` answer only
    requests that name them. `candidate` is one of `others`, or 0; `earlier` are those that it may replace."""

    home: Path
    present: int = 0
    others: tuple[int, ...] = ()
    candidate: int = 0
    earlier: tuple[int, ...] = ()


def choose_versions(
    findings: Findings, loc: Loc, section: ServedSection, asked: VersionPolicy | None = None
) -> ServedVersions:
    """Return the versions that the entry at `loc` serves, before any rollout of them has ended. `asked`: the
    policy of a client's load."""
    folder = findings.document.file.parent / section.path
    found = locate(folder)
    there = versions_in(found.home)
    alone = section.rollout is not None and section.rollout.of is None
    if not there or found.home != folder:
        if asked is not None and asked.specific not in ((), (found.version or 1,)):
            findings.add(loc, missing(asked, (found.version or 1,)))
        if section.version_policy is not None:
            what = "a version is named" if there else f"{folder} has no versions, which are numbered folders"
            findings.add((*loc, "version_policy"), f"{what}; expected no such key", at_key=True)
        if alone:
            message = "no model to replace; expected of: and a model, or a folder with several versions"
            findings.add((*loc, "rollout"), message, at_key=True)
        return ServedVersions(found.home, found.version)
    policy = asked or section.version_policy or stated_policy(found.home)
    if why := missing(policy, there):
        if asked or section.version_policy is not None:
            findings.add((*loc, "version_policy"), why)
        return ServedVersions(found.home, there[-1])  # whoever reads model.yaml says why else
    chosen = policy.choose(there)
    earlier = tuple(each for each in policy.specific or there if each < chosen[-1])
    if not alone or not earlier:
        return ServedVersions(found.home, chosen[-1], chosen[:-1])
    return ServedVersions(found.home, earlier[-1], chosen, chosen[-1], earlier)


def stated_policy(home: Path) -> VersionPolicy:
    """Return the policy of the model.yaml in `home`; the default where it states none, or is faulty."""
    stated = stated_in(home).policy
    try:
        return read_policy(stated) if stated is not None else VersionPolicy()
    except ValueError:  # load_model says why
        return VersionPolicy()


def settle(versions: ServedVersions, name: str, ends: Ends, revision: Callable[[int], str]) -> ServedVersions:
    """Return the versions as rollouts have left them. `revision`: returns the digest of a version's files.

    A candidate that was promoted is the present version, unless its files are others now. The present version
    is the last one that was promoted; without one, the highest that never was a candidate.
    """
    top = versions.candidate
    if not top:
        return versions
    if _state(ends, name, top) == PROMOTED and ends[version_name(name, top)]["revision"] == revision(top):
        others = tuple(each for each in versions.others if each != top)
        return replace(versions, present=top, others=others, candidate=0)
    promoted = [each for each in versions.earlier if _state(ends, name, each) == PROMOTED]
    never_tried = [each for each in versions.earlier if not _state(ends, name, each)]
    present = max(promoted or never_tried or versions.earlier)
    others = tuple(each for each in versions.others if each != present)
    return replace(versions, present=present, others=others)


def _state(ends: Ends, name: str, version: int) -> str:
    return ends.get(version_name(name, version), {}).get("state", "")


def load_versions(folder: Path, asked: VersionPolicy | None = None) -> list[ModelSpec]:
    """Return the versions of a model that no entry of `models:` serves, as its model.yaml says, or a client's
    load (`asked`); first the one of its own name. SettingsError with all that is wrong with one of them."""
    there = versions_in(folder)
    policy = asked or stated_policy(folder)
    if asked is not None and (why := missing(asked, there or (1,))):
        raise SettingsError([SettingsProblem(str(folder / MODEL_FILE), 1, 1, "version_policy", why)])
    if not there or missing(policy, there):  # what is missing, load_model says
        return [load_model(folder)]
    *others, present = policy.choose(there)
    beside = [load_model(folder, each) for each in others]
    return [
        load_model(folder, present),
        *(replace(each, name=version_name(each.name, each.version)) for each in beside),
    ]
