"""Carries guarded rollouts out: looks at both models each second, and moves the share of the candidate.

How a rollout ended is kept beside penstock.yaml, by the revision of the candidate's files. So a gateway that
starts again serves as before, and a candidate with other files is rolled out again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Final

from router.management.operations.repository.refusals import RepositoryError
from router.management.rounds import rounds
from router.observing.rollout_status import MeasureStatus, RolloutStatus, no_candidate
from router.observing.telemetry import Counters, Telemetry
from router.settings.served.ends import Ends, ends_file, logger, read_ends
from serving.policy.rollouts.course import ENDS, Course, CourseState, Totals
from serving.policy.rollouts.evidence import Trials
from serving.ports import Serving
from serving.runtime.calls.splitting import Shadow, Split, Splits
from serving.values.rollouts import ACCURACY, RolloutSpec
from serving.values.specs import ServedModel
from serving.values.versions import MARK, version_name

LOOK_S: Final = 1.0
NEVER: Final = -1


class RolloutError(Exception):
    """It cannot be done; the text says why. `status`: of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RolloutBoard:
    """All rollouts, by the model whose place is to be taken. `serving`: the models of this gateway, without
    other cells'; `settings`: the file beside which the ends of rollouts are kept. `renew`: lets a model be
    served as its files and the kept ends say; raises RepositoryError."""

    def __init__(
        self,
        serving: Serving,
        telemetry: Telemetry,
        splits: Splits,
        settings: Path,
        renew: Callable[[str], Awaitable[None]],
    ) -> None:
        self._serving = serving
        self._telemetry = telemetry
        self._splits = splits
        self._file = ends_file(settings)
        self._renew = renew
        self._promoted_us: dict[str, int] = {}  # versions that are not yet the present ones
        self._courses: dict[str, tuple[ServedModel, Course]] = {}
        self._keeping = asyncio.Lock()  # the last one to ask writes last
        self._ends: Ends = read_ends(settings)
        self._noted = False  # there is more to keep than courses
        self.follow()

    def follow(self) -> None:
        """Follow the served models: candidates come, change and go."""
        wanted = {each.rollout.of: each for each in self._serving.models.values() if each.rollout is not None}
        for of in [of for of in self._courses if of not in wanted]:
            candidate, _ = self._courses.pop(of)
            logger.info("%s is no candidate for the place of %s any more", candidate.name, of)
        for of, candidate in wanted.items():
            before = self._courses.get(of)
            if before is None or (before[0].name, before[0].revision, before[1].spec) != (
                candidate.name, candidate.revision, candidate.rollout
            ):  # fmt: skip
                self._courses[of] = candidate, self._course(candidate)
            else:
                self._courses[of] = candidate, before[1]
        self._trust({each for each in self._serving.models if each not in wanted})
        self._apply()

    def _trust(self, names: Collection[str]) -> None:
        """Note the versions that are served without a candidate: a rollout that is stated later begins with
        the next version, and takes nothing from these."""
        for name in names:
            model = self._serving.models[name]
            key, spec = version_name(name, model.spec.version), model.spec
            if not spec.version or name != spec.model_name or not model.revision:
                continue
            end = self._ends.get(key, {})
            promoted = CourseState.PROMOTED.value
            if (end.get("state"), end.get("revision")) != (promoted, model.revision):
                why = "it was served without a rollout"
                self._ends[key] = {"of": name, "revision": model.revision, "state": promoted, "why": why}
                self._noted = True

    def _course(self, candidate: ServedModel) -> Course:
        spec = candidate.rollout
        assert isinstance(spec, RolloutSpec)  # noqa: S101  # candidates have one
        course = Course(spec)
        kept = self._ends.get(candidate.name)
        ended = kept is not None and kept["state"] in ENDS
        if kept is not None and ended and (kept["revision"], kept["of"]) == (candidate.revision, spec.of):
            course.state, course.why = CourseState(kept["state"]), kept["why"]
        return course

    async def run(self) -> None:
        """Look each second, until cancelled."""

        async def look() -> None:
            if self.look():
                await self.keep()
            await self.take_places()

        await rounds(look, LOOK_S, logger, "rollouts could not be looked at")

    def look(self) -> bool:
        """Look at all rollouts that have not ended; return whether any has changed."""
        now_us, changed, self._noted = self._serving.now_us(), self._noted, False
        for of, (candidate, course) in self._courses.items():
            if course.state in ENDS or of not in self._serving.models:
                continue
            ready = self._serving.model_ready(candidate.name)
            present, own = self._totals(of, now_us), self._totals(candidate.name, now_us)
            own = replace(own, agreed=self._splits.compared.get(of, Trials()))
            if book := self._splits.labels.books.get(of):
                course.label(book.drain())
            if course.look(now_us, ready, present, own):
                changed = True
                self._say(of, candidate, course)
        if changed or self._wanted() != self._splits.by_model:
            self._apply()
        return changed

    async def take_places(self) -> None:
        """Let each version that was promoted a hold ago be the present version; until then the one before is
        there for an `abort`."""
        now_us = self._serving.now_us()
        promoted = {
            of: candidate
            for of, (candidate, course) in self._courses.items()
            if course.state is CourseState.PROMOTED and MARK in candidate.name
        }
        self._promoted_us = {of: self._promoted_us.get(of, now_us) for of in promoted}
        for of, candidate in promoted.items():
            since_us, hold_us = self._promoted_us[of], self._courses[of][1].spec.hold_us
            if since_us == NEVER or now_us - since_us < hold_us:
                continue
            self._promoted_us[of] = NEVER  # not again, whatever comes of it
            try:
                await self._renew(of)
            except RepositoryError as error:
                logger.warning("%s cannot take the place of %s: %s", candidate.name, of, error.message)
            else:
                logger.info("%s is version %d from now on", of, candidate.spec.version)

    def act(self, model: str, act: str) -> RolloutStatus:
        """Do what an operator asks ("start", "promote" or "abort"), and return the rollout; `keep` is
        next. Raises RolloutError."""
        found = self._courses.get(model)
        if found is None:
            what = no_candidate(model)
            known = f"{', '.join(self._courses)} has one" if self._courses else "nor has any other model"
            raise RolloutError(404, f"{what}; {known}")
        candidate, course = found
        acts: dict[str, Callable[[], None]] = {
            "start": course.restart, "promote": course.promote, "abort": course.abort,
        }  # fmt: skip
        if act == "promote" and not self._serving.model_ready(candidate.name):
            raise RolloutError(409, f"{candidate.name} has no replica that is ready")
        acts[act]()
        self._say(model, candidate, course)
        self._apply()
        return self._status(model, candidate, course)

    def describe(self) -> list[RolloutStatus]:
        """Return all rollouts."""
        return [self._status(of, *each) for of, each in self._courses.items()]

    def shares(self) -> Mapping[tuple[str, str], float]:
        """Return the share of each candidate, by model and candidate."""
        return {(of, candidate.name): course.share for of, (candidate, course) in self._courses.items()}

    def _status(self, of: str, candidate: ServedModel, course: Course) -> RolloutStatus:
        spec = course.spec
        worse, fine = log(spec.tests / spec.alarm), -log(spec.doubt)
        goes_on = course.state in (CourseState.SHADOW, CourseState.CANARY)
        held_us = self._serving.now_us() - course.since_us if goes_on else 0
        return RolloutStatus(
            model=of,
            candidate=candidate.name,
            state=course.state.value,
            share=course.share,
            step=course.step + 1,
            steps=[*spec.steps],
            held_s=held_us / 1e6,
            hold_s=spec.hold_us / 1e6,
            why=course.why,
            measures=[
                MeasureStatus(
                    measure=measure,
                    present=each.baseline.rate if each.known is None else each.known,
                    candidate=each.candidate.rate,
                    requests=each.candidate.count,
                    worse=_share(each.worse, worse),
                    fine=_share(each.fine, fine),
                )
                for measure, each in course.evidence.items()
            ],
        )

    def _totals(self, model: str, now_us: int) -> Totals:
        try:
            counters: Counters = self._telemetry.counters(model, now_us)
        except KeyError:
            return Totals()
        return Totals(
            counters["offered"],
            counters["good"],
            counters["completed"] + sum(counters["failed"].values()),
            sum(counters["failed"].values()),
            tuple(counters["latency_counts"]),
        )

    def _apply(self) -> None:
        """Let requests go where the courses say."""
        wanted = self._wanted()
        self._splits.by_model.clear()
        self._splits.by_model.update(wanted)
        self._splits.shadows.clear()
        for of, (candidate, course) in self._courses.items():
            if course.state is CourseState.SHADOW:
                self._splits.shadows[of] = Shadow(candidate, course.spec.shadow)
        self._splits.labels.follow(
            {
                of: (self._serving.models[of], candidate)
                for of, (candidate, course) in self._courses.items()
                if ACCURACY in course.spec.margins and course.state not in ENDS and of in self._serving.models
            }
        )

    def _wanted(self) -> dict[str, Split]:
        """Return the splits, by model: none for a candidate that is not ready, whatever it was promised."""
        return {
            of: Split(candidate, course.share, course.spec.sticky)
            for of, (candidate, course) in self._courses.items()
            if course.share > 0 and candidate.name in self._serving.models
            and self._serving.model_ready(candidate.name)
        }  # fmt: skip

    def _say(self, of: str, candidate: ServedModel, course: Course) -> None:
        level = logging.WARNING if course.state is CourseState.ROLLED_BACK else logging.INFO
        share = f"{candidate.name} gets {course.share * 100:g} % of the requests for {of}"
        logger.log(level, "%s (%s): %s", share, course.state.value, course.why)

    async def keep(self) -> None:
        """Keep how rollouts stand; one that has not ended begins from its first step after a restart.

        Of versions it also keeps how earlier rollouts ended: from it follows which one a candidate replaces.
        """
        earlier = {name: end for name, end in self._ends.items() if MARK in name}
        self._ends = earlier | {
            candidate.name: {
                "of": of, "revision": candidate.revision, "state": course.state.value, "why": course.why
            }
            for of, (candidate, course) in self._courses.items()
        }  # fmt: skip
        async with self._keeping:
            await asyncio.to_thread(self._file.keep, self._ends)


def _share(evidence: float, limit: float) -> float:
    return min(max(evidence / limit, 0.0), 1.0)
