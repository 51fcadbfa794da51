"""The controller's state of one scaled model."""

from collections import Counter
from dataclasses import dataclass, field

from serving.policy.scaling.interface import LoadReport, PlannedBand, ReplicaPolicy, Wish
from serving.policy.scaling.load.history import History

START_US = 5_000_000  # assumed time until a requested replica gets batches, before the first one
STARTS = 5  # their median counts, because a replica that died on the way is an exception


@dataclass(slots=True)
class ScalingState:
    """What the autoscaler keeps of one model.

    - `slices`: its slices, the most preferred first.
    - `standby`: the slices where it is only loaded, beside another model.
    - `short`: why it has fewer than it needs; `lacking`: what the slow plan could not give it.
    - `asked_us`: when it got a slice that does not get batches yet.
    - `cold_us`: the load time that the scheduler knows while the model is on no slice, else None.
    """

    policy: ReplicaPolicy
    history: History
    seen: LoadReport
    before: LoadReport
    decided_us: int
    wish: Wish
    slices: tuple[str, ...] = ()
    standby: tuple[str, ...] = ()
    short: str = ""
    lacking: str = ""
    cold_us: int | None = None
    band: PlannedBand | None = None
    liked: Counter[str] = field(default_factory=Counter)  # how many slices the slow plan has for it, by kind
    begun: bool = False
    ups: int = 0
    downs: int = 0
    asked_us: dict[str, int] = field(default_factory=dict)
    starts_us: list[int] = field(default_factory=list)

    @property
    def start_us(self) -> int:
        """The usual time from the request for a replica to its first batch."""
        return sorted(self.starts_us)[len(self.starts_us) // 2] if self.starts_us else START_US

    def started(self, slice_name: str, now_us: int) -> None:
        """Record that a slice gets batches."""
        asked_us = self.asked_us.pop(slice_name, None)
        if asked_us is not None:
            self.starts_us = [*self.starts_us[-STARTS + 1 :], now_us - asked_us]

    def give(self, slices: tuple[str, ...], now_us: int) -> None:
        """Assign slices to the model."""
        self.ups += self.begun and len(slices) > len(self.slices)
        self.downs += len(slices) < len(self.slices)
        self.begun = True
        for name in slices:
            if name not in self.slices:
                self.asked_us[name] = now_us
        self.asked_us = {name: at_us for name, at_us in self.asked_us.items() if name in slices}
        self.slices = slices
