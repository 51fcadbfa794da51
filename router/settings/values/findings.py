"""Gathers everything that is wrong with one document, so that a user sees it all at once."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import UnionType
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from router.settings.values.document import Document, Unreadable
from router.settings.values.fields import FAULT
from router.settings.values.foreign import FOREIGN
from router.settings.values.problems import (
    Loc,
    SettingsError,
    SettingsProblem,
    fault,
    shown,
    unknown_name,
)
from serving.runtime.slicing.inventory import Inventory, take_inventory
from serving.values.slice_specs import DeviceSpec

Schema = TypeVar("Schema", bound=BaseModel)

_FAULTS: Mapping[str, tuple[str, str]] = {
    "bool_type": ("not true or false", "true or false"),
    "dict_type": ("not a mapping", "keys and values (key: value)"),
    "finite_number": ("not a finite number", "a finite number"),
    "float_type": ("not a number", "a number"),
    "greater_than": ("too small", "a number above {gt}"),
    "greater_than_equal": ("too small", "{ge} or more"),
    "int_type": ("not a whole number", "a whole number"),
    "less_than": ("too large", "a number below {lt}"),
    "less_than_equal": ("too large", "{le} or less"),
    "list_type": ("not a list", "a list: [a, b], or lines that begin with '- '"),
    "literal_error": ("unknown value", "{expected}"),
    "model_type": ("not a mapping", "keys and values (key: value)"),
    "string_pattern_mismatch": ("not a name", "letters, digits, '.', '_' and '-', first a letter or digit"),
    "string_too_long": ("too long", "at most {max_length} characters"),
    "string_too_short": ("empty", "text"),
    "string_unicode": ("not text", "text of whole characters, not halves (\\ud800 to \\udfff)"),
    "string_type": ("not text", "text; quote what YAML would take for another type"),
    "too_long": ("too many", "at most {max_length} entries"),
    "too_short": ("empty", "at least {min_length} entry"),
}
"""pydantic's error types as what is wrong and what was expected (format strings over its context)."""


PROBLEMS_MAX = 50
"""Of one document. Reading ends there: 4 KB that repeat an entry by aliases took seconds to judge."""


class Findings:
    """The problems and warnings of one document, and of the files that it names. What adds a problem raises
    SettingsError where there are more than PROBLEMS_MAX."""

    def __init__(self, document: Document, rehearse: bool = False) -> None:
        self.document = document
        self.problems: list[SettingsProblem] = list(document.problems)
        self.warnings: list[SettingsProblem] = []
        self.devices: Sequence[DeviceSpec] = ()
        """Those of `devices:`, once they are read."""
        self.rehearse = rehearse
        """Whether every GPU that the document names is rehearsed (`--rehearse`)."""
        self.recut: bool | None = None
        """Whether the gateway may make MIG instances; None: as the document says."""
        self.entries: list[int] = []
        """Of each served model its entry in `models:`, if one entry serves several versions; else []."""
        self._faulty: set[Loc] = set()
        self._unreadable = {(problem.line, problem.column) for problem in document.problems}
        self._stop_if_many()

    @cached_property
    def inventory(self) -> Inventory:
        """The GPUs of this machine. Only a file with slices on GPUs asks for it."""
        return take_inventory()

    @cached_property
    def visible_gpus(self) -> str | None:
        """What CUDA_VISIBLE_DEVICES says; None if it is not set."""
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    def add(self, loc: Loc, message: str, *, at_key: bool = False) -> None:
        """Add an error of the value at `loc` (of its key: `at_key`)."""
        loc = self.place(loc)
        self._faulty.add(loc)
        problem = self.document.problem(loc, message, at_key=at_key)
        if problem not in self.problems:  # versions of one model may share it
            self.problems.append(problem)
            self._stop_if_many()

    def warn(self, loc: Loc, message: str) -> None:
        """Warn of a setting that works, but hardly as meant."""
        warning = self.document.problem(self.place(loc), message)
        if warning not in self.warnings:
            self.warnings.append(warning)

    def absorb(self, error: SettingsError) -> None:
        """Add the problems of another file that this document names."""
        self.problems.extend(error.problems)
        self._stop_if_many()

    def sound(self, loc: Loc) -> bool:
        """Return whether nothing wrong was found at `loc` or inside it."""
        loc = self.place(loc)
        return not any(faulty[: len(loc)] == loc for faulty in self._faulty)

    def place(self, loc: Loc) -> Loc:
        """Return the place in the file of ("models", the number of a served model, ...)."""
        if len(loc) > 1 and loc[0] == "models" and isinstance(loc[1], int) and loc[1] < len(self.entries):
            return ("models", self.entries[loc[1]], *loc[2:])
        return loc

    def stop_if_any(self) -> None:
        """Raise SettingsError with everything that was found wrong so far."""
        if self.problems:
            raise SettingsError(self.problems, self.warnings)

    def _stop_if_many(self) -> None:
        if len(self.problems) > PROBLEMS_MAX:
            end = max(self.document.value_places.values(), default=(1, 1))
            message = f"there are more than {PROBLEMS_MAX} problems; mend these first, the rest was not read"
            more = SettingsProblem(str(self.document.file), *end, "", message)
            raise SettingsError([*self.problems[:PROBLEMS_MAX], more], self.warnings)

    def parse(self, schema: type[Schema], loc: Loc = ()) -> Schema | None:
        """Return the section at `loc`. Its faults are recorded; what can be told without them is returned.

        A key with a fault takes its default there, so that the other keys can still be judged; None
        where a required key is faulty.
        """
        section = self.document.at(loc)
        try:
            return schema.model_validate({} if section is None and not loc else section)
        except ValidationError as error:
            faults = error.errors(include_url=False)
        for each in faults:
            self._record(schema, loc, each)
        if not isinstance(section, dict):
            return None
        faulty = {each["loc"][0] for each in faults if each["loc"]}
        try:
            return schema.model_validate({k: v for k, v in section.items() if k not in faulty})
        except ValidationError:
            return None

    def _record(self, schema: type[BaseModel], section: Loc, error: ErrorDetails) -> None:
        loc = (*section, *error["loc"])
        got = error["input"]
        unknown = error["type"] == "extra_forbidden"
        if isinstance(got, Unreadable) and not unknown:
            self._faulty.add(loc)  # its problem is in the document's own
        elif unknown:
            key = str(loc[-1])
            message = unknown_name("unknown key", key, _keys_at(schema, error["loc"][:-1]))
            if key in FOREIGN:
                message = f"unknown key; got {shown(key)}: {FOREIGN[key]}"
            self.add(loc, message, at_key=True)
        else:
            self.add(loc, _sentence(error), at_key=error["type"] == "missing")


def _sentence(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    if error["type"] == FAULT:
        return str(context["message"])
    if error["type"] == "missing":
        return "this key is required"
    what, expected = _FAULTS[error["type"]]
    bounds = {key: f"{each:.10g}" if isinstance(each, float) else each for key, each in context.items()}
    return fault(what, error["input"], expected.format(**bounds))


def _keys_at(schema: type[BaseModel], loc: Loc) -> list[str]:
    """Return the keys of the section that lies at `loc` inside a section of type `schema`."""
    annotation: Any = schema  # whatever stands behind a field's colon
    for part in loc:
        if isinstance(part, str):
            annotation = annotation.model_fields[part].annotation
        if isinstance(part, int) or isinstance(annotation, UnionType):  # list[X], X | None
            annotation = get_args(annotation)[0]
    return list(annotation.model_fields)
