"""What is simulated: the models that are served, and where their variants are resident."""

from dataclasses import dataclass, field

from serving.profile.derived.latency import Latency
from serving.values.specs import Limits, ServedModel, TenantSpec


@dataclass(frozen=True, slots=True)
class SiteReplica:
    """A variant on a slice. `latency` is what the scheduler knows of it, and what is true if the device model
    does not say otherwise. `load_us`: how long its worker takes to load it. `price`: its slice's price for an
    hour, 0 if unknown."""

    slice: str
    model: str
    variant: str
    latency: Latency
    load_us: int = 1_400_000
    price: float = 0.0


@dataclass(frozen=True, slots=True)
class Site:
    """One gateway. `learned`: the latency estimates have settled before the first arrival. What arrives or
    runs before `settle_us` is not counted: rates are not known then. `start_us`: from a worker's start to
    where it can load (measured: a worker that is killed is back after 0.3 s, 0.1 s of it back-off). Variants
    are loaded in the order of `residents`."""

    served: tuple[ServedModel, ...]
    residents: tuple[SiteReplica, ...]
    tenants: tuple[TenantSpec, ...] = ()
    limits: Limits = field(default_factory=Limits)
    learned: bool = False
    settle_us: int = 0
    start_us: int = 200_000

    @property
    def slices(self) -> tuple[str, ...]:
        """The slices' names, in order of appearance."""
        return tuple(dict.fromkeys(resident.slice for resident in self.residents))


def chooses(model: ServedModel) -> bool:
    """Return whether several variants may answer some of its requests that pin none."""
    return any(len(each.variants) > 1 for each in (model.own, *model.by_tier.values()))
