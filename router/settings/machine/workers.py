"""`workers:` as a WorkersSpec: what worker processes are given, and what each is held to."""

import os
import re
from collections.abc import Mapping, Sequence

from router.settings.values.findings import Findings
from router.settings.values.problems import fault, shown
from router.settings.values.schema import WorkersSection
from serving.runtime.environment import THREAD_POOLS, is_usual
from serving.values.slice_specs import ORPHAN_S, SliceSpec, WorkersSpec

_LOC = ("workers",)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_workers(findings: Findings, slices: Sequence[SliceSpec]) -> WorkersSpec:
    """Return the section, with the defaults for what it leaves out. `slices`: the slices with models that
    have to fit."""
    if not isinstance(findings.document.at(_LOC), dict):
        return WorkersSpec()
    section = findings.parse(WorkersSection, _LOC)
    if section is None:
        return WorkersSpec()
    variables = _read_environment(findings, section.environment)
    _check_inherited(findings, section.inherit, variables)
    if section.processes is not None and os.geteuid() == 0:
        message = "the kernel holds no process of root to it; serve as another user, or bound the container"
        findings.warn((*_LOC, "processes"), message)
    workers = WorkersSpec(
        environment=tuple(sorted(variables.items())),
        inherit=tuple(section.inherit),
        memory_bytes=round((section.memory_mb or 0) * (1 << 20)),
        open_files=section.open_files or 0,
        processes=section.processes or 0,
        spare=section.spare,
        orphan_s=ORPHAN_S if section.orphan_s is None else section.orphan_s,
    )
    if findings.sound(("slices",)):
        _check_fits(findings, workers, slices)
    return workers


def _check_fits(findings: Findings, workers: WorkersSpec, slices: Sequence[SliceSpec]) -> None:
    """Check that the models of every slice with its own `memory_mb` fit the bound of a worker."""
    most = max((each.memory_bytes for each in slices), default=0)
    if workers.memory_bytes and most >= workers.memory_bytes:
        own = f"the {most / (1 << 20):.10g} MB that a slice's models may hold (memory_mb)"
        bound_mb = workers.memory_bytes / (1 << 20)
        findings.add((*_LOC, "memory_mb"), fault("too small for a worker", bound_mb, f"more than {own}"))


def _read_environment(findings: Findings, said: Mapping[str, object]) -> dict[str, str]:
    found = {}
    for name, value in said.items():
        loc = (*_LOC, "environment", name)
        if not _NAME.fullmatch(name):
            expected = "letters, digits and '_', first no digit"
            findings.add(loc, fault("not the name of a variable", name, expected), at_key=True)
        elif name in THREAD_POOLS:
            what = "threads of a slice are its own"
            findings.add(loc, fault(what, name, "`threads` in `slices:`"), at_key=True)
        elif not isinstance(value, str) or "\0" in value:
            expected = "text; quote what YAML would take for another type"
            findings.add(loc, fault("not text", value, expected))
        else:
            found[name] = value
    return found


def _check_inherited(findings: Findings, names: Sequence[str], variables: Mapping[str, str]) -> None:
    for place, name in enumerate(names):
        loc = (*_LOC, "inherit", place)
        if name in variables:
            findings.add(loc, f"`environment` sets {shown(name)} already; expected it in one of them")
        elif name not in os.environ:
            findings.warn(loc, f"the environment has no {shown(name)}: workers get none")
        elif is_usual(name):
            findings.warn(loc, f"workers get {shown(name)} anyway")
