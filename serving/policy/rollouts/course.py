"""The course of a rollout: which share of the requests the candidate has, and why. It reads no clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log
from typing import Final

from serving.policy.rollouts.evidence import NONE, Evidence, Trials
from serving.policy.rollouts.labelled import LabelBlock, LabelledEvidence
from serving.values.rollouts import ACCURACY, AGREEMENT, ATTAINMENT, ERRORS, LATENCY, SHADOWED, RolloutSpec

QUANTILE: Final = 0.99
"""A request is slow if it takes longer than this share of the present model's."""
ODDS_MAX: Final = 1e6
"""Of evidence, in sentences."""
WORDS: Final = {
    ATTAINMENT: "answers in time",
    ERRORS: "does not fail",
    LATENCY: "is as quick",
    AGREEMENT: "agrees",
    ACCURACY: "is right",
}


class CourseState(StrEnum):
    """Where a rollout is. The last three are ends."""

    WAITING = "waiting"
    SHADOW = "shadow"
    CANARY = "canary"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled back"
    ABORTED = "aborted"


ENDS: Final = (CourseState.PROMOTED, CourseState.ROLLED_BACK, CourseState.ABORTED)


@dataclass(frozen=True, slots=True)
class Totals:
    """Growing counts of a model. `durations`: answers by bucket, () without any. `agreed`: of a candidate's
    copies."""

    offered: int = 0
    good: int = 0
    ended: int = 0
    failed: int = 0
    durations: tuple[int, ...] = ()
    agreed: Trials = NONE


