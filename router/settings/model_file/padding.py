"""What a row's size is, and how rows of unlike size share a batch: `size_hint`, `pad` and `mask`."""

from router.settings.model_file.schema import InputSection, ModelFile
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, shown, unknown_name
from serving.values.specs import SizeHint
from serving.values.tensor import ANY, ITEM_BYTES

BYTES, VALUES = "bytes", "values"


def hint_of(model: ModelFile) -> SizeHint | None:
    """Return how a row's size is found, None where all rows cost the same."""
    hint = model.size_hint
    if hint is None:
        return None
    types = {each.name: each.datatype for each in model.inputs}
    unit = hint.unit or (BYTES if types[hint.input] == "BYTES" else VALUES)
    return SizeHint(hint.input, tuple(hint.buckets), unit)


def check_hint(findings: Findings, model: ModelFile) -> None:
    """Add what is wrong with `size_hint:`."""
    hint = model.size_hint
    if hint is None:
        return
    loc = ("size_hint", "input")
    inputs = {each.name: each for each in model.inputs}
    found = inputs.get(hint.input)
    if found is None:
        findings.add(loc, unknown_name("unknown input", hint.input, inputs))
    elif found.optional or found.mask:
        told = "is optional" if found.optional else "is a mask"
        findings.add(loc, f"{shown(hint.input)} {told}; expected an input that every request has")
    elif found.datatype == ANY:
        findings.add(loc, f"{shown(hint.input)} has any datatype; expected an input with one")
    elif (hint.unit == VALUES) == (found.datatype == "BYTES") and hint.unit is not None:
        expected = "bytes or text" if found.datatype == "BYTES" else VALUES
        message = f"{shown(hint.input)} is {found.datatype}; got {hint.unit}, expected unit: {expected}"
        findings.add(("size_hint", "unit"), message)


def check_padding(findings: Findings, model: ModelFile) -> None:
    """Add what is wrong with `pad` and `mask`, and with outputs that would be cut."""
    filled = [each for each in model.inputs if each.pad is not None and not each.mask]
    padded = {name for each in filled for name in each.names if name}
    for index, each in enumerate(model.inputs):
        _check_input(findings, ("inputs", index), each, padded)
    if not padded:
        return
    for index, output in enumerate(model.outputs):
        if output.datatype in ("BYTES", ANY) and padded & {*output.names}:
            message = f"answers are cut to each row; got {output.datatype} of a padded size"
            findings.add(("outputs", index, "shape"), f"{message}, expected -1 and numbers")
    hint = model.size_hint
    stated = [each.name for each in filled]
    if hint is None or (hint.input not in stated and hint.input in {each.name for each in model.inputs}):
        expected = f"expected size_hint: {{input: {stated[0]}, buckets: [...]}}, which says what a row costs"
        findings.add(("inputs",), f"rows of unlike size share batches; {expected}", at_key=True)
    told = "with `pad` rows of unlike size share a batch"
    if model.sequence is not None:
        findings.add(("sequence",), f"{told}, and a sequence keeps its row; expected no sequence")
    if model.batch_max == 0:
        findings.add(("batch_max",), f"{told}; got 0, no batches, expected 1 or more")


def _check_input(findings: Findings, loc: Loc, each: InputSection, padded: set[str]) -> None:
    names = {name for name in each.names if name}
    numbers = each.datatype not in ("BYTES", ANY)
    if each.mask:
        if not numbers or not names or names - padded or -1 in _unnamed(each)[1:]:
            expected = (
                "expected numbers, or BOOL, and names that inputs with `pad` have, such as [-1, tokens]"
            )
            findings.add((*loc, "mask"), f"no padding to say of it; {expected}", at_key=True)
        elif each.pad not in (None, 0):
            findings.add(
                (*loc, "pad"), f"a mask is 0 where a row is filled up; got {each.pad:g}, expected no pad"
            )
    elif each.pad is not None:
        if numbers and not _holds(each.datatype, each.pad):
            message = f"{each.datatype} has no such value; got {each.pad:g}, expected one that it holds"
            findings.add((*loc, "pad"), message)
        if not numbers or not names or -1 in _unnamed(each)[1:]:
            expected = "expected numbers, with a name for each free size, such as shape: [-1, tokens]"
            findings.add((*loc, "pad"), f"nothing to fill up; {expected}", at_key=True)
    elif names & padded:
        message = f"rows have unlike {' and '.join(sorted(names & padded))}, which other inputs fill up"
        findings.add((*loc, "shape"), f"{message}; expected `pad` here too, or `mask: true`")


def _holds(datatype: str, value: float) -> bool:
    if datatype.startswith(("FP", "BF")):
        return True
    if datatype == "BOOL":
        return value in (0, 1)
    bits = 8 * ITEM_BYTES[datatype]
    low, high = (0, 1 << bits) if datatype.startswith("U") else (-(1 << bits - 1), 1 << bits - 1)
    return value == int(value) and low <= value < high


def _unnamed(each: InputSection) -> list[int]:
    return [0 if name else size for size, name in zip(each.sizes, each.names, strict=True)]
