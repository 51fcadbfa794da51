"""What models were asked and how it ended, kept beside a scheduler from what it was told and says."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from serving.policy.scaling.interface import LoadReport
from serving.scheduler.waiting.requests import Request
from serving.values.vocabulary import (
    BAD_INPUT,
    CLIENT_GONE,
    COMPLETED,
    DRAINING,
    FORBIDDEN,
    MEMORY_FULL,
    MODEL_ERROR,
    TOO_LARGE,
    UNAUTHENTICATED,
    UNKNOWN_MODEL,
    Outcome,
)
from tests.scheduler.rules import WAITING, Rules

BLAMELESS = (
    BAD_INPUT, CLIENT_GONE, DRAINING, FORBIDDEN, MEMORY_FULL, MODEL_ERROR, TOO_LARGE, UNAUTHENTICATED,
    UNKNOWN_MODEL,
)  # fmt: skip
"""Endings that no replica could have helped."""


@dataclass
class Page:
    """One model's. `ends`: rows of each request that ended, how, whether late, and after how long."""

    came: list[tuple[int, int]] = field(default_factory=list)  # rows, instant
    ends: list[tuple[int, Outcome, bool, int]] = field(default_factory=list)
    computed_us: int = 0


class Book:
    """By model."""

    def __init__(self, models: Iterable[str]) -> None:
        self.pages = {name: Page() for name in models}
        self._since_us = dict.fromkeys(self.pages, -1)

    def serve(self, model: str, now_us: int) -> None:
        if model not in self.pages:
            self.pages[model] = Page()
            self._since_us[model] = now_us

    def forget(self, model: str) -> None:
        del self.pages[model]

    def came(self, request: Request, now_us: int) -> None:
        self.pages[request.model].came.append((request.rows, now_us))

    def ended(self, request: Request, outcome: Outcome, due_us: int, now_us: int) -> None:
        """A request ended, which was due by `due_us` to its own client."""
        end = (request.rows, outcome, now_us > due_us, now_us - request.arrived_us)
        self.pages[request.model].ends.append(end)

    def ran(self, model: str, started_us: int, compute_us: int) -> None:
        """A batch came back; of a model that was forgotten meanwhile it counts for nobody."""
        if model in self.pages and started_us >= self._since_us[model]:
            self.pages[model].computed_us += compute_us

    def check(self, counted: Iterable[LoadReport], rules: Rules, now_us: int) -> None:
        """The scheduler has counted the same."""
        found = {seen.model: seen for seen in counted}
        assert list(found) == list(self.pages)
        for name, page in self.pages.items():
            _check_counts(found[name], page)
            cases = [case for case in rules.open.values() if case.request.model == name]
            ended = sum(rows for rows, *_ in page.ends)
            assert found[name].offered == ended + sum(case.request.rows for case in cases)
            pieces = [
                piece
                for case in cases
                for piece in (case.request.pieces if case.waits else ())
                if case.where(piece) == WAITING
            ]
            assert found[name].waiting == sum(piece.rows for piece in pieces)
            assert found[name].oldest_us == max((now_us - piece.arrived_us for piece in pieces), default=0)
            running = [batch for site in rules.sites.values() for batch in site.running.values()]
            assert found[name].running == sum(batch.rows for batch in running if batch.model == name)


def _check_counts(seen: LoadReport, page: Page) -> None:
    gaps_us = [later - earlier for (_, earlier), (_, later) in pairwise(page.came)]
    done = [end for end in page.ends if end[1] is COMPLETED]
    assert seen.requests == len(page.came)
    assert seen.offered == sum(rows for rows, _ in page.came)
    assert seen.gaps_s2 == pytest.approx(sum((gap_us / 1e6) ** 2 for gap_us in gaps_us))
    assert (seen.completed, seen.answered) == (sum(rows for rows, *_ in done), len(done))
    assert seen.took_us == sum(took_us for *_, took_us in done)
    assert seen.missed == sum(rows for rows, how, late, _ in page.ends if _is_missed(how, late))
    assert seen.busy_us == page.computed_us


def _is_missed(outcome: Outcome, late: bool) -> bool:
    return late if outcome is COMPLETED else outcome not in BLAMELESS
