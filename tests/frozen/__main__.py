"""Print digests of decisions and answers as JSON, or compare them with earlier ones.

python -m tests.frozen > before.json
python -m tests.frozen --against before.json       # names each world that differs; exit code 1
"""

import argparse
import json
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from loadtests.virtual.virtual_time import capacity
from loadtests.virtual.virtual_world import World
from serving.control.commands import Command
from serving.simulation.governed.virtual_workers import Happening
from serving.values.specs import BatchingSpec
from tests.frozen.plain import Plain
from tests.simulation.controlled_watch import Watch
from tests.simulation.controlled_worlds import END_US, Asked, Residing, Simple, Solved
from tests.simulation.test_any_seed import Watched, drawn

SCHEDULER_SEEDS = range(20_000, 20_200)
Controlled = type[Simple] | type[Solved] | type[Residing] | type[Asked]
CONTROLLED: list[tuple[Controlled, int]] = [(Simple, 90), (Residing, 90), (Solved, 10), (Asked, 10)]
CAPACITIES = ("slo", "aimd", "clockwork", "nanily", "symphony", "shepherd")


@dataclass(frozen=True)
class Job:
    """A world: its kind and its seed or policy."""

    kind: str
    name: str


def digest(job: Job) -> str:
    """Play a world and return the digest of all that was decided in it."""
    if job.kind == "scheduler":
        return _scheduler(int(job.name))
    if job.kind == "capacity":
        world = World(BatchingSpec(job.name), slo_us=50_000)
        return str(round(capacity(world, 5, 1, 0.02), 3))
    worlds = {world.__name__: world for world, _ in CONTROLLED}
    return _controlled(worlds[job.kind], int(job.name))


def _scheduler(seed: int) -> str:
    case = drawn(seed)
    run = Watched(case, seed)
    run.play(case.arrivals)
    plain = Plain()
    plain.add(run.ended)
    plain.add(run.ran_on)
    return plain.hexdigest()


def _controlled(world: Controlled, seed: int) -> str:
    plain = Plain()
    watch = world(seed).watch(seed)
    heard, commanded = watch.heard, watch.commanded

    def note_heard(slice_name: str, happening: Happening) -> None:
        plain.add((watch.now_us, slice_name, happening))
        heard(slice_name, happening)

    def note_commanded(command: Command) -> None:
        plain.add((watch.now_us, command))
        commanded(command)

    watch.heard, watch.commanded = note_heard, note_commanded  # type: ignore[method-assign]
    assert isinstance(watch, Watch)
    watch.play(END_US)
    return plain.hexdigest()


def jobs() -> list[Job]:
    """Return every world."""
    listed = [Job("scheduler", str(seed)) for seed in SCHEDULER_SEEDS]
    for world, count in CONTROLLED:
        listed += [Job(world.__name__, str(seed)) for seed in range(count)]
    return listed + [Job("capacity", policy) for policy in CAPACITIES]


def differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the names of worlds whose digests differ."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def main() -> int:
    """Play all worlds; exit code 1 where one differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.frozen")
    parser.add_argument("--against", type=Path, help="digests of an earlier run")
    options = parser.parse_args()
    listed = jobs()
    with ProcessPoolExecutor(2) as pool:
        found = pool.map(digest, listed, chunksize=4)
        now = {f"{job.kind} {job.name}": each for job, each in zip(listed, found, strict=True)}
    if options.against is None:
        json.dump(now, sys.stdout, indent=1)
        return 0
    differ = differing(json.loads(options.against.read_text()), now)
    sys.stdout.write(("\n".join(differ) or f"all {len(now)} digests are equal") + "\n")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())
