"""What the control groups of this process (a container's) allow it: memory, and time of cores."""

from collections.abc import Iterator
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def groups(controller: str, proc: Path, cgroups: Path) -> Iterator[tuple[int, Path]]:
    """Yield the version (1 or 2) and the folder of each group that this process is in, and of all above them,
    that may limit what `controller` does."""
    for line in lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            version, root = 2, cgroups
        elif controller in controllers.split(","):
            version, root = 1, cgroups / controller
        else:
            continue
        folder = root / path.lstrip("/")  # in a container it may be the host's path, and then not be there
        for group in (folder, *folder.parents):
            yield version, group
            if group == root:
                break


def quota(proc: Path = PROC, cgroups: Path = CGROUPS) -> float | None:
    """Return the cores' time that may be used in a second, in cores; None where there is no limit.

    It is the least of cpu.max (version 2) or cpu.cfs_quota_us (version 1): what `docker run --cpus` sets.
    """
    found = [share for version, group in groups("cpu", proc, cgroups) for share in _shares(version, group)]
    return min(found, default=None)


def _shares(version: int, group: Path) -> Iterator[float]:
    if version == 2:
        fields = [field for line in lines(group / "cpu.max") for field in line.split()]
    else:
        fields = [*lines(group / "cpu.cfs_quota_us"), *lines(group / "cpu.cfs_period_us")]
    if len(fields) == 2 and all(field.isdecimal() for field in fields) and int(fields[1]):  # not "max", -1
        yield int(fields[0]) / int(fields[1])


def lines(file: Path) -> list[str]:
    """Return the lines of a file; none if it cannot be read."""
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
