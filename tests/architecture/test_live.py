"""Which tests need the machine for themselves, and that each of those files says so."""

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.source_rules import Source, sources

STARTS = {
    "subprocess": (),
    "multiprocessing": (),
    "loadtests.harness.gateway": ("started",),
    "loadtests.stand.redis_server": ("redis_server",),
    "serving.runtime.workers.supervisor": ("Supervisor",),
    "tests.acceptance.gateway": (),
    "tests.loadtests.server": ("serving",),
    "tests.runtime.dying": (),
    "tests.runtime.house": ("house",),
    "tests.worker.processes": (),
}
"""Module -> the names that start a process or open a server; without names all of it does."""

WALL_CLOCKS = ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep", "time", "time_ns")

BESIDE_OTHERS = {
    "tests/architecture/test_contracts.py": "a linter",
    "tests/compiled/test_compiled.py": "a compiler and worlds in virtual time",
    "tests/deploy/test_chart.py": "a writer of manifests that ends at once",
    "tests/deploy/test_compose.py": "schema checkers, and a Redis without a load",
    "tests/deploy/test_rules_fire.py": "a checker of rules that ends at once",
    "tests/deploy/test_image.py": "make, which only prints",
    "tests/fuzz/test_playing.py": "a player of recorded bytes",
    "tests/loadtests/harness/test_pictures.py": "imports",
    "tests/models/test_build.py": "a build of models",
    "tests/models/test_minilm.py": "a build of a model",
    "tests/policy/placement/assignment/test_assign.py": "solvers with other hash seeds",
    "tests/policy/transition/test_planning.py": "solvers with other hash seeds",
    "tests/router/observing/page/test_files.py": "a reader of JavaScript",
    "tests/router/verbs/doctor/test_command.py": "a command that ends at once",
    "tests/router/verbs/profiling/test_imports.py": "an import",
    "tests/router/verbs/target/test_scaffold.py": "scripts that end at once",
    "tests/router/settings/machine/test_descriptors.py": "a command that ends at once",
    "tests/router/logs/test_output.py": "a command that prints",
    "tests/router/grpc/test_rpc_grpcio.py": "a client that sends once",
    "tests/router/test_start.py": "an import",
    "tests/router/grpc/test_rpc_streams.py": "servers that stand still",
    "tests/router/security/tls/test_files.py": "certificates of 30 days",
    "tests/runtime/slicing/test_inventory.py": "a driver's twin that answers at once",
    "tests/worker/backends/test_torch_export.py": "a compiler",
    "tests/worker/process/test_libraries.py": "an import",
}
"""Files that start a process or wait, but whose outcome does not depend on how long it takes."""


def reasons(source: Source) -> Iterator[str]:
    """Yield why a file of tests may need the machine for itself."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in STARTS)
        elif isinstance(node, ast.ImportFrom) and node.module in STARTS:
            starts = STARTS[node.module]
            yield from (node.module for each in node.names if not starts or each.name in starts)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield from _waiting(node.value.id, node.attr)
        elif isinstance(node, ast.Await) and _is_pause(node.value):
            yield "asyncio.sleep"


def _waiting(module: str, name: str) -> list[str]:
    return [f"time.{name}"] if module == "time" and name in WALL_CLOCKS else []


def _is_pause(awaited: ast.expr) -> bool:
    """Return whether it is a sleep that takes time: `asyncio.sleep(0)` only lets others run."""
    words = ast.unparse(awaited) if isinstance(awaited, ast.Call) else ""
    return words.startswith("asyncio.sleep(") and words != "asyncio.sleep(0)"


def is_marked(source: Source) -> bool:
    """Return whether the file, or one of its tests, is marked."""
    return source.path.startswith("tests/acceptance/") or "pytest.mark.live" in source.text


@pytest.fixture(scope="module")
def files() -> list[Source]:
    return [each for each in sources() if each.path.startswith("tests/") and "/test_" in each.path]


def test_a_file_that_starts_a_process_or_waits_is_live_or_is_said_to_bear_others(files: list[Source]) -> None:
    unsaid = {
        each.path: sorted({*reasons(each)})
        for each in files
        if not is_marked(each) and each.path not in BESIDE_OTHERS and any(reasons(each))
    }
    assert not unsaid, "add `pytestmark = pytest.mark.live`, or a reason to BESIDE_OTHERS"


def test_the_exceptions_are_needed(files: list[Source]) -> None:
    needed = {each.path for each in files if any(reasons(each)) and not is_marked(each)}
    assert set(BESIDE_OTHERS) <= needed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import subprocess", ["subprocess"]),
        ("from tests.runtime.house import house", ["tests.runtime.house"]),
        ("from tests.runtime.house import Tally", []),
        ("import time\ntime.sleep(1)", ["time.sleep"]),
        ("time.process_time()", []),
        ("async def f():\n    await asyncio.sleep(0)", []),
        ("async def f():\n    await asyncio.sleep(0.3)", ["asyncio.sleep"]),
    ],
)
def test_what_needs_the_machine_is_seen(text: str, found: list[str]) -> None:
    assert [*reasons(Source("tests/test_a.py", text))] == found
