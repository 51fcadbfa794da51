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
one five arms change places within some thousand rounds (`python -m loadtests.selection.learning`)."""


class Shares:
    """The shares of `arms` weights, 1 in all, equal at first.

    Assume that an arm's estimated losses are unbiased, and that `variance` bounds the expectation of half the
    sum of share times squared estimate. `variance` is arms / 2 for a bandit, 1/8 if all losses are seen. Then
    the expected loss of a draw by these shares is above any arm's loss by at most `regret_max`.
    """

    __slots__ = ("_logs", "_variance", "rounds")

    def __init__(self, arms: int, variance: float) -> None:
        """Start with equal shares. Raises ValueError if there are no arms."""
        if arms < 1:
            raise ValueError("there must be an arm to learn of")
        self._logs = [-log(arms)] * arms  # losses over small probabilities are large: weights would vanish
        self._variance = variance
        self.rounds = 0

    def __len__(self) -> int:
        return len(self._logs)

    def shares(self) -> list[float]:
        """Return the share of each arm."""
        return [exp(each) for each in self._logs]

    def lower(self, losses: Mapping[int, float]) -> None:
        """Lower the shares at the end of a round by its `losses` (0 or more, by arm), seen or estimated.

        Arms without a loss sleep, and keep their share (Freund, Schapire, Singer and Warmuth, STOC 1997).
        """
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
    """Return the horizon planned for after `rounds` rounds: from any power of two on, twice that power."""
    return min(max(HORIZON_FIRST, 1 << rounds.bit_length()), HORIZON_MAX)


def rate_of(arms: int, horizon: int, variance: float) -> float:
    """Return the learning rate that makes `regret_max` the least over a horizon."""
    return sqrt((log(arms * horizon) + 1) / (variance * horizon))


def regret_max(rounds: int, arms: int, variance: float) -> float:
    """Return the bound on the expected regret after `rounds` rounds, to any one arm.

    For each stretch of one horizon it is (ln(1/share) - rounds ln(1 - 1/horizon)) / eta + variance eta
    rounds. The share of an arm is never below 1 / (arms horizon). Summed over stretches it also bounds the
    regret to a sequence of arms that changes only at the start of a stretch.
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
