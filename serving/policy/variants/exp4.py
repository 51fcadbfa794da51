"""What each of several members' votes weighs, learnt from the losses of all that answered: Exp4 as Clipper
has it (NSDI 2017, section 5.2), which is Hedge (Freund and Schapire, Journal of Computer and System Sciences,
1997): every member is asked, so every loss is seen.
"""

from collections.abc import Mapping

from serving.policy.variants.forgetting import Shares, regret_max

_VARIANCE = 1 / 8  # Hoeffding's lemma: losses are in 0..1


class Exp4:
    """The members are 0 to `members` - 1. Losses are in 0..1."""

    __slots__ = ("_shares",)

    def __init__(self, members: int) -> None:
        """Start with equal weights. Raises ValueError if there are no members."""
        self._shares = Shares(members, _VARIANCE)

    @property
    def rounds(self) -> int:
        """Answers that it has learnt from."""
        return self._shares.rounds

    def weights(self) -> list[float]:
        """Return the weights of the members' votes, 1 in all."""
        return self._shares.shares()

    def learn(self, losses: Mapping[int, float]) -> None:
        """Learn what an answer would have cost with each member that took part; other members keep their
        weight. Do nothing if no member took part."""
        if losses:
            self._shares.lower(losses)


def exp4_regret_max(rounds: int, members: int) -> float:
    """Return the bound on the regret to the best member, if members are drawn by their weights and all of
    them answer."""
    return regret_max(rounds, members, _VARIANCE)
