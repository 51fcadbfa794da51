"""Whether asking the cache pays, measured model by model: on while it does, off while it does not.

The gain of an ask is the computing time that it saved, less what the cache itself took (gateway CPU: digest,
look-up, keeping). A hit and a join save what a computed call takes: its share of the device's time, and the
gateway's CPU that a computed call takes beyond a kept one. A microsecond of either counts the same, as either
may be what limits the house.

The decision is a CUSUM (Page, "Continuous Inspection Schemes", Biometrika 41, 1954): on, the loss since the
cache last paid is summed up, off, the gain that there would have been, and the state changes where the sum is
evident. A change is so seen as soon after a year as after a minute, and a wrong guess costs no more than the
sum.

Off, a fixed share of the questions still asks the cache, chosen by what they say: a question is in the sample
each time it comes or never, so that the sample's hit rate is that of all (spatial sampling: Waldspurger,
Park, Garthwaite and Ahmad, "Efficient MRC Construction with SHARDS", FAST 2015). A share of the calls would
not do: of a question that is asked twice it hardly ever sees both. One question may be most of the traffic,
therefore which are sampled changes in turn.
"""

from collections.abc import Sequence
from zlib import crc32

from mypy_extensions import mypyc_attr

from serving.tensor import Tensor

GATEWAY_US = 10.0
"""Gateway CPU of a computed call beyond that of a kept one, the cache's own work apart: scheduling, and its
part of a batch on the way to the worker and back. Over REST, 64 calls at once, such a call takes 3 to 7 us
more than a hit, whose look-up takes 4 (loadtests/cache_cost.py); where fewer share a batch it is more."""

CLASSES = 32
"""Off, one class of questions in so many asks the cache: it takes 1/32 of what asking always would."""

TURN = 1024
"""Asks until the next class has its turn. Longer turns see questions come back that are further apart in the
first round already (later rounds find what the earlier ones kept); a model that everybody asks the same is
found out after a round at the latest, 32,768 asks."""

COMPUTATIONS = 5.0
ASKS = 256
"""A sum is evident where it is worth so many computations, and so many asks of the cache. With five
computations a stream that gains twice what it costs is switched off wrongly once in thousands of excursions
(exp(-1.59 * 5) each, by Lundberg's bound), and 256 asks are some milliseconds at most."""

PAUSE = 16
"""An ask that took over so many times the mean was interrupted: the rest is the machine's, not its own."""

MARKS = 64  # bytes of an input that are looked at to place a question in its class
MEAN = 1 / 256  # the weight of the latest in the means


def class_of(inputs: Sequence[Tensor]) -> int:
    """Which class a question belongs to, in 0.6 us: by its inputs' lengths and MARKS bytes of each.

    The stride between them is odd, so that of numbers each byte has its turn.
    """
    mark = 0
    for tensor in inputs:
        length = len(tensor.data)
        mark = crc32(bytes(tensor.data[:: length // MARKS | 1]), mark ^ length)
    return mark % CLASSES


@mypyc_attr(allow_interpreted_subclasses=True)
class CacheBenefit:
    """One model's account. All times in microseconds.

    `gain_us`: mean gain of an ask, of the last few hundred; `bypassed`: calls that passed the cache by.
    """

    __slots__ = ("_asks", "_computed_us", "_cost_us", "_evidence_us", "bypassed", "enabled", "gain_us")

    def __init__(self) -> None:
        self.enabled = True
        self.gain_us = 0.0
        self.bypassed = 0
        self._asks = 0  # while it was off
        self._computed_us = 0.0  # what a computed call takes; 0 until one is known
        self._cost_us = 0.0  # what an ask takes
        self._evidence_us = 0.0  # against the present state, never below 0

    def asks(self, inputs: Sequence[Tensor]) -> bool:
        """Whether a call with these inputs is to ask the cache."""
        if self.enabled:
            return True
        self._asks += 1
        if class_of(inputs) == self._asks // TURN % CLASSES:
            return True
        self.bypassed += 1
        return False

    def asked(self, took_us: float, answered: bool) -> None:
        """A call has asked, which took so long; `answered`: it needs no computation of its own."""
        took_us = self._plausible(took_us)
        self._cost_us += (took_us - self._cost_us) * MEAN if self._cost_us else took_us
        self._weigh((self._computed_us if answered else 0.0) - took_us)

    def computed(self, device_us: float, kept_us: float) -> None:
        """A call that asked in vain was computed, its rows for `device_us`, and kept, in `kept_us`."""
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
            return  # nobody can say what is saved
        self.gain_us += (gain_us - asks * self.gain_us) * MEAN
        against_us = -gain_us if self.enabled else gain_us
        self._evidence_us = max(self._evidence_us + against_us, 0.0)
        if self._evidence_us > max(COMPUTATIONS * self._computed_us, ASKS * self._cost_us):
            self.enabled = not self.enabled
            self._evidence_us = 0.0
