"""A thousand rollouts in virtual time: wrong verdicts of sequential tests, and of fixed thresholds.

    python -m loadtests.virtual.rollouts [--rollouts 1000] [--rates 20 200] [--seed 1] [--kinds right]

Each rollout takes the steps 5, 25, 50 %, held for two minutes each, looked at each second. Every few minutes
something disturbs both models for a while, as a busy neighbour does: fewer requests are in time then. The
rules of Argo Rollouts and of Flagger see the candidate alone, as their documentation has them:

- argo: the success rate of each half minute must be at least 95 %; more than 3 failures roll back
  (https://argo-rollouts.readthedocs.io/en/stable/features/analysis/).
- flagger: at least 99 % each half minute; 5 failures roll back
  (https://docs.flagger.app/usage/how-it-works).

A request that fails or is late is no success for either. "broken": the share of all requests that the
candidate had and did not answer in time.

Of some candidates, a tenth of the answers of both models gets a label at once: the present model is right on
92 %. Neither of the other rules has a word for that.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from serving.policy.rollouts.course import Course, CourseState, Totals
from serving.policy.rollouts.evidence import Trials
from serving.policy.rollouts.labelled import LabelBlock
from serving.values.rollouts import ACCURACY, ATTAINMENT, ERRORS, RolloutSpec

HOLD_S, LOOK_S = 120, 30
LIMIT_S = 3600
STEPS = (0.05, 0.25, 0.5, 1.0)
SPEC = RolloutSpec("m", STEPS, HOLD_S * 1_000_000, margins={ATTAINMENT: 0.01, ERRORS: 0.005})
LABELLED = replace(SPEC, margins={**SPEC.margins, ACCURACY: 0.02})
RIGHT, LABELS = 0.92, 0.1
GOOD, BAD = "good", "bad"


@dataclass(frozen=True)
class Kind:
    """A candidate: how many more of its requests are late, and how many fail. `truth`: what is right.
    `less_right`: how many fewer of its answers are right; None where no label tells."""

    name: str
    late: float
    failing: float
    truth: str
    less_right: float | None = None


KINDS = (
    Kind("the same", 0.0, 0.0, GOOD),
    Kind("0.3 % late more", 0.003, 0.0, GOOD),
    Kind("3 % late more", 0.03, 0.0, BAD),
    Kind("10 % late more", 0.10, 0.0, BAD),
    Kind("2 % fail", 0.0, 0.02, BAD),
    Kind("half fail", 0.0, 0.5, BAD),
    Kind("as often right", 0.0, 0.0, GOOD, 0.0),
    Kind("5 % less right", 0.0, 0.0, BAD, 0.05),
    Kind("20 % less right", 0.0, 0.0, BAD, 0.2),
)


@dataclass
class Run:
    """How one ended: "promoted", "rolled back" or "open", after how many seconds, and what it broke."""

    end: str
    seconds: int
    broken: float


class Traffic:
    """Requests a second of both models, by the share of the candidate."""

    def __init__(self, kind: Kind, rate: float, rng: np.random.Generator) -> None:
        self.kind, self._rate, self._rng = kind, rate, rng
        self._late = np.full(LIMIT_S + 1, 0.003)
        at = 0.0
        while at < LIMIT_S:  # a disturbance every five minutes, of half a minute
            at += rng.exponential(300.0)
            lasts, size = rng.exponential(30.0), rng.uniform(0.02, 0.15)
            self._late[int(at) : int(at + lasts)] += size

    def second(self, at_s: int, share: float) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return (asked, good, failed) of the present model and of the candidate."""
        asked = int(self._rng.poisson(self._rate))
        new = int(self._rng.binomial(asked, share))
        return self._outcomes(asked - new, at_s, None), self._outcomes(new, at_s, self.kind)

    def labels(self, asked: int, new: int) -> LabelBlock:
        """Return the labels of a second, on answers of the present model and of the candidate."""
        less = self.kind.less_right
        return LabelBlock() if less is None else LabelBlock(self._right(asked, 0.0), self._right(new, less))

    def _right(self, answers: int, less: float) -> Trials:
        count = int(self._rng.binomial(answers, LABELS))
        return Trials(int(self._rng.binomial(count, RIGHT - less)), count)

    def _outcomes(self, asked: int, at_s: int, kind: Kind | None) -> tuple[int, int, int]:
        late, failing = self._late[at_s], 0.0
        if kind is not None:
            late, failing = min(late + kind.late, 1.0), kind.failing
        failed = int(self._rng.binomial(asked, failing))
        return asked, asked - failed - int(self._rng.binomial(asked - failed, late)), failed


