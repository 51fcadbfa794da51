"""Follows what requests look like, and says where it has shifted; kept beside penstock.yaml."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from router.management.rounds import rounds
from router.observing.status.attention import SHIFTED
from router.observing.telemetry.counting.answers import ANSWER_KINDS, AnswerCounts
from router.observing.telemetry.counting.journal import Journal
from router.observing.telemetry.counting.shapes import HOUR_S, KINDS, ModelShapes
from router.settings.values.kept_json import KeptJson, kept_path

logger = logging.getLogger("penstock.shifts")

LOOK_S: Final = 60.0
"""Of a busier minute than the journal holds, the last requests are counted."""


class ShiftBoard:
    """All models. `settings`: the file beside which counts are kept; `now_s`: Unix time. `answers`: of
    classifiers, by model; read at each look."""

    def __init__(
        self,
        journal: Journal,
        settings: Path,
        now_s: Callable[[], float] = time.time,
        answers: Mapping[str, AnswerCounts] = MappingProxyType({}),
    ) -> None:
        self._journal = journal
        self._answers = answers
        self._file = KeptJson(kept_path(settings, "shapes"), "what is usual", logger)
        self._now_s = now_s
        self._models: dict[str, ModelShapes] = self._file.read(_models, {})
        self._seen = journal.ended
        self._hour = int(now_s() // HOUR_S)
        self._said: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Look each minute, until cancelled."""

        async def look() -> None:
            if self.look():
                await self.keep()

        await rounds(look, LOOK_S, logger, "what requests look like could not be counted")

    def look(self) -> bool:
        """Count what has ended since the last look; return whether an hour is over."""
        for entry in self._journal.latest(self._journal.ended - self._seen):
            self._models.setdefault(entry.model, ModelShapes()).add(entry)
        self._seen = self._journal.ended
        for name, answers in self._answers.items():
            if any((drained := answers.drain()).values()):
                self._models.setdefault(name, ModelShapes()).add_counts(drained)
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
            of = "answers of" if kind in ANSWER_KINDS else "requests for"
            logger.warning("the %s of %s %s are others than in the last days", kind, of, name)
        self._said = now

    async def keep(self) -> None:
        """Keep what is usual."""
        usual = {name: each.usual for name, each in self._models.items()}
        await asyncio.to_thread(self._file.keep, usual)


def _models(kept: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, ModelShapes]:
    return {str(name): _shapes(usual) for name, usual in kept.items()}


def _shapes(usual: Mapping[str, Mapping[str, float]]) -> ModelShapes:
    made = ModelShapes()
    for kind in KINDS:
        counts = usual.get(kind, {}) if kind in ANSWER_KINDS else usual[kind]  # older files have no answers
        made.usual[kind] = {str(key): float(count) for key, count in counts.items()}
    return made
