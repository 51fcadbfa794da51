"""A fleet as an integer program over numbers: of replicas by offer, and of devices by division.

Equal devices are one variable, so the program does not grow with the fleet. For MIG it has some five
variables a model and a dozen a kind of device. If models have to be in several failure domains, only equal
devices of one domain are one variable. Devices that are divided by amounts are filled by patterns, which
account for how slices slow each other down.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from serving.policy.placement.formulation.bundling import deal
from serving.policy.placement.formulation.choices import (
    REPLICA,
    DeviceColumns,
    add_devices,
    add_replicas,
    choices,
)
from serving.policy.placement.formulation.division import Division
from serving.policy.placement.programs import Floats, Program
from serving.policy.placement.terms.plan import Bundle, Slot
from serving.policy.placement.terms.problem import Instances, PlacementProblem, Pool

Bundles = Sequence[tuple[Slot, ...]]
"""The patterns of one device, to choose from."""


@dataclass(frozen=True, slots=True)
class _Section:
    """Equal devices: `count` of a pool, in one failure domain or in any (None)."""

    pool: Pool
    domain: str | None
    count: int


def _sections(problem: PlacementProblem, spread: bool) -> Iterator[_Section]:
    for pool in problem.pools:
        names = [device.domain for device in pool.devices]
        for domain in sorted({*names}) if spread else (None,):
            yield _Section(pool, domain, names.count(domain) if domain is not None else len(names))


@dataclass(frozen=True, slots=True)
class _Divided:
    """The columns for MIG devices; `replicas`: columns by choice."""

    section: _Section
    division: Division
    devices: DeviceColumns
    replicas: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Filled:
    """The columns for devices that are divided by amounts, each of `total`; `columns`: by pattern."""

    section: _Section
    total: float
    patterns: Bundles
    columns: Sequence[int]


class FleetProgram:
    """The integer program of a fleet, and what its columns mean.

    Its costs are the devices' prices. At first, nothing may be missing.
    """

    def __init__(self, problem: PlacementProblem, patterns: Mapping[str, Bundles]) -> None:
        self._every = choices(problem)
        self._demands = {each.model: each for each in problem.demands if each.rate > 0}
        self.program = program = Program()
        self._missing = {model: program.column(upper=0.0) for model in self._demands}
        self._carried = {
            model: program.row([(column, 1.0)], lower=1.0) for model, column in self._missing.items()
        }
        spread = {model: each.domains_min for model, each in self._demands.items() if each.domains_min > 1}
        sections = [*_sections(problem, bool(spread))]
        domains = sorted({section.domain for section in sections if section.domain is not None})
        self._lacking = {model: program.column(upper=0.0) for model in spread}
        self._present = {(model, domain): program.row(lower=0.0) for model in spread for domain in domains}
        for model, least in spread.items():
            there = {domain: program.column(upper=1.0, integer=True) for domain in domains}
            for domain, column in there.items():
                program.put(self._present[model, domain], column, -1.0)
            terms = [(column, 1.0) for column in (*there.values(), self._lacking[model])]
            program.row(terms, lower=least)
        self._divided: list[_Divided] = []
        self._filled: list[_Filled] = []
        for section in sections:
            if isinstance(section.pool.division, Instances):
                self._divide(section)
            else:
                self._fill(section, section.pool.division.total, patterns[section.pool.name])

    def _divide(self, section: _Section) -> None:
        for place, division in enumerate(self._every.divisions):
            if division.pool is section.pool:
                devices = add_devices(self.program, division, section.count, integer=True)
                replicas = {}
                for at, choice in enumerate(self._every.each):
                    if choice.division == place:
                        column = add_replicas(self.program, devices, choice, integer=True)
                        self._add(column, self._every.slot(choice), section.domain)
                        replicas[at] = column
                self._divided.append(_Divided(section, division, devices, replicas))

    def _fill(self, section: _Section, total: float, patterns: Bundles) -> None:
        columns = [self.program.column(section.pool.price, integer=True) for _ in patterns]
        self.program.row([(column, 1.0) for column in columns], upper=section.count)
        for column, slots in zip(columns, patterns, strict=True):
            for slot in slots:
                self._add(column, slot, section.domain)
        self._filled.append(_Filled(section, total, patterns, columns))

    def _add(self, column: int, slot: Slot, domain: str | None) -> None:
        """Add that the slice is there as often as the column says."""
        for resident in slot.residents:
            demand = self._demands.get(resident.model)
            if demand is None:
                continue
            part = min(resident.capacity / demand.rate, 1.0)  # else a millionth of a replica might be enough
            self.program.put(self._carried[resident.model], column, part)
            if domain is not None and (resident.model, domain) in self._present:
                self.program.put(self._present[resident.model, domain], column, 1.0)

    def fall_short(self) -> list[int]:
        """Let demands be carried in part, and be in fewer domains; return the columns of what is missing."""
        for column in self._missing.values():
            self.program.upper[column] = 1.0
        for model, column in self._lacking.items():
            self.program.upper[column] = self._demands[model].domains_min
        return [*self._missing.values(), *self._lacking.values()]

    @property
    def devices(self) -> list[Sequence[int]]:
        """The columns of numbers of devices, equal devices together."""
        return [each.devices.columns for each in self._divided] + [each.columns for each in self._filled]

    def cost_between(self, lower: float, upper: float) -> None:
        """Limit the devices' cost to a known range, so that the solver need not search beyond it."""
        costs = self.program.costs
        terms = [(column, costs[column]) for columns in self.devices for column in columns]
        self.program.row(terms, lower, upper)

    def parts(self) -> dict[int, float]:
        """Return how much of a device one replica or pattern of each column takes.

        Each replica adds a little (`REPLICA`).
        """
        found = {
            column: self._every.each[place].taken.part + REPLICA
            for divided in self._divided
            for place, column in divided.replicas.items()
        }
        for filled in self._filled:
            for slots, column in zip(filled.patterns, filled.columns, strict=True):
                found[column] = sum(slot.share.amount / filled.total + REPLICA for slot in slots)
        return found

    def bundles(self, values: Floats) -> Iterator[Bundle]:
        """Yield the bundles that the values of the columns mean."""
        for divided in self._divided:
            there = [
                slot
                for place, column in divided.replicas.items()
                for slot in [self._every.slot(self._every.each[place])] * int(values[column])
            ]
            devices = [int(values[column]) for column in divided.devices.columns]
            yield from deal(divided.division, devices, there, divided.section.domain)
        for filled in self._filled:
            section = filled.section
            for slots, column in zip(filled.patterns, filled.columns, strict=True):
                yield from [Bundle(section.pool.name, slots, section.domain)] * int(values[column])
