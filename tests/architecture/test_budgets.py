"""The budgets hold everywhere, and each of them can fail."""

from collections.abc import Callable

import pytest

from tests.architecture import source_rules as rules
from tests.architecture.floors import FLOORS_MAX, floors
from tests.architecture.source_rules import Source

Rule = Callable[[Source], list[str]]

TOO_LONG = "def f():\n" + "    x = 1\n" * 50
LONGEST = "def f():\n" + "    x = 1\n" * 49

STATIC_OF_SEVEN = "class C:\n @staticmethod\n def f(a, b, c, d, e, g, h): ..."
KEEPS = "class C:\n def __init__(self, a, b, c, d, e, f, g):\n" + "".join(
    f"  self.{each}: F = {each}\n" for each in "abcdefg"
)
POLICY, RUNTIME = "serving/policy/a.py", "serving/runtime/a.py"

# rule, a path, what breaks it there, what just does not
CASES: list[tuple[Rule, str, str, str]] = [
    (rules.long_functions, "router/a.py", TOO_LONG, "@mark\n" + LONGEST),
    (
        rules.wide_functions,
        "router/a.py",
        "def f(a, b, c, /, d, e, *, g, h): ...",
        "def f(a, b, c, d, e, g): ...",
    ),
    (
        rules.wide_functions,
        "router/a.py",
        "async def f(a, b, c, d, e, *f, **g): ...",
        "def f(a, *b, **c): ...",
    ),
    (rules.wide_functions, "router/a.py", KEEPS.replace("self.g: F = g", "self.g = f(g)"), KEEPS),
    (rules.wide_functions, "router/a.py", STATIC_OF_SEVEN, "class C:\n def f(self, a, b, c, d, e, g): ..."),
    (rules.long_file, "tests/a.py", "x = 1\n" * 501, "x = 1\n" * 500),
    (rules.busy_init, "serving/__init__.py", "LIMIT = 3", '"""Doc."""\nfrom a import b\n__all__ = ["b"]'),
    (
        rules.lazy_imports,
        "router/a.py",
        "def f():\n  if x:\n    from serving.ports import C",
        "import router.b",
    ),
    (rules.lazy_imports, "router/a.py", "def f():\n  from . import b", "def f():\n  import torch"),
    (rules.worldly_decisions, POLICY, "from time import monotonic", "from bisect import insort"),
    (rules.worldly_decisions, "serving/scheduler/a.py", "import asyncio.events", "import timeit"),
    (rules.worldly_decisions, "serving/profile/curve.py", "import random", "import math"),
    (rules.clock_lines, RUNTIME, "import time\nnow = time.monotonic_ns()", "import time"),
    (rules.clock_lines, RUNTIME, "clock = loop.time", "loop.call_later(1, f)"),
    (rules.clock_lines, RUNTIME, "from time import perf_counter as p\np()", "from time import sleep"),
]


TALL = {
    "router": 12,
    "loadtests": 9,
    "router/grpc/fastrpc": 8,
    "router/verbs/simulate": 8,
    "loadtests/hostile/abuse": 7,
    "router/verbs/explain": 7,
    "router/verbs/profiling": 7,
    "serving/policy/scaling/slow": 7,
    "serving/policy/transition": 7,
    "serving/scheduler": 7,
}
"""Folders with more floors than FLOORS_MAX, and how many they have: these numbers only fall."""


@pytest.fixture(scope="module")
def everything() -> list[Source]:
    return rules.sources()


@pytest.fixture(scope="module")
def product(everything: list[Source]) -> list[Source]:
    return [source for source in everything if not source.path.startswith("tests/")]


@pytest.mark.parametrize(
    "rule",
    [rules.long_functions, rules.wide_functions, rules.long_file, rules.busy_init, rules.lazy_imports,
     rules.vague_name, rules.worldly_decisions],
    ids=lambda rule: rule.__name__,
)  # fmt: skip
def test_every_file_keeps_the_rule(rule: Rule, everything: list[Source]) -> None:
    faults = [fault for source in everything for fault in rule(source)]
    assert not faults, "\n".join(faults)


def test_the_runtime_reads_the_clock_at_one_line(everything: list[Source]) -> None:
    runtime = [source for source in everything if source.path.startswith("serving/runtime/")]
    assert len([line for source in runtime for line in rules.clock_lines(source)]) == 1


def test_folders_have_few_rooms(product: list[Source]) -> None:
    """A new module goes into a folder with others of its kind."""
    found = rules.rooms(each.path for each in product)
    assert {folder: count for folder, count in found.items() if count > rules.ROOMS_MAX} == {}


def test_folders_have_few_floors_and_tall_ones_get_no_more(product: list[Source]) -> None:
    """Where one became lower, lower its number."""
    assert {folder: count for folder, count in floors(product).items() if count > FLOORS_MAX} == TALL


def test_floors_are_the_longest_chain_of_imports() -> None:
    top, middle = Source("a/b.py", "from a.c import d"), Source("a/c/d.py", "import a.e")
    assert floors([top, middle, Source("a/e.py", "import os")]) == {"a": 3}
    assert floors([top, middle, Source("a/e.py", "import a.c.d")]) == {"a": 3}


def test_rooms_are_modules_and_folders() -> None:
    paths = ["a/__init__.py", "a/b.py", "a/c/__init__.py", "a/c/d.py", "a/c/e.py"]
    assert rules.rooms(paths) == {".": 1, "a": 2, "a/c": 2}


def test_the_rules_see_the_whole_tree(everything: list[Source]) -> None:
    assert {source.path.split("/")[0] for source in everything} == set(rules.ROOTS)
    assert not [source.path for source in everything if "/build/" in source.path]


@pytest.mark.parametrize(("rule", "path", "bad", "good"), CASES)
def test_each_rule_fails_on_what_it_forbids(rule: Rule, path: str, bad: str, good: str) -> None:
    assert len(rule(Source(path, bad))) == 1
    assert rule(Source(path, good)) == []


@pytest.mark.parametrize(
    "path", ["serving/utils.py", "serving/tensor_utils.py", "router/handlers/a.py", "tests/Base.py"]
)
def test_vague_names_are_refused(path: str) -> None:
    assert len(rules.vague_name(Source(path, ""))) == 1


def test_names_that_only_resemble_a_vague_one_pass() -> None:
    assert rules.vague_name(Source("serving/baseline/commonality.py", "")) == []


def test_the_rules_bind_only_where_they_are_meant() -> None:
    assert rules.worldly_decisions(Source("serving/runtime/a.py", "import time")) == []
    assert rules.busy_init(Source("serving/a.py", "LIMIT = 3")) == []
    assert rules.lazy_imports(Source("router/cli.py", "def f():\n  import router.b")) == []
