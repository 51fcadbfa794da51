"""The decision, model by model, whether asking the cache pays: it is on while it pays, else off.

The gain of an ask is the computing time that it saved, less the time of the cache itself (gateway CPU:
digest, look-up, keeping). A hit or a join saves the cost of a computed call. That is the call's share of the
device's time, and the gateway CPU that it takes beyond a kept one. A microsecond of either counts the same,
because either may limit the throughput.

The decision is a CUSUM (Page, "Continuous Inspection Schemes", Biometrika 41, 1954). While the cache is on,
it sums the loss since the cache last paid; while off, the gain that was missed. The state changes when the
sum is evident. So it sees a change as soon after a year as after a minute, and a wrong guess costs no more
than the sum.

While off, a fixed share of the requests still asks the cache, chosen by their content. A request is in the
sample each time it comes, or never, so the sample's hit rate is the hit rate of all. This is spatial
sampling: Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC Construction with SHARDS", FAST 2015. A
random share of the calls would not do, because it rarely has both calls of an equal pair. One request may be
most of the traffic, so the sampled requests change in turn.
"""

from collections.abc import Sequence
from zlib import crc32

from mypy_extensions import mypyc_attr

from serving.values.tensor import Tensor

GATEWAY_US = 10.0
"""Gateway CPU of a computed call beyond a kept one, without the cache's own work.

It is scheduling, and the call's part of a batch's way to the worker and back. Over REST, 64 calls at once,
such a call takes 3 to 7 us more than a hit, and a hit's look-up takes 4 (loadtests/memory/cache_cost.py). If
fewer calls share a batch, it takes more.
"""

CLASSES = 32
"""While off, one class of requests in so many asks the cache: it takes 1/32 of the time of asking always."""

TURN = 1024
"""Asks until the next class has its turn.

In longer turns, the first round already sees requests that come back after a longer time. Later rounds find
what the earlier ones kept. If all clients send a model the same request, one round finds it: 32,768 asks.
"""

COMPUTATIONS = 5.0
ASKS = 256
"""A sum is evident if it exceeds the cost of COMPUTATIONS computations and of ASKS asks.

Five computations: a stream that gains twice its cost is switched off wrongly once in thousands of excursions.
(Each has exp(-1.59 * 5), by Lundberg's bound.) 256 asks are some milliseconds at most.
"""

PAUSE = 16
"""An ask that took over so many times the mean was interrupted; the time beyond that is not its own."""

MARKS = 64  # bytes of an input that determine a request's class
MEAN = 1 / 256  # the weight of the latest value in the means


def class_of(inputs: Sequence[Tensor]) -> int:
    """Return the class of a request, from its inputs' lengths and MARKS bytes of each, in 0.6 us.

    The stride between these bytes is odd, so that each byte of a number has its turn.
    """
    mark = 0
    for tensor in inputs:
        length = len(tensor.data)
        mark = crc32(bytes(tensor.data[:: length // MARKS | 1]), mark ^ length)
    return mark % CLASSES


@mypyc_attr(allow_interpreted_subclasses=True)
class CacheBenefit:
    """The account of one model. All times are in microseconds.

    `gain_us`: the mean gain of an ask, over the last few hundred. `bypassed`: calls that did not ask the
    cache.
    """

    __slots__ = ("_asks", "_computed_us", "_cost_us", "_evidence_us", "bypassed", "enabled", "gain_us")

    def __init__(self) -> None:
        self.enabled = True
        self.gain_us = 0.0
        self.bypassed = 0
        self._asks = 0  # while off
        self._computed_us = 0.0  # the mean cost of a computed call; 0 until one is known
        self._cost_us = 0.0  # the mean cost of an ask
        self._evidence_us = 0.0  # against the present state, never below 0

    def asks(self, inputs: Sequence[Tensor]) -> bool:
        """Return whether a call with these inputs should ask the cache."""
        if self.enabled:
            return True
        self._asks += 1
        if class_of(inputs) == self._asks // TURN % CLASSES:
            return True
        self.bypassed += 1
        return False

    def asked(self, took_us: float, answered: bool) -> None:
        """Count an ask of `took_us`; `answered`: the call needs no computation of its own."""
        took_us = self._plausible(took_us)
        self._cost_us += (took_us - self._cost_us) * MEAN if self._cost_us else took_us
        self._weigh((self._computed_us if answered else 0.0) - took_us)

    def computed(self, device_us: float, kept_us: float) -> None:
        """Count a miss that was computed, its rows for `device_us`, and kept, in `kept_us`."""
        computed_us = device_us + GATEWAY_US
        known_us = self._computed_us
        self._computed_us = known_us + (computed_us - known_us) * MEAN if known_us else computed_us
        kept_us = self._plausible(kept_us)
        self._cost_us += kept_us * MEAN
        self._weigh(-kept_us, asks=0)

    def _plausible(self, took_us: float) -> float:
        return min(took_us, PAUSE * self._cost_us) if self._cost_us else took_us

    def _weigh(self, gain_us: float, asks: int = 1) -> None:
        if not self._computed_us:
            return  # the saving is not known yet
        self.gain_us += (gain_us - asks * self.gain_us) * MEAN
        against_us = -gain_us if self.enabled else gain_us
        self._evidence_us = max(self._evidence_us + against_us, 0.0)
        if self._evidence_us > max(COMPUTATIONS * self._computed_us, ASKS * self._cost_us):
            self.enabled = not self.enabled
            self._evidence_us = 0.0
