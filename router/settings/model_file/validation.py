"""What variants said of validation rows, as a model's build wrote it: `{"labels": [7, 2], "predictions":
{"cnn": [7, 3]}}`, numbers of classes, of each variant as many as there are labels."""

from collections.abc import Collection
from pathlib import Path

import orjson

from router.settings.values.document import FILE_BYTES_MAX, Document, read_document
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, SettingsError, SettingsProblem, fault, unknown_name
from serving.values.specs import Validation

VALIDATION_BYTES_MAX = 64 << 20

_LABELS, _PREDICTIONS = _KEYS = ("labels", "predictions")


def read_validation(findings: Findings, file: Path, variants: Collection[str]) -> Validation | None:
    """Return the file's content; None where it is faulty, with what is wrong with it in `findings`."""
    try:
        document, size_bytes = _parse(file)
        measured = Findings(document)
        found = _read(measured, variants)
        if (
            measured.problems and size_bytes <= FILE_BYTES_MAX
        ):  # for its places, which the parser does not know
            measured = Findings(read_document(file))
            found = _read(measured, variants)
    except SettingsError as error:
        findings.absorb(error)
        return None
    findings.problems.extend(measured.problems)
    return None if measured.problems else found


def _parse(file: Path) -> tuple[Document, int]:
    """Return (the content, without places; its length). YAML's parser would take seconds for thousands of
    rows."""
    try:
        with file.open("rb") as stream:
            content = stream.read(VALIDATION_BYTES_MAX + 1)
        if len(content) > VALIDATION_BYTES_MAX:
            message = f"the file is too large; expected at most {VALIDATION_BYTES_MAX >> 20} MB"
            raise SettingsError([SettingsProblem(str(file), 1, 1, "", message)])
        return Document(file, orjson.loads(content), {}, {}, ()), len(content)
    except orjson.JSONDecodeError as error:
        message = f"not valid JSON: {error.msg}"
        raise SettingsError([SettingsProblem(str(file), error.lineno, error.colno, "", message)]) from None
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise SettingsError([SettingsProblem(str(file), 1, 1, "", message)]) from None


def _read(measured: Findings, variants: Collection[str]) -> Validation | None:
    table = measured.document.value
    if not isinstance(table, dict):
        measured.add((), fault("not a mapping", table, "labels and predictions"))
        return None
    for key in table:
        if key not in _KEYS:
            measured.add((key,), unknown_name("unknown key", key, _KEYS), at_key=True)
    for key in _KEYS:
        if key not in table:
            measured.add((key,), "this key is required", at_key=True)
    if measured.problems:
        return None
    labels = _classes(measured, (_LABELS,), None)
    named = table[_PREDICTIONS]
    if not isinstance(named, dict) or not named:
        measured.add(
            (_PREDICTIONS,), fault("no predictions", named, "variants and the classes that each named")
        )
        return None
    for name in named:
        if name not in variants:
            loc = (_PREDICTIONS, name)
            measured.add(loc, unknown_name("unknown variant", name, variants), at_key=True)
    count = len(labels) if measured.sound((_LABELS,)) else None
    predictions = tuple((name, _classes(measured, (_PREDICTIONS, name), count)) for name in named)
    return Validation(labels, predictions)


def _classes(measured: Findings, loc: Loc, count: int | None) -> tuple[int, ...]:
    """Return the list at `loc`, of `count` numbers, or of any number but none of them."""
    values = measured.document.at(loc)
    if not isinstance(values, list) or not values:
        measured.add(loc, fault("not a list of classes", values, "numbers of classes, such as [7, 2]"))
        return ()
    if count is not None and len(values) != count:
        expected = f"{count} numbers, one for each label"
        measured.add(loc, fault("of another length than the labels", values, expected))
    wrong = next((at for at, value in enumerate(values) if type(value) is not int or value < 0), None)
    if wrong is not None:
        measured.add((*loc, wrong), fault("not a class", values[wrong], "a whole number of 0 or more"))
        return ()
    return tuple(values)
