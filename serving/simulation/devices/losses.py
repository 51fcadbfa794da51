"""Devices that fail and spot slices that are taken away: what is asked for, and what becomes of it."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from serving.simulation.devices.held import Presence
from serving.values.vocabulary import NEVER_US

_NUMBER = r"(?:\d+\.?\d*|\.\d+)"
_PLACE = rf"(?P<slice>[^@\s]+)@(?P<at>{_NUMBER})"
NODE = "node:"
"""Before a node's name, where a slice's could stand."""
_LOST = re.compile(rf"{_PLACE}(\+(?P<for>{_NUMBER}))?")
_TAKEN = re.compile(rf"{_PLACE}:(?P<notice>{_NUMBER})")


@dataclass(frozen=True, slots=True)
class Loss:
    """What takes a slice away from `at_s` on.

    `notice_s`: the gateway hears at `at_s` that it goes so much later; None: its device fails then, and
    nothing tells the gateway. `for_s`: for how long it is gone; None: for good. `node`: `slice` names a node,
    which is lost with all its slices; the gateway knows at once, by the end of its connections.
    """

    slice: str
    at_s: float
    notice_s: float | None = None
    for_s: float | None = None
    node: bool = False

    @property
    def told(self) -> bool:
        """Whether the gateway hears of it."""
        return self.notice_s is not None or self.node

    @property
    def gone_s(self) -> float:
        """When it is gone."""
        return self.at_s + (self.notice_s or 0.0)

    @property
    def back_s(self) -> float | None:
        """When it is back; None: never."""
        return None if self.for_s is None else self.gone_s + self.for_s


def read_losses(text: str) -> tuple[Loss, ...]:
    """Return what `penstock simulate --lose` says: `gpu-1@10+20` or `node:box@10+20`, from 10 s on for 20 s.

    ValueError says what is wrong, and what would be right.
    """
    found = []
    for part in text.split(","):
        match = _LOST.fullmatch(part.strip())
        if match is None or (match["for"] is not None and not float(match["for"])):
            raise ValueError(f"got {part.strip()!r}; expected SLICE@S or SLICE@S+S, such as gpu-1@10+20")
        name, node = match["slice"].removeprefix(NODE), match["slice"].startswith(NODE)
        for_s = float(match["for"]) if match["for"] else None
        found.append(Loss(name, float(match["at"]), None, for_s, node))
    return tuple(found)


def read_notices(text: str) -> tuple[Loss, ...]:
    """Return what `penstock simulate --spot` says: `spot-1@10:30`, which goes 30 s after a notice.

    ValueError says what is wrong, and what would be right.
    """
    found = []
    for part in text.split(","):
        match = _TAKEN.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"got {part.strip()!r}; expected SLICE@S:NOTICE_S, such as spot-1@10:30")
        found.append(Loss(match["slice"], float(match["at"]), float(match["notice"])))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class LossFigures:
    """What became of a loss in the run of a seed; instants are seconds of the run.

    `slices`: all that went with it; `models`: those that had a replica there. `found_s`: when control knew;
    `replaced_s`: when each of these models got batches on as many slices again; None: never. `offered`: their
    requests that came within `seconds` from the notice or the loss until the slice was gone and they were
    replaced, else until the run ended; `in_time`: those of them that were answered in time.
    """

    loss: Loss
    seed: int
    slices: tuple[str, ...]
    models: tuple[str, ...]
    found_s: float | None
    replaced_s: float | None
    seconds: float
    offered: int
    in_time: int


@dataclass(slots=True)
class LossCourse:
    """A loss while a run goes on. Instants are of control's clock, NEVER_US where it has not come to that.

    `before`: by model that had a replica on these `slices`, on how many slices it had one.
    """

    loss: Loss
    slices: tuple[str, ...]
    epoch_us: int
    before: dict[str, int] = field(default_factory=dict)
    begun: bool = False
    found_us: int = NEVER_US
    replaced_us: int = NEVER_US

    @property
    def at_us(self) -> int:
        """When it begins."""
        return self.epoch_us + round(self.loss.at_s * 1e6)

    @property
    def gone_us(self) -> int:
        """When the slices are gone."""
        return self.epoch_us + round(self.loss.gone_s * 1e6)

    @property
    def back_us(self) -> int:
        """When they are back."""
        back_s = self.loss.back_s
        return NEVER_US if back_s is None else self.epoch_us + round(back_s * 1e6)

    def begin(self, presence: Presence, models: Collection[str], now_us: int) -> None:
        """Begin the course now, for those `models` that have a replica on the lost slices."""
        self.begun = True
        there = {model: presence.slices(model) for model in models}
        self.before = {model: len(on) for model, on in there.items() if on.intersection(self.slices)}
        if self.loss.told:
            self.found_us = now_us

    def look(self, presence: Presence, now_us: int) -> None:
        """See whether all models have got back what they had."""
        if not self.before or self.replaced_us < NEVER_US:
            return
        away = self.slices if now_us < self.back_us else ()
        if all(len(presence.slices(model).difference(away)) >= count for model, count in self.before.items()):
            self.replaced_us = now_us

    def span_us(self, end_us: int) -> tuple[int, int]:
        """Return from when to when requests felt it, in a run that ends then."""
        until_us = max(self.replaced_us, self.gone_us) if self.before else self.gone_us
        return min(self.at_us, end_us), min(until_us, end_us)


def clash(losses: Sequence[tuple[str, Loss]]) -> tuple[Loss, Loss] | None:
    """Return two losses of one domain, the second before the first is over; None: there are none."""
    ordered = sorted(losses, key=lambda each: (each[0], each[1].at_s))
    for (domain, first), (other, second) in pairwise(ordered):
        if domain == other and (first.back_s is None or second.at_s < first.back_s):
            return first, second
    return None
