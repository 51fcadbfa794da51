"""Evidence of labels: on answers of either model, and on requests that both have answered.

Where both answered a request, the difference of the two says more than two rates: what is hard is so for
both. The e-process of such pairs is a bet (Waudby-Smith and Ramdas, "Estimating means of bounded random
variables by betting", JRSS B 2024): with D = 1 where only the present model is right, -1 where only the
candidate is, else 0, each pair multiplies it by 1 + bet * (D - margin). Its mean is at most 1 while the claim
holds, whatever the bet, which is made before the pair is seen. So its product with the e-process of single
answers is one, too: both are of the same claim.
"""

from dataclasses import dataclass
from math import log
from typing import Final

from serving.policy.rollouts.evidence import NONE, Evidence, Trials, lowest

EVEN: Final = 0.5
"""Pairs of each kind that an estimate begins with, as PRIOR of single answers."""
STAKE: Final = 0.999
"""Of what a bet can lose at most: no single pair ruins it."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Requests that both models answered: `worse`: only the present model was right, `better`: only the
    candidate was, `both` were, `neither` was."""

    worse: int = 0
    better: int = 0
    both: int = 0
    neither: int = 0

    @property
    def count(self) -> int:
        """All of them."""
        return self.worse + self.better + self.both + self.neither

    @property
    def present(self) -> Trials:
        """Of the present model."""
        return Trials(self.worse + self.both, self.count)

    @property
    def candidate(self) -> Trials:
        """Of the candidate."""
        return Trials(self.better + self.both, self.count)

    def __add__(self, other: "Pairs") -> "Pairs":
        return Pairs(
            self.worse + other.worse,
            self.better + other.better,
            self.both + other.both,
            self.neither + other.neither,
        )


NO_PAIRS: Final = Pairs()


@dataclass(frozen=True, slots=True)
class LabelBlock:
    """Labels in a row: on answers of the `present` model and of the `candidate`, and on `pairs`."""

    present: Trials = NONE
    candidate: Trials = NONE
    pairs: Pairs = NO_PAIRS

    @property
    def count(self) -> int:
        """All of them."""
        return self.present.count + self.candidate.count + self.pairs.count

    @property
    def compares(self) -> bool:
        """Whether it says something of both models: else it is no evidence, and better waits for more."""
        return bool(self.pairs.count or (self.present.count and self.candidate.count))

    def __add__(self, other: "LabelBlock") -> "LabelBlock":
        return LabelBlock(
            self.present + other.present, self.candidate + other.candidate, self.pairs + other.pairs
        )


def block_size(seen: int) -> int:
    """Return how many labels may be judged at once, by what was known before the first of them. So many that
    a thousand labels at once are no long work, so few that the first of them teach something."""
    return max(seen // 8, 8)


class LabelledEvidence(Evidence):
    """That of Evidence, and of pairs. `pairs`: those so far."""

    def __init__(self, margin: float) -> None:
        super().__init__(margin)
        self.pairs = NO_PAIRS

    def add_block(self, block: LabelBlock) -> None:
        """Add labels that have come one after the other, after all that were added before."""
        self.add(block.present, block.candidate)
        self.add_pairs(block.pairs)

    def add_pairs(self, block: Pairs) -> None:
        """Add the pairs that have come since the last."""
        if not block.count:
            return
        bet = best_bet(self.pairs, self.margin)
        gain = _won(_shares(block, 0.0), bet, self.margin) * block.count
        if bet > 0:
            self.worse += gain
        else:
            self.fine += gain
        self.pairs += block
        self.baseline += block.present
        self.candidate += block.candidate


def best_bet(seen: Pairs, margin: float) -> float:
    """Return the bet that would have won most on what was seen; positive: on "worse by more than the
    margin", negative: on "not so"."""
    shares = _shares(seen, EVEN)
    return lowest(lambda bet: -_won(shares, bet, margin), -STAKE / (1 - margin), STAKE / (1 + margin))


def _shares(pairs: Pairs, more: float) -> tuple[float, float, float]:
    """Return the shares of pairs with D = 1, -1 and 0, with `more` of each."""
    count = pairs.count + 3 * more
    worse, better = pairs.worse + more, pairs.better + more
    return worse / count, better / count, (count - worse - better) / count


def _won(shares: tuple[float, float, float], bet: float, margin: float) -> float:
    """Return the mean log of the factor."""
    worse, better, equal = shares
    return (
        worse * log(1 + bet * (1 - margin))
        + better * log(1 - bet * (1 + margin))
        + equal * log(1 - bet * margin)
    )
