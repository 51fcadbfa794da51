"""What control keeps of one model whose replicas follow its load."""

from collections import Counter
from dataclasses import dataclass, field

from serving.policy.scaling.history import History
from serving.policy.scaling.interface import LoadReport, PlannedBand, ReplicaPolicy, Wish

START_US = 5_000_000  # until a replica that was asked for gets batches, before one has
STARTS = 5  # of these the middle one is what is reckoned with: one that died on the way is no rule


@dataclass(slots=True)
class ScalingState:
    """`slices`: those that it has, in the order in which it likes them; `standby`: those on which it is only
    loaded, beside another model. `short`: why it has fewer than it wishes; `lacking`: what the slow plan
    could not have for it. `asked_us`: when a slice was given to it that does not get batches yet. `cold_us`:
    within what it is loaded, as the scheduler was told since it is on no slice; 0 where it is on one."""

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
    cold_us: int = 0
    band: PlannedBand | None = None
    liked: Counter[str] = field(default_factory=Counter)  # slices that the slow plan would have, by kind
    begun: bool = False
    ups: int = 0
    downs: int = 0
    asked_us: dict[str, int] = field(default_factory=dict)
    starts_us: list[int] = field(default_factory=list)

    @property
    def start_us(self) -> int:
        """From the wish for a replica to its first batch, as a rule."""
        return sorted(self.starts_us)[len(self.starts_us) // 2] if self.starts_us else START_US

    def started(self, slice_name: str, now_us: int) -> None:
        """A slice gets batches."""
        asked_us = self.asked_us.pop(slice_name, None)
        if asked_us is not None:
            self.starts_us = [*self.starts_us[-STARTS + 1 :], now_us - asked_us]

    def give(self, slices: tuple[str, ...], now_us: int) -> None:
        """It has these from now on."""
        self.ups += self.begun and len(slices) > len(self.slices)
        self.downs += len(slices) < len(self.slices)
        self.begun = True
        for name in slices:
            if name not in self.slices:
                self.asked_us[name] = now_us
        self.asked_us = {name: at_us for name, at_us in self.asked_us.items() if name in slices}
        self.slices = slices
