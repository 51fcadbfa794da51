"""`nvidia-smi mig`, `-i N -mig 0|1` and `--query-gpu` of a machine of tests/gpus/machine.py.

It refuses what hardware refuses (tests/runtime/slicing/smi.py). It refuses the end of what a process computes
on: one that was started with the UUID of the instance or of the GPU.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.runtime.slicing.contract import SlicingError
from tests.gpus.machine import GONE, STATE, State, changed
from tests.runtime.slicing.smi import Smi

NOTHING_FOUND, REFUSED = 6, 19
KINDS = {"h200": ("NVIDIA H200", 143771), "a100": ("NVIDIA A100-SXM4-40GB", 40960)}
MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
_ENTRY = re.compile(r"(?P<kind>\w+)(?P<mig>:(?P<placed>[^/]*))?(?P<more>/.*)?")
_INSTANCE = re.compile(r"(?P<idle>~?)(?P<profile>[\w.+]+)@(?P<start>\d+)#(?P<id>\d+)")


@dataclass
class Entry:
    """A GPU as the file has it. An instance with "~" before it has no compute instance: NVML lists none."""

    kind: str
    mig: bool
    placed: dict[int, tuple[str, int]]
    idle: set[int]
    more: str

    @classmethod
    def of(cls, text: str) -> "Entry":
        """Read it."""
        found = _ENTRY.fullmatch(text)
        assert found is not None, text
        rows = [_INSTANCE.fullmatch(each) for each in (found["placed"] or "").split(",") if each]
        instances = [each for each in rows if each is not None]
        assert len(instances) == len(rows), text
        placed = {int(each["id"]): (each["profile"], int(each["start"])) for each in instances}
        idle = {int(each["id"]) for each in instances if each["idle"]}
        return cls(found["kind"], found["mig"] is not None, placed, idle, found["more"] or "")

    def __str__(self) -> str:
        rows = (
            f"{'~' * (number in self.idle)}{name}@{start}#{number}"
            for number, (name, start) in self.placed.items()
        )
        return f"{self.kind}{':' if self.mig else ''}{','.join(rows)}{self.more}"


def main(argv: Sequence[str]) -> int:
    """Print what nvidia-smi prints, and return its exit status."""
    with changed(Path(os.environ[STATE])) as state:
        try:
            said = answer(state, argv)
        except SlicingError as error:
            sys.stdout.write(f"{error}\n")
            return REFUSED
    sys.stdout.write(said)
    return NOTHING_FOUND if said.startswith("No ") else 0


def answer(state: State, argv: Sequence[str]) -> str:
    """Return what a command prints, after what it does to the state; SlicingError where it refuses."""
    if argv[0].startswith("--query-gpu="):
        return "".join(_rows(state))
    *_, index, verb = argv[: 4 if argv[0] == "mig" else 3]
    place = [each for each, text in enumerate(state.gpus) if not text.startswith(GONE)][int(index)]
    entry = Entry.of(state.gpus[place])
    if not verb.startswith("-l"):
        state.ran.append(["nvidia-smi", *argv])
    try:
        if verb == "-mig":
            return _switch(entry, argv[-1] == "1", f"GPU-{place}")
        if not entry.mig:
            return "No MIG-enabled devices found.\n"
        smi = Smi(entry.kind, int(index), state.next)
        smi.placed, smi.computing = entry.placed, {*entry.placed} - entry.idle
        smi.in_use = {number for number in entry.placed if is_seen(f"MIG-{place}-{number}")}
        said = smi(("nvidia-smi", *argv))
        entry.idle = {*entry.placed} - smi.computing
        state.next = max([state.next, *(number + 1 for number in entry.placed)])
        return said
    finally:
        state.gpus[place] = str(entry)


def _rows(state: State) -> Iterator[str]:
    """Yield what is asked for by loadtests/gpu/gpu_day_served.py, as CSV."""
    there = [place for place, text in enumerate(state.gpus) if not text.startswith(GONE)]
    for index, place in enumerate(there):
        entry = Entry.of(state.gpus[place])
        name, mib = KINDS[entry.kind]
        mode = MODES[int(entry.more.partition("/mode=")[2][:1] or 0)]
        mig = "Enabled" if entry.mig else "Disabled"
        yield f"{index}, GPU-{place}, {name}, {mib}, {mode}, {mig}\n"


def _switch(entry: Entry, on: bool, uuid: str) -> str:
    if is_seen(uuid) or entry.placed:
        raise SlicingError(f"Unable to change the MIG mode of {uuid}: In use by another client")
    entry.mig = on
    return f"{'Enabled' if on else 'Disabled'} MIG Mode\n"


def is_seen(uuid: str) -> bool:
    """Return whether a process of this machine was started with that device."""
    wanted = {f"{STATE}={os.environ[STATE]}".encode(), f"CUDA_VISIBLE_DEVICES={uuid}".encode()}
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and wanted <= {*(process / "environ").read_bytes().split(b"\0")}:
                return True
        except OSError:  # it has ended, or is another user's
            continue
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
