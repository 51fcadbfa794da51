"""What docs/architecture.md says of the code is so: each list that can be read from the code is held to it.

Where one of these fails, the code has moved on: mend the page.
"""

import ast
import re
import tomllib
from collections.abc import Iterable

import pytest

from serving.policy.batching.catalogue import POLICIES
from serving.values.objectives import SCALING_POLICIES
from tests.architecture import source_rules as rules
from tests.architecture.source_rules import ROOT, Source

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
SCHEDULING = (ROOT / "docs" / "scheduling.md").read_text("utf-8")
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
TIMERS = frozenset(("call_later", "call_at", "wait_for", "timeout", "sleep", "wait", "settimeout", "Timer"))


@pytest.fixture(scope="module")
def everything() -> list[Source]:
    return rules.sources()


@pytest.fixture(scope="module")
def running(everything: list[Source]) -> list[Source]:
    """What is not pure: of the gateway, its workers and the commands; not the simulator."""
    away = (*rules.PURE_PLACES, "serving/simulation/")
    return [
        source
        for source in everything
        if source.path.startswith(("router/", "serving/")) and not source.path.startswith(away)
    ]


def section(heading: str) -> str:
    """Of the page, from that heading to the next."""
    found = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no heading {heading!r}"
    return found.group(1)


def rows(text: str, first: str) -> list[list[str]]:
    """The table whose first heading is that: its rows, as cells."""
    found = re.search(rf"^\| {re.escape(first)} \|.*\n\|[-|: ]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert found, f"there is no table of {first!r}"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found.group(1).splitlines()]


def named(cells: Iterable[str]) -> list[str]:
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def events(source: Source, machine: str) -> dict[str, str]:
    """The methods by which something is told to a machine, and what each returns: commands or nothing."""
    (body,) = (n for n in source.tree.body if isinstance(n, ast.ClassDef) and n.name == machine)
    return {
        each.name: ast.unparse(each.returns)
        for each in body.body
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_") and each.returns
        if ast.unparse(each.returns) in ("None", "Sequence[Command]")
    }


def test_all_events_of_the_machines_are_listed_and_those_without_commands(everything: list[Source]) -> None:
    by_path = {source.path: source for source in everything}
    machines = {
        name: events(by_path[f"serving/{name}/{name}.py"], name.capitalize())
        for name in ("scheduler", "control", "selection")
    }
    table = rows(section("Decide, then do"), "machine")
    assert {row[0] for row in table} == set(machines)
    for name, known in machines.items():
        assert sorted(named(row[2] for row in table if row[0] == name)) == sorted(known)
    silent = re.search(r"return none: (.*?)\.\s", section("Decide, then do"))
    assert silent
    returned = [each for known in machines.values() for each in known.items()]
    assert sorted(named([silent.group(1)])) == sorted(name for name, kind in returned if kind == "None")


def test_every_file_that_reads_a_clock_is_listed(running: list[Source]) -> None:
    reading = [source.path for source in running if rules.clock_lines(source)]
    assert sorted(named(row[0] for row in rows(section("Clocks and timers"), "where"))) == sorted(reading)


def waits(source: Source) -> bool:
    """Whether it sets a timer: a call that ends, or goes on, after some seconds. A sleep of 0 is none."""
    for node in ast.walk(source.tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        owner = ast.unparse(node.func).split(".")[0]
        if name not in TIMERS or (name in ("timeout", "sleep", "wait") and owner not in ("asyncio", "time")):
            continue
        if name == "wait" and not any(word.arg == "timeout" for word in node.keywords):
            continue
        if not (name == "sleep" and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0):
            return True
    return any(
        isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep"
        for node in ast.walk(source.tree)
    )


def test_every_file_that_sets_a_timer_is_listed(running: list[Source]) -> None:
    timers = section("Clocks and timers").split("These timers run beside alarms:")[1]
    listed = sorted(named(row[0] for row in rows(timers, "where")))
    assert listed == sorted(source.path for source in running if waits(source))


def test_every_alarm_is_listed(running: list[Source]) -> None:
    told = section("Clocks and timers").split("There are eight kinds:")[1].split("\n\n")[0]
    made = [source.path for source in running if re.search(r"= Alarm\(", source.text)]
    assert sorted(path for path in named([told]) if path.endswith(".py")) == sorted(made)
    assert len(made) == 8


def test_every_batching_policy_is_in_the_table_of_policies() -> None:
    table = rows(SCHEDULING, "`policy`")
    assert sorted(named(row[0] for row in table)) == sorted(POLICIES), "mend docs/scheduling.md"


def test_every_policy_of_replicas_is_named() -> None:
    by_seam = {row[0]: row[1] for row in rows(section("The seams, and what fills them"), "seam")}
    assert set(named([by_seam["number of replicas"]])) == set(SCALING_POLICIES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("loop.call_later(1, f)", True),
        ("asyncio.sleep(0)", False),
        ("sock.settimeout(1)", True),
        ("asyncio.sleep(period_s)", True),
        ("asyncio.wait([task])", False),
        ("asyncio.wait([task], timeout=1)", True),
        ("def f(pause=time.sleep): ...", True),
        ("process.wait(timeout=3)", False),
    ],
)
def test_a_timer_is_known_by_its_call(text: str, expected: bool) -> None:
    assert waits(Source("router/a.py", text)) is expected


def test_what_is_used_of_scipy_is_listed(everything: list[Source]) -> None:
    used = {
        (source.path, alias.name)
        for source in everything
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scipy")
        for alias in node.names
        if not source.path.startswith("tests/")
    }
    assert all(path.startswith("serving/policy/placement/") for path, _ in used)
    listed = named(row[0] for row in rows(section("Placement"), "of scipy"))
    assert sorted(name.split(".")[-1] for name in listed) == sorted({name for _, name in used})


def test_the_order_of_imports_and_the_exempt_circle_are_those_of_the_contracts() -> None:
    contracts = {each["name"]: each for each in LINTER["contracts"]}
    outer = contracts["the edge and the load tests are above the core"]["layers"]
    inner = contracts["imports flow down only"]["layers"]
    chain = outer[:-1] + [" | ".join(f"serving.{part}" for part in layer.split(" | ")) for layer in inner]
    laws = section("Laws")
    assert " -> ".join(f"`{layer}`" for layer in chain) in laws
    (exempt,) = contracts["no cycles"]["ignore_imports"]
    assert f"`{exempt}`" in laws


def test_the_budgets_are_those_that_are_enforced(everything: list[Source]) -> None:
    lines, parameters = rules.FUNCTION_LINES_MAX, rules.PARAMETERS_MAX
    laws = section("Laws")
    assert f"at most {lines} lines and {parameters} parameters, files {rules.FILE_LINES_MAX} lines" in laws
    (widest,) = re.findall(r"\(`(\w+)` has (\d+)\)", laws)
    widths = {
        name: width for source in everything for name, width in _constructors(source) if width > parameters
    }
    assert (widest[0], int(widest[1])) == max(widths.items(), key=lambda each: each[1])


def _constructors(source: Source) -> list[tuple[str, int]]:
    return [
        (node.name, len(each.args.args) - 1)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    ]
