"""`labels:` of an output in a model.yaml: what each value of a row stands for, as a list or as a file."""

from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Annotated, Final

from pydantic import PlainValidator

from router.settings.values.fields import refuse
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, shown
from serving.values.specs import Labels
from serving.values.tensor import ANY

FILE_BYTES_MAX: Final = 4 << 20
LABEL_CHARACTERS_MAX: Final = 256

_UNLABELLED: Final = ("BOOL", "BYTES", ANY)


def _check_labels(value: object) -> object:
    if isinstance(value, str) and 1 <= len(value) <= 4096:
        return value
    if isinstance(value, list) and value and all(type(each) is str for each in value):
        return tuple(value)
    raise refuse(
        fault("not labels", value, "a file such as labels.txt, or a list of texts such as [cat, dog]")
    )


LabelsKey = Annotated[str | tuple[str, ...] | None, PlainValidator(_check_labels)]


def read_labels(
    findings: Findings,
    loc: Loc,
    stated: str | tuple[str, ...],
    tensor: tuple[str, Sequence[int]],
    find: Callable[[str], Path],
) -> Labels | None:
    """Return the labels that the key at `loc` states; None where they are faulty. `tensor`: the datatype and
    the shape of its output; `find`: returns where a file of the model is."""
    names = _read_file(findings, loc, find(stated)) if isinstance(stated, str) else stated
    if names is None:
        return None
    datatype, shape = tensor
    count = prod(shape[1:])
    too_long = next((name for name in names if len(name) > LABEL_CHARACTERS_MAX), None)
    if datatype in _UNLABELLED:
        findings.add(
            loc, f"{datatype} has no classes; expected labels only of an output of numbers", at_key=True
        )
    elif -1 in shape[1:]:
        what = f"the shape {list(shape)} does not say how many values a row has"
        findings.add(loc, f"{what}; expected labels only where it does", at_key=True)
    elif too_long is not None:
        expected = f"at most {LABEL_CHARACTERS_MAX} characters"
        findings.add(loc, fault("a label that is too long", shown(too_long[:20]), expected))
    elif len(names) != count:
        expected = f"one for each of the {count} values of a row"
        findings.add(loc, fault("another number of labels", len(names), expected))
    else:
        return Labels(names, stated if isinstance(stated, str) else "")
    return None


def _read_file(findings: Findings, loc: Loc, file: Path) -> tuple[str, ...] | None:
    """Return the lines of the file: one label each."""
    try:
        with file.open("rb") as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ValueError(f"it has more than {FILE_BYTES_MAX >> 20} MB")
        text = content.decode("utf-8-sig")
    except OSError as error:
        findings.add(loc, f"{shown(file.name)} cannot be read: {error.strerror}; expected one label a line")
        return None
    except ValueError as error:  # no UTF-8, too
        findings.add(loc, f"{shown(file.name)} cannot be read: {error}; expected one label a line, in UTF-8")
        return None
    return tuple(line.strip() for line in text.rstrip().splitlines())
