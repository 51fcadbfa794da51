"""`prices:`: what an hour of a core or of a GPU costs, for slices and devices that state no `price`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from router.settings.values.fields import Name, Price
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, shown
from router.settings.values.schema import Section
from serving.profile.device import device_kind
from serving.values.slice_specs import DeviceSpec, Share, SliceSpec

_LOC = ("prices",)
_CPU, _GPU = "cpu-", "gpu-"


class PriceSection(Section):
    """An entry of `prices:`; `kind` is this machine's CPU where it is left out."""

    kind: Name | None = None
    on_demand: Price
    spot: Price | None = None


@dataclass(frozen=True, slots=True)
class Tariff:
    """The price of one core of a CPU, or one GPU, an hour. `spot`: the price of a core or GPU that may be
    taken away at any time, None if it is not stated."""

    on_demand: float
    spot: float | None = None


Prices = Mapping[str, Tariff]
"""By kind of device."""


def machine_kind() -> str:
    """Return the kind of this machine's CPU."""
    return device_kind(SliceSpec("", ()))


def read_prices(findings: Findings) -> Prices:
    """Return the entries that are sound; none without `prices:`."""
    entries = findings.document.at(_LOC)
    found: dict[str, Tariff] = {}
    for index in range(len(entries) if isinstance(entries, list) else 0):
        loc: Loc = (*_LOC, index)
        section = findings.parse(PriceSection, loc)
        if section is None:
            continue
        kind = section.kind or machine_kind()
        if not kind.startswith((_CPU, _GPU)):
            expected = (
                f"a device kind as profiles/ has folders of, such as {machine_kind()} or gpu-nvidia-h200"
            )
            findings.add((*loc, "kind"), fault("no kind of device", kind, expected))
            continue
        if kind in found:
            findings.add(loc, f"{shown(kind)} has a price already; list each kind once")
        if section.spot is not None and section.spot > section.on_demand:
            message = f"spot is dearer than on_demand ({section.spot:g} to {section.on_demand:g})"
            findings.warn((*loc, "spot"), f"{message}: are the two the wrong way round?")
        found.setdefault(kind, Tariff(section.on_demand, section.spot))
    return found


def slice_price(prices: Prices, core_count: int, *, spot: bool, kind: str | None = None) -> float:
    """Return the price of `core_count` cores of a kind, this machine's if None, an hour; 0 if it is not
    stated. Without a spot price, the price on demand counts."""
    tariff = prices.get(kind or machine_kind())
    if tariff is None:
        return 0.0
    return core_count * (tariff.spot if spot and tariff.spot is not None else tariff.on_demand)


def device_price(prices: Prices, kind: str, core_count: int) -> float:
    """Return the price of a whole device, on demand, an hour; 0 if it is not stated."""
    tariff = prices.get(kind)
    if tariff is None:
        return 0.0
    return tariff.on_demand * (core_count if kind.startswith(_CPU) else 1)


def share_price(prices: Prices, kind: str, share: Share, *, spot: bool) -> float:
    """Return what an hour of a GPU's share costs: its part of the GPU's price; 0 if there is no price.

    A share by percentage or instance is its part; all other shares cost as the whole GPU.
    """
    tariff = prices.get(kind)
    if tariff is None:
        return 0.0
    price = tariff.spot if spot and tariff.spot is not None else tariff.on_demand
    whole = {"mps": 100.0, "mig": 7.0}.get(share.kind)
    return price if whole is None else price * min(share.amount / whole, 1.0)


def check_kinds(
    findings: Findings, prices: Prices, devices: Sequence[DeviceSpec], slices: Sequence[SliceSpec]
) -> None:
    """Warn of prices for kinds that no slice or device has."""
    there = {machine_kind(), *(each.kind for each in devices), *(each.kind for each in slices)}
    entries = findings.document.at(_LOC)
    for index in range(len(entries) if isinstance(entries, list) else 0):
        kind = findings.document.at((*_LOC, index, "kind"))
        if kind in prices and kind not in there:
            message = f"no slice or device is of this kind; the slices are on {machine_kind()}"
            findings.warn((*_LOC, index, "kind"), message)
