"""The exact assignment: one integer program over all pools, for some dozens of devices.

Devices of a domain that hold the same are one group. The program decides how many devices of a group take
which bundle or layout. It also decides how many of their instances stay as they are, and in which domain the
rest is started. From these numbers follow what has to be started and where each model is.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from serving.policy.placement.assignment.dealing import Room, Unit, deal
from serving.policy.placement.assignment.keeping import Instance, by_content, geometry_of, held_by, shapes_of
from serving.policy.placement.assignment.lots import Content, Lot, Slots, Spot, models
from serving.policy.placement.assignment.matching import alike
from serving.policy.placement.programs import Program
from serving.policy.placement.terms.geometry import Layout, arrangements
from serving.policy.placement.terms.moves import SETTLE_US, slots_us, stays_us
from serving.policy.placement.terms.plan import Bundle, Placement, Slot
from serving.policy.placement.terms.problem import Instances, PlacementDevice

COLUMNS_MAX = 4_000
"""The most columns. Larger programs are not tried, because one would take seconds."""
NODES_MAX = 1_000
"""The node limit of the search. Most programs are solved at its root."""
_TIE = 1e-3
"""All ties together count as so many minutes of starting. Ties are domains without a model, and instances to
make."""


@dataclass(slots=True)
class _Group:
    """Devices of a domain that hold the same `slots`; `row` bounds how many of them are used."""

    domain: str
    slots: Slots
    devices: list[PlacementDevice]
    row: int


@dataclass(slots=True)
class _Choice:
    """The columns that decide on a lot.

    - `bundles`: how many devices of a group take equal bundles.
    - `layouts`: how many devices of a group take a layout.
    - `stays`: how many of a group's instances stay as they are.
    - `starts`: how many of a content are started in a domain.
    """

    bundles: list[tuple[int, _Group, list[Bundle]]] = field(default_factory=list)
    layouts: list[tuple[int, _Group, Layout]] = field(default_factory=list)
    stays: list[tuple[int, _Group, Instance, Content]] = field(default_factory=list)
    starts: list[tuple[int, str, Content]] = field(default_factory=list)


class Naming:
    """The program that assigns `made`, all lots of a draft, to devices."""

    def __init__(self, made: Sequence[Lot], current: Placement) -> None:
        self.program = Program()
        self._present: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._places: Counter[str] = Counter()
        self._minutes = sum(slots_us(bundle.slots) for lot in made for bundle in lot.bundles) / SETTLE_US
        self._tie = _TIE / (1 + sum(len(bundle.slots) for lot in made for bundle in lot.bundles))
        groups = {lot.pool.name: self._grouped(lot, current) for lot in made}
        self._choices: list[tuple[Lot, _Choice]] = []
        for lot in made:
            admitted = [group for group in groups[lot.pool.name] if lot.admits(group.devices[0])]
            divided = isinstance(lot.pool.division, Instances)
            choice = self._instances(lot, admitted) if divided else self._bundles(lot, admitted)
            self._choices.append((lot, choice))

    def spread(self, least: Mapping[str, int]) -> None:
        """Add rows for the failure domains.

        The domains that a model lacks of `least` outweigh everything; the others are ties.
        """
        for model, domains in self._present.items():
            most = min(self._places[model], len(domains))
            if most < 2:
                continue
            absent = []
            for columns in domains.values():
                absent.append(self.program.column(self._tie / len(self._present), 1))
                self.program.row([(absent[-1], 1), *((column, 1) for column in columns)], lower=1)
            if model in least:
                short = self.program.column(1 + self._minutes)
                terms = [*((column, 1) for column in absent), (short, -1)]
                self.program.row(terms, upper=len(domains) - least[model])

    def _grouped(self, lot: Lot, current: Placement) -> list[_Group]:
        found: dict[Hashable, list[PlacementDevice]] = defaultdict(list)
        for device in lot.pool.devices:
            found[device.domain, alike(current.get(device.name, ()))].append(device)
        return [
            _Group(each[0].domain, current.get(each[0].name, ()), each, self.program.row(upper=len(each)))
            for each in found.values()
        ]

    def _column(self, group: _Group, row: int, cost: float = 0.0) -> int:
        """Add a column that counts a group's devices in that row."""
        column = self.program.column(cost, len(group.devices), integer=True)
        self.program.put(row, column, 1)
        return column

    def _is_there(self, slots: Sequence[Slot], domain: str, column: int) -> None:
        for model in models(slots):
            self._present[model][domain].append(column)

    def _bundles(self, lot: Lot, groups: Sequence[_Group]) -> _Choice:
        choice = _Choice()
        kinds: dict[Hashable, list[Bundle]] = defaultdict(list)
        for bundle in lot.bundles:
            kinds[alike(bundle.slots)].append(bundle)
            self._places.update(models(bundle.slots))
        for bundles in kinds.values():
            slots = bundles[0].slots
            all_of_them = self.program.row(lower=len(bundles), upper=len(bundles))
            for group in groups:
                cost = (slots_us(slots) - stays_us(group.slots, slots)) / SETTLE_US
                column = self._column(group, group.row, cost)
                self.program.put(all_of_them, column, 1)
                self._is_there(slots, group.domain, column)
                choice.bundles.append((column, group, bundles))
        return choice

    def _instances(self, lot: Lot, groups: Sequence[_Group]) -> _Choice:
        choice, program = _Choice(), self.program
        wanted = by_content(lot)
        domains = tuple(dict.fromkeys(group.domain for group in groups))
        labels = tuple(dict.fromkeys(label for label, _ in wanted))
        rows = _Rows(
            {each: program.row(lower=len(slots), upper=len(slots)) for each, slots in wanted.items()},
            {shape: program.row(lower=count, upper=count) for shape, count in shapes_of(lot).items()},
            {(domain, label): program.row(lower=0, upper=0) for domain in domains for label in labels},
        )
        for group in groups:
            self._group_of_instances(lot, group, rows, choice)
        for each, slots in wanted.items():
            self._places.update(dict.fromkeys(models(slots[:1]), len(slots)))
            for domain in domains:
                column = program.column(slots_us(slots[:1]) / SETTLE_US, len(slots), integer=True)
                program.put(rows.content[each], column, 1)
                program.put(rows.filled[domain, each[0]], column, -1)
                self._is_there(slots[:1], domain, column)
                choice.starts.append((column, domain, each))
        return choice

    def _group_of_instances(self, lot: Lot, group: _Group, rows: "_Rows", choice: _Choice) -> None:
        there = held_by(lot, group.slots)
        wanted = {one: each for one, each in there.items() if each in rows.content}
        # an instance stays on at most as many devices as get a layout that has it
        left = {one: self.program.row(lower=0) for one in wanted}
        for one, each in wanted.items():
            column = self._column(group, rows.content[each])
            self.program.put(left[one], column, -1)
            self.program.put(rows.filled[group.domain, each[0]], column, -1)
            for model, _, _ in dict.fromkeys(each[1]):
                self._present[model][group.domain].append(column)
            choice.stays.append((column, group, one, each))
        for shape, row in rows.shape.items():
            for layout in _distinct(arrangements(geometry_of(lot), shape), there):
                cost = self._tie * len(set(layout) - set(there))
                column = self._column(group, group.row, cost)
                self.program.put(row, column, 1)
                for one in layout:
                    self.program.put(rows.filled[group.domain, one[1]], column, 1)
                    if one in left:
                        self.program.put(left[one], column, 1)
                choice.layouts.append((column, group, layout))

    def units(self, values: Sequence[int], holders: Mapping[str, Sequence[str]]) -> list[Unit]:
        """Return what a solution says. `holders`: the devices that have a model loaded."""
        found: list[Unit] = []
        rooms: dict[Hashable, Room] = {}
        loose: dict[Hashable, list[list[Slots]]] = defaultdict(list)
        for place, (lot, choice) in enumerate(self._choices):
            for column, group, bundles in choice.bundles:
                taken = _take(group.devices, values[column])
                spots = [Spot(device.name, device.domain) for device in taken]
                found += [Unit(place, spot, bundles.pop().slots) for spot in spots]
            vacant: dict[Hashable, list[Spot]] = defaultdict(list)
            wanted = by_content(lot) if choice.layouts else {}
            divided = [
                (group, one, Spot(device.name, device.domain, one[0]))
                for column, group, layout in choice.layouts
                for device in _take(group.devices, values[column])
                for one in layout
            ]
            stays = {(id(group), one): [each] * values[column] for column, group, one, each in choice.stays}
            for group, one, spot in divided:
                if left := stays.get((id(group), one)):
                    found.append(Unit((place, one[1]), spot, (wanted[left.pop()].pop(),)))
                else:
                    vacant[place, one[1], spot.domain].append(spot)
            for column, domain, each in choice.starts:
                loose[place, each[0], domain].append([(wanted[each].pop(),) for _ in range(values[column])])
            rooms |= {kind: Room(free) for kind, free in vacant.items()}
        return found + deal(rooms, loose, defaultdict(Counter), {}, holders)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a MIG lot.

    `content` and `shape`: how many there are of each. `filled`: in each domain and of each profile, as many
    instances as have a content.
    """

    content: Mapping[Content, int]
    shape: Mapping[tuple[str, ...], int]
    filled: Mapping[tuple[str, str], int]


def _distinct(layouts: Sequence[Layout], there: Iterable[Instance]) -> list[Layout]:
    """Return the layouts that differ in what stays of `there`, without one that leaves less than another.

    Of layouts that leave the same, return the first.
    """
    kept = {frozenset(there).intersection(layout): layout for layout in reversed(layouts)}
    return [layout for each, layout in reversed(kept.items()) if not any(each < other for other in kept)]


def _take(devices: list[PlacementDevice], count: int) -> list[PlacementDevice]:
    taken = devices[:count]
    del devices[:count]
    return taken


def name(
    made: Sequence[Lot], current: Placement, least: Mapping[str, int], holders: Mapping[str, Sequence[str]]
) -> list[Unit] | None:
    """Return where every slot of the lots goes, or None if the program is too large or finds nothing.

    As few as possible of the domains in `least` are missing. Of such results the least is started. Of equal
    ones, each model is in the most domains.
    """
    if _size(made, current) > COLUMNS_MAX:
        return None
    naming = Naming(made, current)
    naming.spread(least)
    found = naming.program.solve(nodes_max=NODES_MAX)
    return None if found is None else naming.units([round(each) for each in found.values], holders)


def _size(made: Sequence[Lot], current: Placement) -> int:
    """Return about how many columns the program would have."""
    count = 0
    for lot in made:
        groups = {(each.domain, alike(current.get(each.name, ()))) for each in lot.pool.devices}
        if isinstance(lot.pool.division, Instances):
            domains = {domain for domain, _ in groups}
            ways = sum(len(arrangements(geometry_of(lot), shape)) for shape in shapes_of(lot))
            count += len(groups) * min(ways, 64) + len(domains) * len(by_content(lot))
        else:
            count += len(groups) * len({alike(bundle.slots) for bundle in lot.bundles})
    return count
