"""What the gateway does where control asks for another plan: `placement: {replan: off | advise | apply}`.

A job makes the plan. A newer reason takes the place of the plan under way. A plan for a state that has
changed meanwhile is made again. `penstock status` shows it with the command that applies it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from router.management.operations.current import Current
from router.management.operations.placement import DONE, PlacementRequestError, PlacementService
from router.observing.status import ProposalStatus, Status
from router.settings import Settings
from router.verbs.place.live.advising import Advice, AdviceTask, advise, without_document
from router.verbs.place.live.outages import Outages
from router.verbs.place.question.rates import rates_of
from serving.control.rollouts.rollout import RolloutState
from serving.planning.proposing import lost_slices
from serving.planning.task import AskedRate
from serving.runtime.fleet import Fleet
from serving.runtime.job import JobError, Work, run
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel

logger = logging.getLogger(__name__)

LIMIT_S: Final = 300.0
"""For a plan, with all its predictions, beside workers that go first."""
OUTCOMES: Final = (
    "off",
    "superseded",
    "stale",
    "failed",
    "none",
    "refused",
    "proposed",
    "applied",
    "given up",
)
"""How an answer to a request for another plan may end, as a metric counts it."""
PLANNING, PROPOSED, APPLIED, GIVEN_UP, NONE = "planning", "proposed", "applied", "given up", "none"

Job = Work[AdviceTask, Advice | str]


@dataclass(frozen=True, slots=True)
class ReplanFacts:
    """What a plan is made from; one for other slices, models or outages is stale."""

    settings: Settings = field(compare=False)
    outages: Outages
    slices: tuple[SliceSpec, ...]
    models: tuple[ServedModel, ...]


class Replanning:
    """Answers requests for another plan, the latest only. Made on the running event loop.

    `outcomes`: how often each of OUTCOMES was so.
    """

    def __init__(
        self,
        fleet: Fleet,
        current: Current,
        placement: PlacementService,
        look: Callable[[], Awaitable[tuple[Status, Mapping[str, float]]]],
        job: Job = advise,
    ) -> None:
        """Take over replanning for the fleet. `look` returns the gateway's status, and the present requests a
        second by model."""
        self.door = ""
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._fleet = fleet
        self._current = current
        self._placement = placement
        self._look = look
        self._job = job
        self._task: asyncio.Task[None] | None = None
        self._shown: tuple[ProposalStatus, ReplanFacts] | None = None
        self._proposed = b""  # the body of the plan that is shown as proposed
        self._tried: set[bytes] = set()  # bodies that were carried out, or given up
        fleet.on_replan = self.replan

    def replan(self, reason: str) -> None:
        """Make another plan, because the desired state cannot be reached. None is made across nodes."""
        settings = self._current.settings
        if settings.placement.replan == "off" or any(each.node for each in settings.slices):
            self.outcomes["off"] += 1
            return
        before, self._task = self._task, asyncio.create_task(self._follow(self._task, reason))
        if before is not None and not before.done():
            self.outcomes["superseded"] += 1
            before.cancel()

    def describe(self) -> ProposalStatus | None:
        """Return the status of the latest plan; None if things have changed since it was made."""
        if self._shown is None or self._facts() != self._shown[1]:
            return None
        return self._shown[0]

    async def take(self) -> str:
        """Carry out the plan that is proposed; return the move's id. Raises PlacementRequestError."""
        shown = self.describe()
        if shown is None or shown["state"] != PROPOSED:
            raise PlacementRequestError(409, ("no plan is proposed at present",))
        return await self._placement.apply(self._proposed)

    async def close(self) -> None:
        """End what runs."""
        self._fleet.on_replan = lambda _reason: None
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self, before: asyncio.Task[None] | None, reason: str) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])  # one child process at a time
            await self._plan(reason)
        except Exception:
            logger.exception("another plan could not be made")
            self.outcomes["failed"] += 1

    async def _plan(self, reason: str) -> None:
        """Plan until the answer is of what is there, then show or apply it."""
        while True:
            await self._steady()
            facts = self._facts()
            self._show(facts, reason, PLANNING, "another plan is being made")
            rates = await self._rates()
            asked = AdviceTask(without_document(facts.settings), reason, facts.outages, rates, self.door)
            outcome = "none"
            try:
                found = await run(self._job, asked, LIMIT_S)
            except JobError as error:
                found, outcome = f"no plan was found: {error}", "failed"
            if facts == self._facts():
                break
            self.outcomes["stale"] += 1
        if isinstance(found, str):
            self.outcomes[outcome] += 1
            self._show(facts, reason, NONE, found)
            logger.warning("there is no better plan: %s", found)
        elif found.refused:
            self.outcomes["refused"] += 1
            self._show(facts, reason, NONE, "the best plan breaks a promise", found)
            logger.warning("there is no better plan: %s", "; ".join(found.refused))
        else:
            await self._take(facts, found)

    async def _take(self, facts: ReplanFacts, found: Advice) -> None:
        if self._current.settings.placement.replan != "apply" or found.body in self._tried:
            self.outcomes["proposed"] += 1
            self._show(facts, found.reason, PROPOSED, found.verdict, found)
            self._proposed = found.body
            logger.warning("there is another plan (%s); this applies it: %s", found.verdict, found.command)
            return
        self._tried.add(found.body)
        logger.warning("another plan is being applied: %s", found.verdict)
        try:
            await self._placement.apply(found.body)
            ended = await self._placement.ended()
        except PlacementRequestError as error:
            self.outcomes["given up"] += 1
            self._show(facts, found.reason, GIVEN_UP, str(error), found)
            logger.warning("the other plan is not applied: %s", error)
            return
        done = ended is not None and ended.result == DONE
        self.outcomes["applied" if done else "given up"] += 1
        why = found.verdict if ended is None or done else "; ".join(ended.reasons)
        self._show(self._facts(), found.reason, APPLIED if done else GIVEN_UP, why, found)

    async def _steady(self) -> None:
        """Wait until nothing is being moved."""
        await self._placement.ended()
        while self._current.movement() is not RolloutState.STEADY:
            await self._fleet.changed()

    async def _rates(self) -> dict[str, AskedRate]:
        """Return the higher of two rates of each model: the mean since the start, and the present one."""
        status, present = await self._look()
        return {
            name: replace(rate, requests=max(rate.requests, present.get(name, 0.0)))
            for name, rate in (await asyncio.to_thread(rates_of, status)).items()
        }

    def _facts(self) -> ReplanFacts:
        settings, fleet = self._current.settings, self._fleet
        shares = {each.name: each.share for each in settings.slices}
        served = {each.name for each in settings.models}
        failing = fleet.failing.found
        lost = lost_slices(fleet.control.slices, failing) & shares.keys()
        pairs = sorted(
            (model, name if shares.get(name) == fleet.specs[name].share else str(fleet.specs[name].share))
            for name, model in failing
            if name in fleet.specs and name not in lost and model in served
        )
        outages = Outages(tuple(sorted(lost)), tuple(dict.fromkeys(pairs)))
        return ReplanFacts(settings, outages, settings.slices, settings.models)

    def _show(
        self, facts: ReplanFacts, reason: str, state: str, sentence: str, found: Advice | None = None
    ) -> None:
        told: ProposalStatus = {
            "reason": reason,
            "state": state,
            "sentence": sentence,
            "slices": dict(found.slices) if found is not None else {},
            "attainment": dict(found.attainment) if found is not None else {},
            "refused": list(found.refused) if found is not None else [],
            "command": found.command if found is not None else "",
        }
        self._shown = told, facts
