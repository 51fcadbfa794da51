"""What a transition is made of: steps that a controller can carry out, and groups of what may run at once."""

from dataclasses import dataclass

from serving.policy.placement.terms.plan import PlacedReplica
from serving.values.slice_specs import Share


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A replica in its place. Slices are numbered by device, replicas by slice: those of the old placement in
    its order from 0, what is added after them; no two that are there at a time have the same number."""

    device: str
    slice: int
    replica: int

    def __str__(self) -> str:
        return f"{self.device}/{self.slice}/{self.replica}"


@dataclass(frozen=True, slots=True)
class Create:
    """Start a slice: a MIG instance, a process with its share. `start`: as in `Slot`."""

    device: str
    slice: int
    share: Share
    start: int

    @property
    def devices(self) -> tuple[str, ...]:
        """Those that it changes."""
        return (self.device,)

    def __str__(self) -> str:
        return f"create {_slice(self.device, self.slice, self.share, self.start)}"


@dataclass(frozen=True, slots=True)
class LoadStep:
    """Load a replica and warm it. Where that fails it holds nothing."""

    address: Address
    resident: PlacedReplica

    @property
    def devices(self) -> tuple[str, ...]:
        """Those that it changes."""
        return (self.address.device,)

    def __str__(self) -> str:
        return f"load {_replica(self.address, self.resident)}"


@dataclass(frozen=True, slots=True)
class Sizing:
    """A replica that stays where it is and runs other batches from now on."""

    address: Address
    before: PlacedReplica
    after: PlacedReplica

    def __str__(self) -> str:
        return f"{self.before.model} on {self.address} to {self.after.rows} rows"


@dataclass(frozen=True, slots=True)
class RouteStep:
    """Change what batches are sent to, at one instant: to `up` too, to `down` no longer, `sized` differently.

    It is an edit of the gateway's own table, so it cannot fail half way and no batch sees half of it. What is
    down ends what runs there; nothing else on a device changes.
    """

    up: tuple[Address, ...] = ()
    down: tuple[Address, ...] = ()
    sized: tuple[Sizing, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """Those on which other replicas compute from now on."""
        return tuple(sorted({address.device for address in (*self.up, *self.down)}))

    def __str__(self) -> str:
        parts = (("to", self.up), ("no longer to", self.down), ("with", self.sized))
        return "route " + ", ".join(f"{word} {', '.join(map(str, each))}" for word, each in parts if each)


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until what still runs on a replica that gets no new batches has ended."""

    address: Address

    @property
    def devices(self) -> tuple[str, ...]:
        """Those that it changes."""
        return (self.address.device,)

    def __str__(self) -> str:
        return f"drain {self.address}"


@dataclass(frozen=True, slots=True)
class UnloadStep:
    """Give back what a drained replica holds."""

    address: Address
    resident: PlacedReplica

    @property
    def devices(self) -> tuple[str, ...]:
        """Those that it changes."""
        return (self.address.device,)

    def __str__(self) -> str:
        return f"unload {_replica(self.address, self.resident)}"


@dataclass(frozen=True, slots=True)
class Destroy:
    """End a slice on which nothing is loaded."""

    device: str
    slice: int
    share: Share
    start: int

    @property
    def devices(self) -> tuple[str, ...]:
        """Those that it changes."""
        return (self.device,)

    def __str__(self) -> str:
        return f"destroy {_slice(self.device, self.slice, self.share, self.start)}"


Step = Create | LoadStep | RouteStep | Drain | UnloadStep | Destroy
Group = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Transition:
    """Groups of steps, one after the other; those of a group in any order or at once.

    `temporary`: the slices that are in neither placement; they are destroyed again.
    """

    groups: tuple[Group, ...] = ()
    temporary: tuple[Create, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """All, in order."""
        return tuple(step for group in self.groups for step in group)


@dataclass(frozen=True, slots=True)
class TransitionRefused:
    """There is no way that keeps the promises, or none was found. `reason`: a sentence that says which model,
    which device, and what would help."""

    reason: str
    model: str = ""
    device: str = ""


def _slice(device: str, number: int, share: Share, start: int) -> str:
    return f"{device}/{number} ({share}{f' at {start}' if start >= 0 else ''})"


def _replica(address: Address, resident: PlacedReplica) -> str:
    return f"{resident.model} ({resident.option.variant}, {resident.rows} rows) on {address}"
