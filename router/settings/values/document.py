"""A YAML file as plain values, each of which knows its line and column.

The values are built from PyYAML's composed nodes and not by its constructor: nodes carry marks, and
what an alias repeats can be counted, so a small file cannot unfold into a large value.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from router.settings.values.problems import Loc, SettingsError, SettingsProblem, dotted, nearest_path, shown
from router.settings.values.variables import VariableError, expanded, is_variable

FILE_BYTES_MAX = 256 << 10  # PyYAML reads about 100 KB a second: a larger file is a mistake
DEPTH_MAX = 32  # our deepest key has depth 5; an alias that holds itself ends here
VALUE_COUNT_MAX = 20_000  # after aliases are unfolded

Place = tuple[int, int]  # line and column, from 1

_TAG = "tag:yaml.org,2002:"
_LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # those that PyYAML counts


class Unreadable:
    """Stands in for a value with a problem that is already reported; it is of no type that a key takes."""


@dataclass(frozen=True, slots=True)
class Document:
    """`value` is made of dict, list, str, bool, int, float and None; `problems` did not stop reading it."""

    file: Path
    value: object
    value_places: Mapping[Loc, Place]
    key_places: Mapping[Loc, Place]
    problems: tuple[SettingsProblem, ...]

    def at(self, loc: Loc) -> object:
        """Return the value at `loc`; None where there is none."""
        value = self.value
        for part in loc:
            if isinstance(part, str) and isinstance(value, dict):
                value = value.get(part)
            elif isinstance(part, int) and isinstance(value, list) and part < len(value):
                value = value[part]
            else:
                return None
        return value

    def problem(self, loc: Loc, message: str, *, at_key: bool = False) -> SettingsProblem:
        """Return a problem of the value (or of its key) at `loc`, placed at its nearest ancestor that
        exists."""
        places = self.key_places if at_key else self.value_places
        for length in range(len(loc), -1, -1):
            if place := places.get(loc[:length]) or self.value_places.get(loc[:length]):
                break
        else:
            place = (1, 1)
        return SettingsProblem(str(self.file), *place, dotted(loc), message)


def read_document(file: Path, *, may_be_empty: bool = False) -> Document:
    """Return the file's values and places. SettingsError where it is no readable, sane YAML document; an
    empty one that `may_be_empty` has the value None."""
    text = _read_text(file)
    lines = _LINE_BREAK.split(text)
    node = _compose(file, text, lines)
    if node is None and may_be_empty:
        return Document(file, None, {}, {}, ())
    if node is None:
        raise SettingsError(
            [SettingsProblem(str(file), 1, 1, "", "the file is empty; expected keys and values")]
        )
    values = _Values(file, lines)
    value = values.read(node, ())
    return Document(file, value, values.value_places, values.key_places, tuple(values.problems))


def _read_text(file: Path) -> str:
    try:
        with open(file, "rb") as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise _unusable(file, f"the file is too large; expected at most {FILE_BYTES_MAX >> 10} KB")
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        near = nearest_path(file)
        raise _unusable(file, "no such file" + (f" (did you mean {near}?)" if near else "")) from None
    except IsADirectoryError:
        raise _unusable(file, "this is a folder; expected a YAML file") from None
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8", "replace")
        lines = _LINE_BREAK.split(before)
        message = (
            f"not UTF-8 text: byte 0x{error.object[error.start]:02x} cannot be read; save the file as UTF-8"
        )
        place = len(lines), len(lines[-1]) + 1
        raise SettingsError([SettingsProblem(str(file), *place, "", message)]) from None
    except OSError as error:
        raise _unusable(file, f"cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL or a lone surrogate in the name
        raise _unusable(file, "no file can have this name") from None


def _unusable(file: Path, message: str) -> SettingsError:
    return SettingsError([SettingsProblem(str(file), 1, 1, "", message)])


_CLOSING: Final = {"{": "}", "[": "]", "'": "another '", '"': 'another "'}


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with a bound on depth, which it would otherwise spend stack frames on."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise yaml.MarkedYAMLError(
                problem=f"values are nested deeper than {DEPTH_MAX} levels",
                problem_mark=self.peek_event().start_mark,  # type: ignore[no-untyped-call]
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


# YAML 1.2 and JSON write 1e-05 for a float; PyYAML's YAML 1.1 takes it for text without this.
_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


def _compose(file: Path, text: str, lines: list[str]) -> yaml.Node | None:
    mark: yaml.Mark | None = None
    place = (1, 1)
    try:
        # The reader rejects unprintable characters on creation.
        loader = _Loader(text)
        try:
            return loader.get_single_node()
        except (ValueError, OverflowError):  # "\UFFFFFFFF" is no character
            mark = loader.get_mark()
            sentence = "an escape like \\U names no character"
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        before = _LINE_BREAK.split(text[: error.position])
        place = len(before), len(before[-1]) + 1
        sentence = f"the character {text[error.position]!a} is not allowed in YAML"
    except yaml.MarkedYAMLError as error:
        mark, sentence = _unclosed(error, text) or (
            error.problem_mark or error.context_mark,
            _syntax_sentence(error),
        )
    if mark:
        place = _place(mark, lines)
        if text[max(mark.index - 1, 0) : mark.index + 1] == "${":
            sentence = 'inside {...} and [...] a variable needs quotes: "${NAME}"'
    raise SettingsError([SettingsProblem(str(file), *place, "", f"not valid YAML: {sentence}")])


def _unclosed(error: yaml.MarkedYAMLError, text: str) -> tuple[yaml.Mark, str] | None:
    """Return the place and the text of a bracket or quote that is still open on a later line, or at the end.
    The place is where it was opened, as the place where PyYAML gave up is often far below. None if it is
    another fault."""
    opened, found = error.context_mark, error.problem_mark
    within = (error.context or "").startswith(("while parsing a flow", "while scanning a quoted"))
    if not within or opened is None or found is None:
        return None
    at_end = "end>" in (error.problem or "") or "end of stream" in (error.problem or "")
    if found.line == opened.line and not at_end:
        return None
    sign = text[opened.index : opened.index + 1]
    if sign not in _CLOSING:  # `"a": ` at the end of a flow mapping: there is a value still to come
        return None
    until = "the end of the file" if at_end else f"line {found.line + 1}"
    return opened, f"this {sign} is not closed; expected {_CLOSING[sign]} before {until}"


def _syntax_sentence(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or error.context or "it cannot be read"
    if "\\t" in problem:
        return "a tab cannot indent; use spaces"
    if problem.startswith("mapping values are not allowed"):
        return "a ':' stands where no key can; check the indentation, and quote text that holds ': '"
    if problem.startswith("could not find expected ':'"):
        return "a key without its ':'; write `key: value`"
    if problem.startswith("found undefined alias"):
        return f"{problem}; define it earlier with &"
    if "<block end>" in problem:
        return "this does not continue the lines above; check indentation, '- ' and quotes"
    if "found" in problem:
        return f"{problem}; check brackets, quotes and indentation"
    return problem


def _place(mark: yaml.Mark, lines: list[str]) -> Place:
    """Return a mark counted from 1; the end of a file that ends with a line break lies on its last line."""
    if mark.line + 1 >= len(lines) > 1 and not lines[-1]:
        return len(lines) - 1, len(lines[-2]) + 1
    line = min(mark.line, len(lines) - 1)
    return line + 1, min(mark.column, len(lines[line])) + 1


class _Values:
    """Turns nodes into values; faults that leave the rest readable are gathered in `problems`."""

    def __init__(self, file: Path, lines: list[str]) -> None:
        self.value_places: dict[Loc, Place] = {}
        self.key_places: dict[Loc, Place] = {}
        self.problems: list[SettingsProblem] = []
        self._file = str(file)
        self._lines = lines
        self._construct = yaml.constructor.SafeConstructor()

    def read(self, node: yaml.Node, loc: Loc) -> object:
        place = _place(node.start_mark, self._lines)
        self.value_places[loc] = place
        if len(loc) > DEPTH_MAX or len(self.value_places) > VALUE_COUNT_MAX:
            message = (
                f"the file unfolds to more than {VALUE_COUNT_MAX} values or {DEPTH_MAX} levels; "
                "make it smaller (each use of an alias counts in full)"
            )
            raise SettingsError([SettingsProblem(self._file, *place, dotted(loc[:8]), message)])
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.read(item, (*loc, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, loc)
        return self._unreadable(node, loc)

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            place = _place(key_node.start_mark, self._lines)
            key = key_node.value
            if key_node.tag == f"{_TAG}merge":
                message = "merge keys (<<) are not supported; write the keys out"
                self.problems.append(SettingsProblem(self._file, *place, dotted(loc), message))
            elif not isinstance(key_node, yaml.ScalarNode) or key_node.tag != f"{_TAG}str":
                quote = f'; quote it: "{key}"' if isinstance(key, str) and key.isalnum() else ""
                message = f"a key must be text{quote}"
                self.problems.append(SettingsProblem(self._file, *place, dotted(loc), message))
            elif key in values:
                line, column = self.key_places[(*loc, key)]
                message = f"the key {shown(key)} is given twice, first on line {line}, column {column}"
                self.problems.append(SettingsProblem(self._file, *place, dotted((*loc, key)), message))
            else:
                self.key_places[(*loc, key)] = place
                values[key] = self.read(value_node, (*loc, key))
        return values

    def _scalar(self, node: yaml.ScalarNode, loc: Loc) -> object:
        construct = self._construct
        if "${" in node.value:
            try:
                node = self._expanded(node)
            except VariableError as error:
                place = self.value_places[loc]
                self.problems.append(SettingsProblem(self._file, *place, dotted(loc), str(error)))
                return Unreadable()
        try:
            match node.tag.removeprefix(_TAG):
                case "str" | "timestamp" | "value":
                    return str(node.value)
                case "null":
                    return None
                case "bool":
                    return bool(construct.construct_yaml_bool(node))
                case "int":
                    return int(construct.construct_yaml_int(node))
                case "float":
                    return float(construct.construct_yaml_float(node))
        except (ValueError, KeyError, IndexError, OverflowError):  # `!!int x`, `0x_`, 5000 digits
            pass
        return self._unreadable(node, loc)

    def _expanded(self, node: yaml.ScalarNode) -> yaml.ScalarNode:
        """Return the value with its variables in it.

        It may become a number or a switch without quotes, and in double quotes if it is one variable: inside
        {...} and [...] YAML needs quotes around it.
        """
        text = expanded(node.value, os.environ)
        typed = node.style is None or (node.style == '"' and is_variable(node.value))
        plain = typed and node.tag == f"{_TAG}str"
        tag = _Loader("").resolve(yaml.ScalarNode, text, (True, False)) if plain else node.tag  # type: ignore[no-untyped-call]
        return yaml.ScalarNode(tag, text, node.start_mark, node.end_mark, node.style)

    def _unreadable(self, node: yaml.Node, loc: Loc) -> Unreadable:
        tag = node.tag.replace(_TAG, "!!")
        text = f" {shown(node.value)}" if isinstance(node, yaml.ScalarNode) else ""
        place = self.value_places[loc]
        message = (
            f"cannot read{text} as the YAML type {shown(tag)}; expected plain text, numbers, lists and keys"
        )
        self.problems.append(SettingsProblem(self._file, *place, dotted(loc), message))
        return Unreadable()
