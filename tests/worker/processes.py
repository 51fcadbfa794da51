"""Real worker processes for tests, and what the kernel says of their memory."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from serving.runtime.workers.link import Link
from serving.runtime.workers.supervisor import Supervisor
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ModelSpec
from tests.runtime.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Process:
    """One worker and what is heard of it."""

    link: Link
    heard: Recorder

    async def load(self, replica: int, model: ModelSpec, variant: str) -> None:
        """Until it is loaded."""
        self.link.load(replica, model, variant)
        assert (await self.heard.hear("loaded"))[0] == replica

    async def unload(self, replica: int) -> None:
        """Until its memory is given back."""
        self.link.unload(replica)
        assert await self.heard.hear("unloaded") == (replica,)

    def resident_bytes(self) -> int:
        """Of the whole process."""
        found = re.search(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{self.link.pid}/status").read_text(), re.M)
        assert found is not None
        return int(found.group(1)) << 10

    def mapped_bytes(self, file: Path) -> dict[str, int]:
        """Rss, Pss, Private_Dirty and so on of the mappings of one file together."""
        sums: dict[str, int] = {}
        inside = False
        for line in Path(f"/proc/{self.link.pid}/smaps").read_text().splitlines():
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                inside = line.endswith(str(file))
            elif inside and (found := re.fullmatch(r"(\w+):\s+(\d+) kB", line)) is not None:
                sums[found.group(1)] = sums.get(found.group(1), 0) + (int(found.group(2)) << 10)
        return sums


@asynccontextmanager
async def processes(count: int = 1) -> AsyncIterator[list[Process]]:
    """Workers that are ready, each with one core's threads."""
    started: list[Process] = []
    supervisors: list[Supervisor] = []
    try:
        for number in range(count):
            heard = Recorder()
            supervisors.append(Supervisor(heard))
            await supervisors[-1].start(SliceSpec(f"s{number}", (0,)))
            await heard.hear("ready")
            started.append(Process(heard.links[0], heard))
        yield started
    finally:
        for supervisor in supervisors:
            await supervisor.stop(0)
