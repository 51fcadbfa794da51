"""The processes below one, and the memory that they hold, as the kernel tells it."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

_OWN: Final = ("RssAnon", "RssShmem", "VmSwap")
_PROPORTIONAL: Final = ("Pss_Anon", "Pss_Shmem", "SwapPss")
"""Of proc(5), status and smaps_rollup. Mapped files are not counted: the kernel can take them back, and
workers that map the same weights share them."""


def children(pid: int) -> list[int]:
    """Return those of all threads of a process; none where it has ended."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """Return the processes that it has started, and those that these have, and so on."""
    found = children(pid)
    for each in found:  # it grows meanwhile
        found += children(each)
    return found


def marked(mark: str) -> list[int]:
    """Return the processes that have `mark`, as NAME=VALUE, in their starting environment. Processes of other
    users are included only if they are readable."""
    wanted = mark.encode()
    found: list[int] = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):  # it has ended, or is another user's
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(int(pid))
    return found


def held_bytes(pids: Iterable[int], bound: int) -> int:
    """Return what these processes hold together of memory that the kernel cannot take back. Above `bound` it
    counts exactly: what forked processes share is counted once, which reads all their page tables."""
    pids = [*pids]
    held = sum(_bytes(pid, "status", _OWN) for pid in pids)
    if held <= bound:
        return held
    shared = sum(_bytes(pid, "smaps_rollup", _PROPORTIONAL) for pid in pids)
    return shared or held  # a kernel that does not tell the parts


def _bytes(pid: int, file: str, names: tuple[str, ...]) -> int:
    total = 0
    with suppress(OSError):  # it has ended
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in names:
                total += int(value.split()[0]) << 10
    return total
