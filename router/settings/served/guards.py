"""`guards:` of a served model: what the values of its outputs have to be, as Guards of their specs."""

from collections.abc import Mapping
from dataclasses import replace

from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, shown, unknown_name
from router.settings.values.schema import GuardSection
from serving.values.specs import Guard, ModelSpec

_FLOATS = ("FP16", "BF16", "FP32", "FP64")
_WHOLE = tuple(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))


def read_guards(findings: Findings, loc: Loc, said: Mapping[str, object], spec: ModelSpec) -> ModelSpec:
    """Return the model with the guards that the mapping at `loc` states, by output."""
    if not said:
        return spec
    datatypes = {output.name: output.datatype for output in spec.outputs}
    guards: dict[str, Guard] = {}
    for name in said:
        place = (*loc, name)
        if name not in datatypes:
            findings.add(place, unknown_name("unknown output", name, datatypes), at_key=True)
        elif datatypes[name] not in (*_FLOATS, *_WHOLE):
            what = f"{shown(name)} is {datatypes[name]}, whose values have no bounds"
            findings.add(place, f"{what}; expected an output of numbers", at_key=True)
        elif (section := findings.parse(GuardSection, place)) is not None and findings.sound(place):
            _check(findings, place, section, datatypes[name])
            guards[name] = Guard(section.finite, section.min, section.max)
    outputs = tuple(replace(output, guard=guards.get(output.name)) for output in spec.outputs)
    return replace(spec, outputs=outputs)


def _check(findings: Findings, loc: Loc, section: GuardSection, datatype: str) -> None:
    if section.finite and datatype in _WHOLE:
        findings.add((*loc, "finite"), f"{datatype} is finite anyway; expected min or max", at_key=True)
    elif section.min is not None and section.max is not None and section.min > section.max:
        findings.add((*loc, "max"), fault("below min", section.max, f"{section.min:.10g} or more"))
    elif not section.finite and section.min is None and section.max is None:
        findings.add(loc, "guards nothing; expected finite: true, min or max", at_key=True)
