"""The budgets and habits of the house, as functions from a source file to what is wrong with it.

Each rule returns sentences that name the file and the line; an empty list is a pass. They read syntax trees,
so a rule costs no import of what it judges.
"""

import ast
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
ROOTS = ("router", "serving", "models", "loadtests", "tests")

FUNCTION_LINES_MAX = 50  # from `def` to its last line, docstring and nested functions included
PARAMETERS_MAX = 6  # self and cls not counted, *args and **kwargs one each
FILE_LINES_MAX = 500
ROOMS_MAX = 15
"""Modules and folders of one folder, without `__init__`."""

VAGUE_NAMES = frozenset(
    (
        "base",
        "common",
        "handler",
        "handlers",
        "helper",
        "helpers",
        "manager",
        "managers",
        "misc",
        "util",
        "utils",
    )
)
"""Names that say nothing about what is inside, so that everything ends up there."""

LAZY_FILES = frozenset(
    (
        "router/cli.py",  # `penstock check` should not wait for the servers
        "serving/worker/__main__.py",  # its imports make thread pools, which inherit the affinity set before
    )
)
"""Where own modules may be imported inside a function; each with its reason."""

PURE_PLACES = (
    "serving/planning/",
    "serving/policy/",
    "serving/cache/",
    "serving/scheduler/",
    "serving/control/",
    "serving/selection/",
    "serving/profile/curve.py",
    "serving/profile/derived/",
    "serving/profile/sweeping/",
)
WORLDLY_MODULES = frozenset(
    ("asyncio", "concurrent", "datetime", "logging", "multiprocessing", "os", "random", "secrets", "select",
     "selectors", "signal", "socket", "subprocess", "threading", "time", "uuid", "uvloop")
)  # fmt: skip
"""What a decision must not import: clocks, randomness, waiting, the system."""

CLOCKS = frozenset(
    name + grain
    for name in ("clock_gettime", "monotonic", "perf_counter", "process_time", "thread_time", "time")
    for grain in ("", "_ns")
) | frozenset(("now", "today", "utcnow"))  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file: `path` relative to the repository, with forward slashes, and its text."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return _parse(self.text)


@functools.cache  # every rule reads every file
def _parse(text: str) -> ast.Module:
    return ast.parse(text)


def sources() -> list[Source]:
    """Every Python file of the project, sorted by path."""
    found = (path for root in ROOTS for path in (ROOT / root).rglob("*.py") if "build" not in path.parts)
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in sorted(found)]


def long_functions(source: Source) -> list[str]:
    return [
        f"{source.path}:{function.lineno}: {function.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"
        for function, _ in _functions(source.tree)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    ]


def wide_functions(source: Source) -> list[str]:
    return [
        f"{source.path}:{function.lineno}: {function.name} has {count} parameters, at most {PARAMETERS_MAX}"
        for function, in_class in _functions(source.tree)
        if (count := _parameter_count(function, in_class)) > PARAMETERS_MAX and not _is_record(function)
    ]


def _is_record(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is the constructor of a plain value: it keeps each parameter under its name, as that of a
    dataclass, which may be as wide as it likes, and does nothing else."""
    kept = [
        statement.target.attr
        for statement in function.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Attribute)
        and isinstance(statement.value, ast.Name)
        and statement.target.attr == statement.value.id
    ]
    kept_all = len(kept) == len(function.body) and kept == [each.arg for each in function.args.args[1:]]
    return function.name == "__init__" and kept_all


def long_file(source: Source) -> list[str]:
    lines = len(source.text.splitlines())
    return [f"{source.path}: {lines} lines, at most {FILE_LINES_MAX}"] if lines > FILE_LINES_MAX else []


def busy_init(source: Source) -> list[str]:
    """Packages only re-export: an `__init__.py` that computes makes every import of a sibling pay."""
    if PurePosixPath(source.path).name != "__init__.py":
        return []
    return [
        f"{source.path}:{statement.lineno}: an __init__.py only re-exports"
        for statement in source.tree.body
        if not (
            isinstance(statement, ast.Import | ast.ImportFrom)
            or _is_docstring(statement)
            or _is_all(statement)
        )
    ]


def lazy_imports(source: Source) -> list[str]:
    if source.path in LAZY_FILES:
        return []
    return [
        f"{source.path}:{node.lineno}: {function.name} imports an own module; import it at the top"
        for function, _ in _functions(source.tree)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
        if any(name.split(".")[0] in ("", *ROOTS) for name in _imported(node))
    ]


def vague_name(source: Source) -> list[str]:
    path = PurePosixPath(source.path)
    words = {word for part in (*path.parent.parts, path.stem) for word in part.lower().split("_")}
    return [
        f"{source.path}: {word!r} says nothing; name what is inside" for word in sorted(words & VAGUE_NAMES)
    ]


def worldly_decisions(source: Source) -> list[str]:
    """Decisions are pure: what decides takes `now_us`, and nothing else from outside."""
    if not source.path.startswith(PURE_PLACES):
        return []
    return [
        f"{source.path}:{node.lineno}: {name} has no place in a decision"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _imported(node)
        if name.split(".")[0] in WORLDLY_MODULES
    ]


def clock_lines(source: Source) -> list[str]:
    """Where a clock is read or handed on: `time.monotonic_ns`, `loop.time`, an imported `perf_counter`."""
    tree = source.tree
    own = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
        if alias.name in CLOCKS
    }
    lines = {
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in CLOCKS)
        or (isinstance(node, ast.Name) and node.id in own)
    }
    return [f"{source.path}:{line}" for line in sorted(lines)]


@functools.cache  # several rules read every function
def _functions(tree: ast.Module) -> list[tuple[Function, bool]]:
    """Every function of the file, and whether it is a method."""
    return [
        (child, isinstance(node, ast.ClassDef))
        for node in ast.walk(tree)
        for child in ast.iter_child_nodes(node)
        if isinstance(child, Function)
    ]


def _parameter_count(function: Function, in_class: bool) -> int:
    given = function.args
    static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in function.decorator_list)
    count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
    count += (given.vararg is not None) + (given.kwarg is not None)
    return count - (in_class and not static)


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules it imports; a relative one is ""."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return ["" if node.level else node.module or ""]


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_all(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and [ast.unparse(target) for target in statement.targets] == [
        "__all__"
    ]


def rooms(paths: Iterable[str]) -> dict[str, int]:
    """Return how many rooms each folder of these paths has."""
    inside: dict[str, set[str]] = {}
    for path in map(PurePosixPath, paths):
        for part in (path, *path.parents):
            if part.name not in ("__init__.py", ""):
                inside.setdefault(part.parent.as_posix(), set()).add(part.name)
    return {folder: len(names) for folder, names in inside.items()}
