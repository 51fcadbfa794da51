"""What is simulated: the models that are served, and where their variants are resident."""

from dataclasses import dataclass, field

from serving.profile.latency import Latency
from serving.specs import Limits, ServedModel, TenantSpec


@dataclass(frozen=True, slots=True)
class Resident:
    """A variant on a slice. `latency` is what the scheduler knows of it, and what is true where the device
    model does not say otherwise; `load_us`: from a new worker process to ready."""

    slice: str
    model: str
    variant: str
    latency: Latency
    load_us: int = 1_400_000


@dataclass(frozen=True, slots=True)
class Site:
    """One gateway. `learned`: the latency estimates have settled before the first arrival. What arrives or
    runs before `settle_us` is not counted: rates are not known then."""

    served: tuple[ServedModel, ...]
    residents: tuple[Resident, ...]
    tenants: tuple[TenantSpec, ...] = ()
    limits: Limits = field(default_factory=Limits)
    learned: bool = False
    settle_us: int = 0

    @property
    def slices(self) -> tuple[str, ...]:
        """The slices' names, in order of appearance."""
        return tuple(dict.fromkeys(resident.slice for resident in self.residents))
