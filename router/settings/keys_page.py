"""The keys of a settings file as one Markdown page: `penstock schema OF --markdown`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final

from router.settings.door.admin import AdminSettings
from router.settings.gateway import ServerSettings
from router.settings.json_schema import Json
from serving.values.specs import Limits, RecordingSpec

_UNITS: Final[Mapping[str, tuple[str, float]]] = {
    "_mb": ("_bytes", 1 << 20),
    "_kb": ("_bytes", 1 << 10),
    "_ms": ("_us", 1e3),
    "_s": ("_us", 1e6),
}
_DEFAULTS: Final[Mapping[str, object]] = {
    "LimitsSection": Limits(),
    "ServerSection": ServerSettings(),
    "AdminSection": AdminSettings(),
    "RecordingSection": RecordingSpec(folder=Path()),
}
"""Where the defaults are that a section leaves to the code behind it."""
_INTRODUCTION: Final = (
    "`[]` marks a key that is a list, and NAME stands for a name of yours.",
    "A value may be a variable of the environment: `${NAME}`, or `${NAME:-default}`.",
)
_HEAD: Final = ("| key | value | default | meaning |", "|---|---|---|---|")
_LIST_MAX: Final = 6
"""Words of a key that a cell shows; the meaning names what matters of longer lists."""


def page(schema: Json, of: str, file: str) -> str:
    """Return the page: the file's own keys first, then each section, in the order of the keys."""
    definitions: Mapping[str, Json] = schema["$defs"]
    lines = [f"# Keys of {file}", *_INTRODUCTION, f"`penstock schema {of} --markdown` writes this page.", ""]
    lines += _table("", schema, definitions)
    for path, name in _sections(schema, definitions):
        lines += ["", f"## `{path}`", *_table(name, definitions[name], definitions)]
    return "\n".join(lines) + "\n"


def _sections(
    root: Json, definitions: Mapping[str, Json], path: str = "", above: frozenset[str] = frozenset()
) -> Iterator[tuple[str, str]]:
    """Yield (path, name) of each section below a section."""
    for key, value in root["properties"].items():
        name, how = _section_of(value)
        if name and name not in above and "properties" in definitions[name]:
            here = f"{path}{key}{how}"
            yield here, name
            yield from _sections(definitions[name], definitions, f"{here}.", above | {name})


def _section_of(value: Json) -> tuple[str, str]:
    """Return the section that a key has, and how often: "" once, "[]" in a list, ".NAME" by name."""
    for each in _kinds(value):
        if "$ref" in each and not each["$ref"].endswith("/Variable"):
            return each["$ref"].rsplit("/", 1)[1], ""
        if each.get("type") == "array" and (name := _section_of(each.get("items", {}))[0]):
            return name, "[]"
        if isinstance(more := each.get("additionalProperties"), dict) and (name := _section_of(more)[0]):
            return name, ".NAME"
    return "", ""


def _kinds(value: Json) -> Iterator[Json]:
    """Yield the forms that a value may have."""
    for each in value.get("anyOf", (value,)):
        if "anyOf" in each:
            yield from _kinds(each)
        else:
            yield each


def _table(name: str, section: Json, definitions: Mapping[str, Json]) -> Iterator[str]:
    yield from _HEAD
    needed = section.get("required", ())
    for key, value in section["properties"].items():
        shown = "needed" if key in needed else _default(name, key, value)
        yield f"| `{key}` | {_form(value, definitions)} | {shown} | {value['description']} |"


def _default(name: str, key: str, value: Json) -> str:
    """Return the default as YAML has it; "" for none."""
    found: Any = value.get("default")
    if found is None:
        for each in value.get("anyOf", ()):
            found = each.get("default", found)
    if found is None:
        found = _coded(_DEFAULTS.get(name), key)
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, str | int | float) and found != "":
        return found if isinstance(found, str) else f"{found:.10g}"
    return ""


def _coded(defaults: object, key: str) -> object:
    """Return the default that the values behind a section have, in the key's unit."""
    if not is_dataclass(defaults):
        return None
    names = {each.name for each in fields(defaults)}
    if key in names:
        return getattr(defaults, key)
    for end, (other, factor) in _UNITS.items():
        if key.endswith(end) and (name := key.removesuffix(end) + other) in names:
            return float(getattr(defaults, name)) / factor
    return None


def _form(value: Json, definitions: Mapping[str, Json]) -> str:
    """Return what the value may be, in a few words."""
    words = (_word(each, definitions) for each in _kinds(value))
    return " or ".join(dict.fromkeys(filter(None, words))) or "text"


def _word(kind: Json, definitions: Mapping[str, Json]) -> str:
    if "$ref" in kind:
        name = kind["$ref"].rsplit("/", 1)[1]
        return "mapping" if "properties" in definitions[name] else ""
    if "enum" in kind:
        return _words(kind["enum"])
    if "const" in kind:
        return str(kind["const"])
    match kind.get("type"):
        case "boolean":
            return "true or false"
        case "integer" | "number":
            return _range(kind)
        case "string":
            return "text"
        case "array":
            return "list"
        case "object":
            return "mapping"
    return ""


def _words(names: Sequence[object]) -> str:
    shown = ", ".join(map(str, names[:_LIST_MAX]))
    return f"{shown}, ..." if len(names) > _LIST_MAX else shown


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


def _range(kind: Json) -> str:
    """Return the bounds of a number, for example `whole, 1 to 4096`."""
    what = "whole" if kind["type"] == "integer" else "number"
    low = kind.get("minimum", kind.get("exclusiveMinimum"))
    high = kind.get("maximum", kind.get("exclusiveMaximum"))
    above = "above " if "exclusiveMinimum" in kind else ""
    if low is None:
        return what
    if high is None:
        return f"{what}, {above}{_number(low)}" if above else f"{what}, from {_number(low)}"
    return f"{what}, {above}{_number(low)} to {_number(high)}"
