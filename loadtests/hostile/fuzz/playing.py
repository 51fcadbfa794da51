"""A target, its inputs, and what is held against it: stalls, memory, exceptions, its own checks."""

import ast
import gc
import hashlib
import os
import random
import resource
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from loadtests.harness.processes import resident_bytes
from loadtests.hostile.fuzz.mutating import Mutator

STALL_MS: Final = 50.0
GROWTH_MB: Final = 64.0
WARM_SHARE: Final = 0.1  # of the inputs, WARM_MAX at most, before memory is looked at
WARM_MAX: Final = 5_000
MENDED_SHARE: Final = 0.5  # of the inputs have their checks of integrity made good, where a target has some
KEPT: Final = 2  # inputs of a fault: the third of the same kind is only counted
CORPUS: Final = Path(__file__).parent / "corpus"
WORDS: Final = Path(__file__).parent / "words"


class Fault(Exception):  # noqa: N818  # what was found, not what went wrong here
    """The target kept a promise badly; the text says which."""


@dataclass(frozen=True, slots=True)
class Target:
    """`play` takes an input: True where it was accepted, False where it was refused as it should be; it
    raises for everything else. `words`: of the format. `mend` makes an input's checks of integrity good, so
    that what is behind them is reached. `stall_ms`: the bound for one input, of processor time, plus
    `stall_ms_per_kb` for each KB. `spent_ns`: the processor time until now of whatever plays; `pid`: its
    process, 0 for this one."""

    name: str
    play: Callable[[bytes], bool]
    words: tuple[bytes, ...] = ()
    mend: Callable[[bytes], bytes] | None = None
    stall_ms: float = STALL_MS
    stall_ms_per_kb: float = 0.0
    spent_ns: Callable[[], int] = time.thread_time_ns
    pid: int = 0


@dataclass(slots=True)
class Found:
    """Of a target: how many inputs it got and accepted, the longest, its faults and how often each came."""

    target: str
    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    longest_ms: float = 0.0
    growth_mb: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)


def seeds_of(target: str, corpus: Path = CORPUS) -> dict[str, bytes]:
    """Return the target's corpus by file name, in their order."""
    return {each.name: each.read_bytes() for each in sorted((corpus / target).iterdir())}


def words_of(name: str) -> tuple[bytes, ...]:
    """Return a dictionary in the form of AFL and libFuzzer: a quoted word a line, other bytes as \\xNN."""
    lines = (WORDS / name).read_text("ascii").splitlines()
    return tuple(ast.literal_eval(f"b{line}") for line in lines if line.startswith('"'))


def fault_of(target: Target, data: bytes) -> tuple[str, bool, float]:
    """Return (what is wrong with how the target took the input, "" for nothing; whether it accepted it; its
    processor time in milliseconds). An input that was too slow is tried again: a garbage collection may have
    been in it."""
    bound_ms = target.stall_ms + target.stall_ms_per_kb * len(data) / 1024
    took_ms = 0.0
    for _ in range(2):
        before, peak_kb = target.spent_ns(), _peak_kb()
        try:
            accepted = target.play(data)
        except Fault as fault:
            return str(fault), False, took_ms
        except Exception as error:
            return _worded(error), False, took_ms
        took_ms = (target.spent_ns() - before) / 1e6
        rise_mb = (_peak_kb() - peak_kb) / 1024
        if not target.pid and rise_mb > GROWTH_MB:
            return f"one input took more than {GROWTH_MB:.0f} MB of memory", accepted, took_ms
        if took_ms <= bound_ms:
            return "", accepted, took_ms
    return f"one input took more than {bound_ms:.0f} ms", accepted, took_ms


def inputs_of(target: Target, seed: int, corpus: Path = CORPUS) -> Iterable[bytes]:
    """Return the target's corpus, then inputs without end; the same for the same seed."""
    seeds = list(seeds_of(target.name, corpus).values())
    yield from seeds
    chance = random.Random(f"{target.name} {seed}")
    mutator = Mutator(seeds, target.words, chance)
    while True:
        data = mutator.next()
        if target.mend is not None and chance.random() < MENDED_SHARE:
            data = target.mend(data)
        yield data


def play(target: Target, inputs: int, seed: int, until_s: float, folder: Path) -> Found:
    """Play `inputs` inputs, or as many as fit until that instant of `time.monotonic`; faults go into the
    folder."""
    found = Found(target.name)
    began_s = time.monotonic()
    warm_mb = 0.0
    for data in inputs_of(target, seed):
        if found.inputs >= inputs or time.monotonic() > until_s:
            break
        fault, accepted, took_ms = fault_of(target, data)
        found.inputs += 1
        found.accepted += accepted
        found.longest_ms = max(found.longest_ms, took_ms)
        if fault:
            keep(found, fault, data, folder)
        if found.inputs == max(1, min(WARM_MAX, int(inputs * WARM_SHARE))):
            warm_mb = _resident_mb(target.pid)
    found.seconds = time.monotonic() - began_s
    found.growth_mb = max(0.0, _resident_mb(target.pid) - warm_mb) if warm_mb else 0.0
    if found.growth_mb > GROWTH_MB:
        found.faults[f"memory grew by {found.growth_mb:.0f} MB over the run"] = 1
    return found


def keep(found: Found, fault: str, data: bytes, folder: Path) -> None:
    """Count the fault, and write down its first inputs: FOLDER/TARGET/DIGEST is how `--replay` reads them."""
    count = found.faults[fault] = found.faults.get(fault, 0) + 1
    if count > KEPT:
        return
    place = folder / found.target / hashlib.sha256(data).hexdigest()[:12]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    found.files.append(place)
    print(f"FAULT {found.target}: {fault}\n  python -m loadtests.hostile.fuzz --replay {place}", flush=True)


def _worded(error: Exception) -> str:
    """Return the exception and the line of ours that it came from: the same fault is worded the same."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if "site-packages" not in each.filename] or frames
    at = ours[-1]
    return f"{type(error).__name__} at {os.path.relpath(at.filename)}:{at.lineno}"


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _resident_mb(pid: int) -> float:
    gc.collect()
    return resident_bytes(pid or os.getpid()) / 1e6
