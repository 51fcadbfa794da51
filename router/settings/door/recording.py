"""`recording:` as a RecordingSpec: whether, where and how much of the arrivals is recorded."""

import os
from pathlib import Path

from router.settings.values.findings import Findings
from router.settings.values.problems import fault
from router.settings.values.schema import RecordingSection
from serving.values.specs import RecordingSpec

_LOC = ("recording",)


def read_recording(findings: Findings) -> RecordingSpec | None:
    """Return the section if it is there; its folder, which need not exist, has to be one that can be written
    to."""
    if not isinstance(findings.document.at(_LOC), dict):
        return None
    section = findings.parse(RecordingSection, _LOC)
    if section is None:
        return None
    folder = Path(os.path.abspath(findings.document.file.parent / section.folder))
    obstacle = _obstacle(folder)
    if obstacle:
        findings.add((*_LOC, "folder"), fault(obstacle, folder, "a folder that can be made and written to"))
    spec = RecordingSpec(folder)
    return RecordingSpec(
        folder,
        spec.file_bytes if section.file_mb is None else round(section.file_mb * (1 << 20)),
        spec.files if section.files is None else section.files,
    )


def _obstacle(folder: Path) -> str:
    """Return why no file can be made in the folder, or ""."""
    place = folder
    try:
        os.path.realpath(folder)
    except ValueError:  # a zero byte, half a character
        return "no possible name"
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    if not os.path.isdir(place):
        return "not a folder" if place == folder else f"{str(place)!r} is not a folder"
    return "" if os.access(place, os.W_OK | os.X_OK) else f"{str(place)!r} is not writable"
