"""Which one of several arms to play, learnt from the losses of those that were: Exp3.

Auer, Cesa-Bianchi, Freund and Schapire, The Nonstochastic Multiarmed Bandit Problem (SIAM Journal on
Computing, 2002), with the fixed share of their section 8; as in Clipper (NSDI 2017, section 5.1).
"""

from collections.abc import Sequence

from serving.policy.variants.forgetting import Shares, regret_max


class Exp3:
    """The arms are 0 to `arms` - 1. Losses are in 0..1; nothing is drawn here."""

    __slots__ = ("_shares", "plays")

    def __init__(self, arms: int) -> None:
        """Start with equal shares. Raises ValueError if there are no arms."""
        self._shares = Shares(arms, arms / 2)
        self.plays = [0] * arms

    @property
    def rounds(self) -> int:
        """Losses that it has learnt from."""
        return self._shares.rounds

    def probabilities(self, allowed: Sequence[bool] = ()) -> list[float]:
        """Return the probability of playing each arm; 0 for arms that are not `allowed` (all are if it is
        empty). Raises ValueError if no arm may be played."""
        shares = self._shares.shares()
        if allowed:
            shares = [share if may else 0.0 for share, may in zip(shares, allowed, strict=True)]
        whole = sum(shares)
        if whole <= 0.0:
            raise ValueError("none of the arms may be played")
        return [share / whole for share in shares]

    def play(self, u: float, allowed: Sequence[bool] = ()) -> tuple[int, float]:
        """Return the arm to play, and for `learn` the probability with which it was drawn. `u`: uniform in
        [0, 1). ValueError as `probabilities`."""
        probabilities = self.probabilities(allowed)
        playable = [arm for arm, share in enumerate(probabilities) if share > 0.0]
        arm, below = playable[-1], 0.0  # the last, as sums of shares round
        for each in playable:
            below += probabilities[each]
            if u < below:
                arm = each
                break
        self.plays[arm] += 1
        return arm, probabilities[arm]

    def learn(self, arm: int, loss: float, probability: float, allowed: Sequence[bool] = ()) -> None:
        """Learn what a play of `arm` cost. `probability`: the probability of its draw, among the arms that
        were `allowed` then. Divided by it, the loss is an unbiased estimate of the arm's loss. Arms that were
        not allowed sleep."""
        awake = [each for each in range(len(self._shares)) if not allowed or allowed[each]]
        estimates = dict.fromkeys(awake, 0.0)
        estimates[arm] = loss / probability
        self._shares.lower(estimates)


def exp3_regret_max(rounds: int, arms: int) -> float:
    """Return the bound on the expected regret to the best arm, all arms allowed: of the order of
    sqrt(arms rounds ln(arms rounds)); `regret_max` says how it comes about."""
    return regret_max(rounds, arms, arms / 2)
