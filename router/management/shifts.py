"""Follows what requests look like, and says where it has shifted; kept beside penstock.yaml."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from router.observing.status.attention import SHIFTED
from router.observing.telemetry.counting.journal import Journal
from router.observing.telemetry.counting.shapes import HOUR_S, KINDS, ModelShapes
from serving.profile.files.shared_files import read_regular, replace_file

logger = logging.getLogger("penstock.shifts")

LOOK_S: Final = 60.0
"""Of a busier minute than the journal holds, the last requests are counted."""
FILE_BYTES_MAX: Final = 16 << 20


class ShiftBoard:
    """All models. `settings`: the file beside which counts are kept; `now_s`: Unix time."""

    def __init__(self, journal: Journal, settings: Path, now_s: Callable[[], float] = time.time) -> None:
        self._journal = journal
        self._file = settings.parent / ".penstock" / f"{settings.stem}.shapes.json"
        self._now_s = now_s
        self._models: dict[str, ModelShapes] = _read(self._file)
        self._seen = journal.ended
        self._hour = int(now_s() // HOUR_S)
        self._said: set[tuple[str, str]] = set()
        self._unkept = ""  # why the counts could not be kept the last time
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look each minute from now on."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Look no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                if self.look():
                    await asyncio.to_thread(self._keep, self._text())
            except Exception:
                logger.exception("what requests look like could not be counted")

    def look(self) -> bool:
        """Count what has ended since the last look; return whether an hour is over."""
        for entry in self._journal.latest(self._journal.ended - self._seen):
            self._models.setdefault(entry.model, ModelShapes()).add(entry)
        self._seen = self._journal.ended
        hour = int(self._now_s() // HOUR_S)
        turns, self._hour = min(max(hour - self._hour, 0), 24), hour
        for _ in range(turns):
            for each in self._models.values():
                each.turn()
        self._say()
        return turns > 0

    def describe(self) -> dict[str, dict[str, float]]:
        """Return by model and kind how far its requests are from what is usual."""
        return {name: shifts for name, each in self._models.items() if (shifts := each.shifts())}

    def _say(self) -> None:
        now = {
            (name, kind)
            for name, kinds in self.describe().items()
            for kind, far in kinds.items()
            if far >= SHIFTED
        }
        for name, kind in sorted(now - self._said):
            logger.warning("the %s of requests for %s are others than in the last days", kind, name)
        self._said = now

    def _text(self) -> str:
        return json.dumps({name: each.usual for name, each in self._models.items()}) + "\n"

    def _keep(self, text: str) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._file, text)
            self._unkept = ""
        except OSError as error:
            why = error.strerror or str(error)
            if why != self._unkept:  # a folder that cannot be written to is said once
                logger.warning("what is usual cannot be kept: %s: %s", self._file, why)
            self._unkept = why


def _read(file: Path) -> dict[str, ModelShapes]:
    """Return what was kept; nothing if there is none, or if it cannot be read."""
    try:
        kept = json.loads(read_regular(file, FILE_BYTES_MAX))
        return {str(name): _shapes(usual) for name, usual in kept.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        logger.warning("what is usual cannot be read: %s: %s", file, error)
        return {}


def _shapes(usual: Mapping[str, Mapping[str, float]]) -> ModelShapes:
    made = ModelShapes()
    made.usual = {kind: {str(key): float(count) for key, count in usual[kind].items()} for kind in KINDS}
    return made