def sequential(traffic: Traffic) -> Run:
    """Roll out as the gateway does."""
    course = Course(SPEC if traffic.kind.less_right is None else LABELLED)
    old, new, labels = Totals(), Totals(), LabelBlock()
    course.look(0, True, old, new)
    broken = total = 0
    for at_s in range(1, LIMIT_S):
        before, candidate = traffic.second(at_s, course.share)
        old, new = _added(old, before), _added(new, candidate)
        total += before[0] + candidate[0]
        broken += candidate[0] - candidate[1]
        labels += traffic.labels(before[0], candidate[0])
        if labels.compares:
            course.label([labels])
            labels = LabelBlock()
        course.look(at_s * 1_000_000, True, old, new)
        if course.state is not CourseState.CANARY:
            return Run(str(course.state), at_s, broken / max(total, 1))
    return Run("open", LIMIT_S, broken / max(total, 1))


def _added(totals: Totals, second: tuple[int, int, int]) -> Totals:
    asked, good, failed = second
    return Totals(totals.offered + asked, totals.good + good, totals.ended + asked, totals.failed + failed)


def thresholds(least: float, failures_max: int) -> Callable[[Traffic], Run]:
    """Return a rule that sees the candidate alone: the share of each LOOK_S must be at least `least`, and
    more than so many failures roll back."""

    def roll_out(traffic: Traffic) -> Run:
        failures = broken = total = 0
        at_s = 0
        for share in STEPS[:-1]:
            for _ in range(HOLD_S // LOOK_S):
                asked = good = 0
                for _ in range(LOOK_S):
                    at_s += 1
                    before, candidate = traffic.second(at_s, share)
                    total += before[0] + candidate[0]
                    asked, good = asked + candidate[0], good + candidate[1]
                broken += asked - good
                failures += asked > 0 and good / asked < least
                if failures > failures_max:
                    return Run("rolled back", at_s, broken / max(total, 1))
        return Run("promoted", at_s, broken / max(total, 1))

    return roll_out


RULES: dict[str, Callable[[Traffic], Run]] = {
    "penstock": sequential,
    "argo": thresholds(0.95, 3),
    "flagger": thresholds(0.99, 4),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Wrong verdicts of rollouts.")
    parser.add_argument("--rollouts", type=int, default=1000)
    parser.add_argument("--rates", type=float, nargs="+", default=[20.0, 200.0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="", help="only those with this in their name")
    given = parser.parse_args()
    for rate in given.rates:
        print(f"{rate:g} requests/s, {given.rollouts} rollouts of each kind by each rule")
        print(
            f"{'candidate':18}{'rule':10}{'promoted':>9}{'rolled back':>12}{'open':>7}{'end':>8}{'broken':>9}"
        )
        for number, kind in enumerate(KINDS):
            if given.kinds not in kind.name:
                continue
            for rule, roll_out in RULES.items():
                runs = [
                    roll_out(Traffic(kind, rate, np.random.default_rng([given.seed, number, each])))
                    for each in range(given.rollouts)
                ]
                shares = [
                    sum(run.end == end for run in runs) / len(runs)
                    for end in ("promoted", "rolled back", "open")
                ]
                ended = median(run.seconds for run in runs)
                broken = sum(run.broken for run in runs) / len(runs)
                promoted, back, still = (f"{each:.1%}" for each in shares)
                print(
                    f"{kind.name:18}{rule:10}{promoted:>9}{back:>12}{still:>7}{ended:>6.0f} s{broken:>9.2%}"
                )


if __name__ == "__main__":
    main()
