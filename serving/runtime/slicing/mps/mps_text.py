"""What the MPS control program says, as values. Its exit status is 0 for nearly everything, so text decides.

Read off version 535.261 by running it (tests/runtime/slicing/captured/mps-535.txt); `sm_partition` and
`lspart` came with CUDA 13.1 and are after NVIDIA's documentation (MPS, "Legacy MPS v2 Interface").
"""

import re
from dataclasses import dataclass

_COMPLAINT = re.compile(
    r"\b(unknown command|not (found|supported)|cannot|invalid|fail(ed|ure)?|error|privileges?|unable|"
    r"insufficient)\b",
    re.I,
)
_PARTITION = re.compile(r"\b((?:GPU|MIG)-[0-9A-Za-z-]+)/([A-Za-z0-9+/=_-]+)")
_LOGGED = re.compile(r"^\[[^]]*\]\s*")


@dataclass(frozen=True, slots=True)
class Partition:
    """A row of `lspart`: a static partition of `chunks` and `sms`; `used`: it has clients."""

    partition: str
    chunks: int
    sms: int
    used: bool


def complaint(text: str) -> str:
    """Return the first line that says that a command was not done, "" where none does."""
    return next((line.strip() for line in text.splitlines() if _COMPLAINT.search(line)), "")


def pids(text: str) -> tuple[int, ...]:
    """Return the answer to `get_server_list` or `get_client_list`: a process a line, none where there are
    none."""
    return tuple(int(line) for line in text.split() if line.isdecimal())


def percentage(text: str) -> float | None:
    """Return the answer to `get_default_active_thread_percentage`, None where it is no number."""
    match = re.fullmatch(r"\d+(\.\d+)?", text.strip())
    return float(match.group()) if match else None


def partition_made(text: str) -> str:
    """Return the name (`UUID/id`) of what `sm_partition add` made, "" where it made none."""
    match = _PARTITION.search(text)
    return match.group() if match else ""


def partitions(text: str) -> tuple[Partition, ...]:
    """Return the partitions of `lspart`: rows of GPU, partition, free chunks, used chunks, free SMs, used SMs
    and clients, "-" where a cell has no meaning. The row of the GPU itself names no partition."""
    rows = [line.split() for line in text.splitlines() if line.lstrip().startswith(("GPU-", "MIG-"))]
    return tuple(
        Partition(cells[1], int(cells[3]), int(cells[5]), cells[6].lower() == "yes")
        for cells in rows
        if len(cells) == 7 and cells[1] != "-" and cells[3].isdecimal() and cells[5].isdecimal()
    )


def log_tail(log: str, lines: int = 3) -> str:
    """Return the last lines of a daemon's log without their stamps, on one line: some errors appear only
    there."""
    return "; ".join(_LOGGED.sub("", line) for line in log.strip().splitlines()[-lines:])
