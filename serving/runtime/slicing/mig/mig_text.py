"""What `nvidia-smi mig` prints, as values: `-lgip` (profiles), `-lgipp` (placements), `-lgi` (instances)."""

import re
from dataclasses import dataclass

from serving.policy.placement.terms.geometry import Geometry, MigProfile
from serving.runtime.slicing.contract import SlicingError

_PROFILE = re.compile(
    r"\|\s*(?P<gpu>\d+)\s+MIG\s+(?P<name>\S+)\s+(?P<id>\d+)\s+(?P<free>\d+)/(?P<total>\d+)\s+(?P<gib>[\d.]+)"
    r"\s+(?:Yes|No)\s+(?P<sms>\d+)\s"
)
_PLACEMENTS = re.compile(r"GPU\s+(\d+)\s+Profile ID\s+(\d+)\s+Placements?\s*:\s*\{([\d,\s]*)\}:(\d+)")
_INSTANCE = re.compile(r"\|\s*(\d+)\s+MIG\s+(\S+)\s+(\d+)\s+(\d+)\s+(\d+):(\d+)\s*\|")
_NONE = ("No GPU instances found",)


@dataclass(frozen=True, slots=True, order=True)
class Instance:
    """A GPU instance as it is listed; `id` is the driver's."""

    start: int
    size: int
    profile: str
    id: int


def geometry(profiles: str, placements: str, gpu: int) -> Geometry:
    """Return the profiles of a GPU of that index, by `-lgip` and `-lgipp`. SlicingError where one has no line
    in the other or none is listed: what nvidia-smi prints when MIG is off or unknown to the device."""
    placed = {
        int(profile): (tuple(int(start) for start in starts.split(",") if start.strip()), int(size))
        for index, profile, starts, size in _PLACEMENTS.findall(placements)
        if int(index) == gpu
    }
    rows = [row for row in _PROFILE.finditer(profiles) if int(row["gpu"]) == gpu]
    if not rows:
        raise SlicingError(f"GPU {gpu}: nvidia-smi mig -lgip lists no profile: {_first_line(profiles)}")
    missing = [row["name"] for row in rows if int(row["id"]) not in placed]
    if missing:
        raise SlicingError(f"GPU {gpu}: nvidia-smi mig -lgipp lists no placement of {', '.join(missing)}")
    return tuple(
        MigProfile(
            int(row["id"]), row["name"], *placed[int(row["id"])],
            int(row["total"]), float(row["gib"]), int(row["sms"]),
        )
        for row in rows
    )  # fmt: skip


def instances(listed: str, gpu: int) -> tuple[Instance, ...]:
    """Return the GPU instances of `-lgi`, by start; () where it says that there are none."""
    rows = _INSTANCE.findall(listed)
    if not rows and not any(text in listed for text in _NONE):
        raise SlicingError(f"GPU {gpu}: nvidia-smi mig -lgi: {_first_line(listed)}")
    found = (
        Instance(int(start), int(size), name, int(instance))
        for index, name, _, instance, start, size in rows
        if int(index) == gpu
    )
    return tuple(sorted(found))


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip(" +-=|")), "it printed nothing")
