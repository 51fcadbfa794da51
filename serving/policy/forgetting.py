"""Weights of arms that learn from losses and never forget that things change: exponential weights with a
fixed share, for a horizon that doubles.

Fixed share: Herbster and Warmuth, Tracking the Best Expert (Machine Learning, 1998); among bandits it is
Exp3.S of Auer, Cesa-Bianchi, Freund and Schapire, The Nonstochastic Multiarmed Bandit Problem (SIAM Journal
on Computing, 2002), section 8.
"""

from collections.abc import Mapping
from math import exp, log, log1p, sqrt

HORIZON_FIRST = 64
HORIZON_MAX = 8192
"""Rounds that are planned for. It doubles with the rounds behind (Auer et al. 2002, section 4), and the
weights go on. From HORIZON_MAX on it stays: with more, arms that turn bad would be left ever later; with this
one five arms change places within some thousand rounds (`python -m loadtests.learning`)."""


class Shares:
    """The shares of `arms` weights, 1 in all, equal at first.

    Where an arm's estimated losses are unbiased, and `variance` bounds the expectation of half the sum of
    share times squared estimate (arms / 2 for a bandit, 1/8 where all losses are seen), then the expected
    loss of who draws by these shares is above that of any arm by at most `regret_max`.
    """

    __slots__ = ("_logs", "_variance", "rounds")

    def __init__(self, arms: int, variance: float) -> None:
        """ValueError where there are no arms."""
        if arms < 1:
            raise ValueError("there must be an arm to learn of")
        self._logs = [-log(arms)] * arms  # losses over small probabilities are large: weights would vanish
        self._variance = variance
        self.rounds = 0

    def __len__(self) -> int:
        return len(self._logs)

    def shares(self) -> list[float]:
        """Of each arm."""
        return [exp(each) for each in self._logs]

    def lower(self, losses: Mapping[int, float]) -> None:
        """A round is over: `losses` (0 or more, by arm) are what was seen, or estimated. Arms that are not
        among them sleep, and keep their share (Freund, Schapire, Singer and Warmuth, STOC 1997)."""
        horizon = horizon_of(self.rounds)
        eta = rate_of(len(self), horizon, self._variance)
        logs = self._logs
        before = _log_sum([logs[arm] for arm in losses])
        for arm, loss in losses.items():
            logs[arm] -= eta * loss
        again = before - _log_sum([logs[arm] for arm in losses])
        for arm in losses:
            logs[arm] += again
        keep, gift = log1p(-1 / horizon), -log(horizon * len(self))
        mixed = [_log_sum([each + keep, gift]) for each in logs]
        whole = _log_sum(mixed)
        self._logs = [each - whole for each in mixed]  # rounding would add up
        self.rounds += 1


def horizon_of(rounds: int) -> int:
    """Return what is planned for after so many rounds: from any power of two on for twice as many."""
    return min(max(HORIZON_FIRST, 1 << rounds.bit_length()), HORIZON_MAX)


def rate_of(arms: int, horizon: int, variance: float) -> float:
    """Return the learning rate that makes `regret_max` the least over a horizon."""
    return sqrt((log(arms * horizon) + 1) / (variance * horizon))


def regret_max(rounds: int, arms: int, variance: float) -> float:
    """Return the bound on the expected regret after so many rounds, to any one arm.

    Of each stretch of one horizon: (ln(1/share) - rounds ln(1 - 1/horizon)) / eta + variance eta rounds,
    where the share of an arm is never below 1 / (arms horizon). Summed over stretches it also bounds the
    regret to a sequence of arms that changes only where a stretch begins.
    """
    total, done = 0.0, 0
    least = log(arms)  # equal shares at first
    while done < rounds:
        horizon = horizon_of(done)
        end = min(rounds, HORIZON_FIRST if done == 0 else done + min(done, HORIZON_MAX))
        eta = rate_of(arms, horizon, variance)
        total += (least - (end - done) * log1p(-1 / horizon)) / eta + variance * eta * (end - done)
        least, done = log(arms * horizon), end
    return total


def _log_sum(logs: list[float]) -> float:
    top = max(logs)
    return top + log(sum([exp(each - top) for each in logs]))