class Course:
    """One rollout. `evidence`: by measure, of the present step, and of all of them for accuracy, which the
    load does not change. `why`: how it came there, in a sentence."""

    def __init__(self, spec: RolloutSpec) -> None:
        self.spec = spec
        self.state = CourseState.WAITING
        self.step = 0
        self.since_us = 0
        self.why = "the candidate is not ready"
        self.evidence: dict[str, Evidence] = {}
        self._seen = Totals(), Totals()
        self._slow_from = 0  # the first bucket of slow answers

    @property
    def share(self) -> float:
        """The share of requests that the candidate gets now."""
        if self.state is CourseState.PROMOTED:
            return 1.0
        return self.spec.steps[self.step] if self.state is CourseState.CANARY else 0.0

    def label(self, blocks: Sequence[LabelBlock]) -> None:
        """Take the labels since the last look; the next one goes by them. Before the first step they count
        for nothing."""
        if self._labelled is not None:
            for block in blocks:
                self._labelled.add_block(block)

    def look(self, now_us: int, ready: bool, baseline: Totals, candidate: Totals) -> bool:
        """Take a look at both; return whether state or step has changed. `ready`: of the candidate."""
        if self.state is CourseState.WAITING and ready:
            if not self.spec.shadow and len(self.spec.steps) == 1:
                return self._end(CourseState.PROMOTED, "it is ready, and no step comes before 100 %")
            self._begin(-1 if self.spec.shadow else 0, now_us, baseline, candidate)
            return True
        if self.state not in (CourseState.SHADOW, CourseState.CANARY):
            return False
        if not ready:
            return self._end(CourseState.ROLLED_BACK, "the candidate has no replica that is ready")
        self._learn(baseline, candidate)
        if broken := self._broken():
            return self._end(CourseState.ROLLED_BACK, worse_sentence(*broken))
        held_us = now_us - self.since_us
        if held_us < self.spec.hold_us:
            self.why = f"{held_us / 1e6:.0f} s of {self.spec.hold_us / 1e6:g} s are over"
            return False
        if unknown := self._unknown():
            self.why = f"held: {open_sentence(*unknown, self.spec.doubt)}"
            return False
        if self.step + 1 >= len(self.spec.steps) - 1:
            tried = f"at {self.share:.0%} of the requests" if self.share else "by copies"
            return self._end(CourseState.PROMOTED, f"no margin was broken {tried}")
        self._begin(self.step + 1, now_us, baseline, candidate)
        return True

    def promote(self) -> None:
        """Give the candidate all requests, as an operator says so."""
        self._end(CourseState.PROMOTED, "an operator promoted it")

    def abort(self) -> None:
        """Give the candidate no request any more, as an operator says so."""
        self._end(CourseState.ABORTED, "an operator aborted it")

    def restart(self) -> None:
        """Begin from the first step."""
        self.state, self.step, self.why, self.evidence = CourseState.WAITING, 0, "it begins again", {}

    def _begin(self, step: int, now_us: int, baseline: Totals, candidate: Totals) -> None:
        """Begin a step; -1: that of copies."""
        self.state = CourseState.CANARY if step >= 0 else CourseState.SHADOW
        self.step, self.since_us = step, now_us
        self.why = f"0 s of {self.spec.hold_us / 1e6:g} s are over"
        labelled = self._labelled
        self.evidence = {
            measure: Evidence(margin, 1.0 if measure == AGREEMENT else None)
            for measure, margin in self.spec.margins.items()
            if (measure in SHADOWED if step < 0 else measure not in (AGREEMENT, ACCURACY))
        }
        if ACCURACY in self.spec.margins:
            self.evidence[ACCURACY] = labelled or LabelledEvidence(self.spec.margins[ACCURACY])
        self._seen = baseline, candidate
        self._slow_from = slow_from(baseline.durations)

    @property
    def _labelled(self) -> LabelledEvidence | None:
        found = self.evidence.get(ACCURACY)
        return found if isinstance(found, LabelledEvidence) else None

    def _end(self, state: CourseState, why: str) -> bool:
        self.state, self.why = state, why
        return True

    def _learn(self, baseline: Totals, candidate: Totals) -> None:
        before, at_first = self._seen
        old, new = self._trials(before, baseline), self._trials(at_first, candidate)
        self._seen = baseline, candidate
        for measure in self.evidence.keys() & old.keys():
            self.evidence[measure].add(old[measure], new[measure])

    def _trials(self, before: Totals, now: Totals) -> dict[str, Trials]:
        was = before.durations or (0,) * len(now.durations)
        durations = [count - old for count, old in zip(now.durations, was, strict=True)]
        ended, failed = now.ended - before.ended, now.failed - before.failed
        return {
            ATTAINMENT: Trials(now.good - before.good, now.offered - before.offered),
            ERRORS: Trials(ended - failed, ended),
            LATENCY: Trials(sum(durations[: self._slow_from]), sum(durations)),
            AGREEMENT: now.agreed - before.agreed,
        }

    def _broken(self) -> tuple[str, Evidence] | None:
        """Return the measure whose margin is broken, None for none. All margins and steps share the alarm."""
        limit = log(self.spec.tests / self.spec.alarm)
        broken = [each for each in self.evidence.items() if each[1].worse >= limit]
        return max(broken, key=lambda each: each[1].worse, default=None)

    def _unknown(self) -> tuple[str, Evidence] | None:
        """Return the measure of which it is known least whether its margin holds; None where all do. Labels
        take their time: the step of copies does not wait for them."""
        limit, waits = -log(self.spec.doubt), self.state is not CourseState.SHADOW
        asked = ((name, each) for name, each in self.evidence.items() if waits or name != ACCURACY)
        still = [each for each in asked if each[1].fine < limit]
        return min(still, key=lambda each: each[1].fine, default=None)


def slow_from(durations: tuple[int, ...]) -> int:
    """Return the first bucket that is slow: all before it have QUANTILE of the answers."""
    total, below = sum(durations), 0
    for place, count in enumerate(durations):
        below += count
        if total and below >= QUANTILE * total:
            return place + 1
    return len(durations)


def worse_sentence(measure: str, found: Evidence) -> str:
    """Return why a candidate is worse."""
    over = "over " if found.worse > log(ODDS_MAX) else ""
    odds = exp(min(found.worse, log(ODDS_MAX)))
    return f"{rates_sentence(measure, found)}; the odds against chance are {over}{odds:,.0f} to 1"


def open_sentence(measure: str, found: Evidence, doubt: float) -> str:
    """Return what is not known yet."""
    share = min(max(found.fine, 0.0) / -log(doubt), 1.0)
    return f"{rates_sentence(measure, found)}; {share:.0%} of the evidence that it is not worse is there"


def rates_sentence(measure: str, found: Evidence) -> str:
    """Return the rates of both."""
    if measure == ACCURACY and not found.candidate.count:
        return "labels on answers of both models are missing"
    if found.known is not None:
        return f"it {WORDS[measure]} on {found.candidate.rate:.2%} of {found.candidate.count:,} copies"
    return (
        f"it {WORDS[measure]} for {found.candidate.rate:.2%} of {found.candidate.count:,} requests, "
        f"the present model for {found.baseline.rate:.2%} of {found.baseline.count:,} at the same time"
    )
