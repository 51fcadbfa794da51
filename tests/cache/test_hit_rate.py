"""How often a question finds its answer kept, against LRU and ARC in the same bytes."""

import numpy as np
import pytest
from numpy.typing import NDArray

from serving.cache.memory import MemoryStore
from tests.cache.policies import Arc, Lru, Policy
from tests.cache.values import TTL_US, entry, key_of

KEYS = 100_000
ASKS = 400_000
ENTRY = 1000

pytestmark = pytest.mark.slow


class Kept:
    """The memory tier as a policy: what is not kept is computed and offered."""

    answer = entry(ENTRY)

    def __init__(self, entries: int) -> None:
        self.store = MemoryStore(entries * ENTRY, TTL_US)

    def ask(self, number: int) -> bool:
        key = KEY[number]
        if self.store.get(key, 0) is not None:
            return True
        self.store.put(key, self.answer, 0)
        return False


KEY = [key_of(number) for number in range(KEYS)]


def zipf(asks: int, seed: int) -> NDArray[np.int64]:
    """Numbers of questions, the one of rank r asked in proportion to 1/r; which number has which rank is
    drawn too."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, KEYS + 1)
    return rng.permutation(KEYS)[rng.choice(KEYS, asks, p=shares / shares.sum())]


def hit_rate(policy: Policy, asks: NDArray[np.int64]) -> float:
    """The share of hits in the second half: the first fills the cache."""
    hits = [policy.ask(number) for number in asks.tolist()]
    return sum(hits[len(hits) // 2 :]) / (len(hits) - len(hits) // 2)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_zipf_hits_come_within_two_points_of_lru_and_arc_or_above(share: float) -> None:
    entries = int(KEYS * share)
    asks = zipf(ASKS, seed=1)
    ours, lru, arc = (hit_rate(policy(entries), asks) for policy in (Kept, Lru, Arc))
    assert ours >= max(lru, arc) - 0.02, f"{ours:.3f}, LRU {lru:.3f}, ARC {arc:.3f}"
