"""Decisions as machine code: the modules that mypyc has compiled, found in place of their sources.

`make` compiles them (`python -m serving.compiled`). What was compiled from other sources than these is never
used: after a change all are interpreted until they are compiled again. So they are while PENSTOCK_INTERPRETED
is set, as a debugger or a coverage tool needs it.
"""

import os
import sys
from collections.abc import Sequence
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
BUILT = Path(__file__).parent / "built"
"""Where a wheel carries what was compiled."""
COMPILED = (
    "serving/policy/limits/admission.py",
    "serving/policy/arbitration.py",
    "serving/policy/batching",
    "serving/policy/variants/climbing.py",
    "serving/policy/estimates/arrival_slack.py",
    "serving/policy/limits/crowding.py",
    "serving/policy/estimates/drift.py",
    "serving/policy/estimates/freshness.py",
    "serving/policy/isolation.py",
    "serving/policy/estimates/latency.py",
    "serving/policy/estimates/rates.py",
    "serving/policy/variants/selection.py",
    "serving/policy/estimates/suspicion.py",
    "serving/scheduler",
    "serving/profile/derived/latency.py",
    "serving/simulation/engine.py",
    "serving/simulation/tally.py",
    "serving/values/tensor.py",
    "serving/ports.py",
    "serving/runtime/caching/accounts.py",
    "serving/runtime/clocks/alarm.py",
    "serving/runtime/clocks/clock.py",
    "serving/cache/flights.py",
    "serving/cache/keys.py",
    "serving/cache/memory.py",
    "serving/cache/suiting.py",
    "serving/cache/sketch.py",
    "serving/cache/benefit.py",
    "serving/runtime/caching/caching.py",
    "serving/runtime/calls/pending_calls.py",
    "serving/runtime/calls/builds.py",
    "serving/runtime/calls/nondeterminism.py",
    "serving/runtime/calls/outgoing.py",
    "serving/runtime/calls/gateway.py",
    "serving/runtime/caching/cached_models.py",
    "serving/runtime/calls/batch_lanes.py",
    "serving/runtime/workers/flight.py",
    "serving/runtime/workers/link.py",
    "serving/runtime/nodes/farlink.py",
    "serving/runtime/calls/payloads.py",
    "serving/runtime/cells/messages.py",
    "serving/runtime/cells/connection.py",
    "serving/runtime/cells/caller.py",
    "serving/runtime/cells/answering.py",
    "serving/runtime/cells/serving.py",
    "router/http/fastpath/exchange.py",
    "router/http/fastpath/connection.py",
    "router/http/fastpath/protocol.py",
    "router/http/fastpath/edge.py",
    "router/http/fastpath/paths.py",
    "router/http/fastpath/places.py",
    "router/grpc/fastrpc/connection.py",
    "router/grpc/fastrpc/edge.py",
    "router/grpc/fastrpc/framing.py",
    "router/grpc/fastrpc/inbound.py",
    "router/grpc/fastrpc/infercall.py",
    "router/grpc/fastrpc/outbox.py",
    "router/grpc/rpc/inference.py",
    "router/tensors",
    "router/observing/telemetry/counting/journal.py",
    "router/observing/telemetry/counting/counts.py",
    "router/observing/telemetry/counting/histogram.py",
    "router/observing/telemetry/observer.py",
    "router/protocol/explanation.py",
    "router/protocol/rest.py",
)
"""Folders and files: what decides while requests wait, and what every request passes through. Placements are
decided in seconds, by solvers, in a process of their own: they stay interpreted."""

GROUP = "penstock"  # all modules are one library, so that they call each other directly
LIBRARY = f"{GROUP}__mypyc"
SUFFIX = EXTENSION_SUFFIXES[0]
PACKAGES = ("router", "serving")
MODULES = (LIBRARY, *(part.removesuffix(".py").replace("/", ".") for part in COMPILED))


def sources() -> list[Path]:
    """Return the sources that are compiled, relative to ROOT; packages' own files stay interpreted."""
    found = [file for part in COMPILED for file in [ROOT / part, *(ROOT / part).rglob("*.py")]]
    return sorted(
        file.relative_to(ROOT) for file in found if file.suffix == ".py" and file.stem != "__init__"
    )


def folder() -> Path:
    """Return the folder in which what is compiled from the present sources lies, or would. Compiled code
    knows the types of what it imports, so all sources count, as does the interpreter."""
    return Path(sys.prefix, GROUP, digest(sys.version))


def shipped() -> Path:
    """Return the folder in which a wheel carries what was compiled, if it does. A wheel is for one minor
    version of Python, whatever built that Python."""
    return BUILT / digest("")


def digest(about: str) -> str:
    """Return a name for the present sources, the interpreter's kind, and more `about` it."""
    found = sha256(f"{about} {SUFFIX}".encode())
    for file in sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        found.update(f"\n{file.relative_to(ROOT)}\n".encode())
        found.update(file.read_bytes())
    return found.hexdigest()[:16]


class CompiledFinder(MetaPathFinder):
    """Finds compiled modules before their sources are found."""

    def __init__(self) -> None:
        self._files: dict[str, Path] | None = None

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  the interface's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the compiled module of that name, None where there is none."""
        if not fullname.startswith(MODULES):
            return None
        if self._files is None:  # reading the sources takes some 5 ms: not where nothing of them is used
            self._files = find_compiled()
        file = self._files.get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


def find_compiled() -> dict[str, Path]:
    """Return the compiled modules by name; none where they are not to be used."""
    if os.environ.get("PENSTOCK_INTERPRETED"):
        return {}
    for place in (shipped, folder) if BUILT.exists() else (folder,):
        where = place()  # reads all sources
        files = {
            ".".join(file.relative_to(where).parts).removesuffix(SUFFIX): file
            for file in where.rglob(f"*{SUFFIX}")
        }
        if LIBRARY in files:
            return files
    return {}


sys.meta_path.insert(0, CompiledFinder())  # once, as `serving` is imported: before anything of it is


def is_compiled() -> bool:
    """Return whether machine code decides: where any of the compiled modules is in use, all are."""
    return LIBRARY in sys.modules
