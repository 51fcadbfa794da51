"""A machine with GPUs, made of programs: what one of them changes, the others see.

A file (NVIDIA_STANDIN) lists the GPUs as tests/runtime/slicing/nvml.c reads them, in JSON:
{"gpus": ["h200", "h200:3g.71gb@4#1"], "next": 2, "ran": [["nvidia-smi", ...]]}. The library for NVML reads it
at each question. `nvidia-smi` (tests/gpus/nvidia_smi.py) reads and changes it. The MPS control program is a
twin. `next`: the id of the instance that is made next; `ran`: the commands that were to change something.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STATE = "NVIDIA_STANDIN"
NVML = ROOT / "tests" / "runtime" / "slicing" / "nvml.c"
TWIN = ROOT / "tests" / "runtime" / "slicing" / "mps_twin.py"
GONE = "-"


@dataclass
class State:
    """What the file says."""

    gpus: list[str]
    next: int
    ran: list[list[str]]


def read(path: Path) -> State:
    """The state of this moment."""
    told = json.loads(path.read_text())
    return State(told["gpus"], told["next"], told["ran"])


@contextmanager
def changed(path: Path) -> Iterator[State]:
    """The state, to be changed by one process at a time. Readers see all of a change or nothing of it."""
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read(path)
        try:
            yield state
        finally:
            write(path, state)


def write(path: Path, state: State) -> None:
    """Write all of it in one step."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"gpus": state.gpus, "next": state.next, "ran": state.ran}) + "\n")
    new.replace(path)


class Machine:
    """The programs and the file, in a folder with a short path: the sockets of MPS have no room in others."""

    def __init__(self, gpus: Sequence[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gpus-"))
        self.path = self.folder / "machine.json"
        self.scratch = self.folder / "tmp"
        self.scratch.mkdir()
        write(self.path, State([*gpus], 1, []))
        library = str(self.folder / "libnvidia-ml.so.1")
        subprocess.run(["gcc", "-shared", "-fPIC", "-DNOW", "-o", library, str(NVML)], check=True)
        python = f'PYTHONPATH="{ROOT}" exec "{sys.executable}"'
        self._program("nvidia-smi", f"{python} -P -m tests.gpus.nvidia_smi")
        self._program("nvidia-cuda-mps-control", f'exec "{sys.executable}" -I -S "{TWIN}"')

    def _program(self, name: str, command: str) -> None:
        path = self.folder / name
        path.write_text(f'#!/bin/sh\n{command} "$@"\n')
        path.chmod(0o755)

    def environment(self) -> dict[str, str]:
        """What a process has in its environment that computes on this machine."""
        paths = {"LD_LIBRARY_PATH": str(self.folder), "PATH": f"{self.folder}:{os.environ['PATH']}"}
        return {**paths, STATE: str(self.path), "TMPDIR": str(self.scratch)}

    @property
    def gpus(self) -> list[str]:
        """The GPUs as they are now, as the file lists them."""
        return read(self.path).gpus

    @property
    def layouts(self) -> list[list[str]]:
        """The instances of each GPU now, such as "3g.71gb@4", by their first memory slice."""
        return [
            sorted((one.split("#")[0] for one in listed.split(",") if one), key=lambda one: one.split("@")[1])
            for listed in (gpu.partition(":")[2].partition("/")[0] for gpu in self.gpus)
        ]

    def set(self, gpu: int, text: str) -> None:
        """Make that GPU another; "-" before its kind means that it is gone."""
        with changed(self.path) as state:
            state.gpus[gpu] = text

    def take_ran(self) -> list[str]:
        """The commands since this was last asked that were to change the layout of a GPU."""
        with changed(self.path) as state:
            ran, state.ran = state.ran, []
        return [" ".join(argv[1:]) for argv in ran]

    def processes(self) -> list[str]:
        """The command lines of all processes that were started on this machine, and live."""
        mark = f"{STATE}={self.path}".encode()
        found = []
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdecimal() and mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(f"{process.name} {(process / 'cmdline').read_text().replace(chr(0), ' ')}")
            except OSError:  # it has ended, or is another user's
                continue
        return found

    def mps_folders(self) -> list[str]:
        """The private folders of MPS daemons that are there."""
        return sorted(each.name for each in self.scratch.glob("penstock-mps-*"))

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.folder)


@contextmanager
def standing_in(*gpus: str) -> Iterator[Machine]:
    """A machine with these GPUs."""
    machine = Machine(gpus)
    try:
        yield machine
    finally:
        machine.close()
