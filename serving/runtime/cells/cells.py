"""This cell at the meetings: it says what it has, sees the others, follows the map, decides if it leads."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Final, Protocol  # Any: what JSON may hold

import orjson

from serving.policy.cells.homes import Homes
from serving.policy.cells.leading import CellReport, Leader, routes
from serving.runtime.cells.caller import CellCaller
from serving.runtime.cells.meeting import Meeting
from serving.runtime.cells.serving import Route
from serving.runtime.cells.spec import CellsSpec
from serving.runtime.clocks.clock import now_us
from serving.runtime.nodes.dialing import Gateway

logger = logging.getLogger(__name__)

BEAT_S: Final = 0.5
"""Between two meetings."""
JOIN_S: Final = 6.0
"""How long a gateway that starts waits for a map with its cell; a new leader takes 2 s of it to look."""
UNMET: Final = (OSError, KeyError, TypeError, ValueError)
"""What a meeting may raise: Redis is not there, or holds what no gateway of this release has written."""
TWINS_MAX: Final = 10
"""Meetings in a row at which another gateway spoke for this cell; an upgrade has fewer."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a cell is reached: its door, and what clients and load balancers call."""

    door: str = ""
    rest: str = ""
    grpc: str = ""


@dataclass(frozen=True, slots=True)
class CellStatus:
    """What is known of a cell. `reason`: why it cannot be called, "" if it can; `work`: slices' worth."""

    name: str
    addresses: Addresses
    slices: float
    work: float
    models: tuple[str, ...]
    reason: str
    trip_us: int
    passed: int


class Routed(Protocol):
    """What passes calls on to other cells: `serving.runtime.cells.serving.CellsServing`."""

    passed: dict[tuple[str, str], int]

    def route(self, routes: Mapping[str, Route], away: Set[str], homed: Set[str] = frozenset()) -> None:
        """Follow the map."""
        ...

    def look_again(self) -> None:
        """Note that a cell can be called again."""
        ...


class Cells:
    """This gateway among the others.

    `look`: returns what this cell has to say; `follow`: called with the models that this cell is to serve,
    while it serves others; `met`: with what all have said. `serving`: None until this cell serves. `beaten`:
    set at the next meeting.
    """

    def __init__(
        self, spec: CellsSpec, look: Callable[[], CellReport], context: ssl.SSLContext | None = None
    ) -> None:
        """`context`: for calls to other cells, None if their doors have no TLS."""
        self.spec = spec
        self.look = look
        self.follow: Callable[[Set[str]], None] = lambda _models: None
        self.met: Callable[[Sequence[CellReport]], None] = lambda _reports: None
        self.serving: Routed | None = None
        self.addresses = Addresses()
        self.homes: Homes = {}
        self.decided_by = ""
        self.version = 0
        self.fault = "has not met the other cells yet"  # why it is not at the meetings; "" if it is
        self.leaving = False
        self.stays = False  # its next gateway begins where this one ends
        self.reports: Sequence[CellReport] = ()
        self._context = context
        self._who = f"{spec.name}/{token_hex(8)}"
        self._meeting = Meeting(spec.redis, spec.name, self._who)
        self._leader = Leader()
        self._others: dict[str, tuple[CellCaller, asyncio.Task[None]]] = {}
        self._where: dict[str, Addresses] = {}
        self._said = b""
        self._own: Set[str] | None = None
        self._twins = 0
        self._unheard: set[str] = set()
        self.beaten = asyncio.Event()

    async def join(self) -> Set[str] | None:
        """Return the models of this cell; None if there is no map with it in time.

        A cell that the map knows says nothing yet: the gateway before this one may still serve.
        """
        silent = True
        try:
            async with asyncio.timeout(JOIN_S):
                while self._own is None:
                    own = self.look()
                    try:
                        await self._meet(own, silent)
                        self._say_fault("")
                    except UNMET as error:
                        self._say_redis(error)
                    if self._own is None:
                        silent = silent and bool(self.fault)
                        await asyncio.sleep(BEAT_S if not silent else BEAT_S / 5)
        except TimeoutError:
            logger.warning("cell %s: no map has it after %g s; it serves all models", self.spec.name, JOIN_S)
        return self._own

    async def run(self) -> None:
        """Meet the others until cancelled."""
        try:
            while True:
                await self.beat()
                await asyncio.sleep(BEAT_S)
        finally:
            await self.close()

    async def beat(self) -> None:
        """Meet the others once. What was decided before holds on while Redis is not there."""
        own = self.look()
        try:
            await self._meet(own)
        except UNMET as error:
            self._leader.rest()  # a Redis that begins again has forgotten the cells
            self._say_redis(error)
        else:
            self._say_fault("")
        others = [each for each in self.reports if each.name != own.name]
        self._call(others)
        self._route(own, others)
        self.met(self.reports)
        self.beaten.set()
        self.beaten = asyncio.Event()

    def cells(self) -> list[CellStatus]:
        """Return what is known of every cell, by name."""
        passed: dict[str, int] = {}
        for (cell, _), count in (self.serving.passed if self.serving is not None else {}).items():
            passed[cell] = passed.get(cell, 0) + count
        return [
            self._status(each, passed.get(each.name, 0))
            for each in sorted(self.reports, key=lambda report: report.name)
        ]

    def rest_of(self, model: str) -> str:
        """Return the REST address of another cell that has a model ready, "" if there is none."""
        names = [each.name for each in self.reports if model in each.ready and each.name != self.spec.name]
        homes = self.homes.get(model, {})
        names.sort(key=lambda name: (name not in homes, name))
        return self._where[names[0]].rest if names else ""

    def _status(self, report: CellReport, passed: int) -> CellStatus:
        caller = self._others[report.name][0] if report.name in self._others else None
        return CellStatus(
            report.name,
            self._where.get(report.name, Addresses()),
            report.slices,
            sum(report.work.values()),
            tuple(sorted(report.ready)),
            "" if caller is None else caller.reason,
            0 if caller is None else caller.trip_us,
            passed,
        )

    def is_needed(self) -> bool:
        """Return whether a model is ready in no cell but this one, though another could have it."""
        here = next((each for each in self.reports if each.name == self.spec.name), None)
        others = [each for each in self.reports if each.name != self.spec.name and each.slices]
        elsewhere = frozenset[str]().union(*(each.ready for each in others))
        able = frozenset[str]().union(*(each.file - each.unfit for each in others))
        return here is not None and bool((here.ready & able) - elsewhere)

    def _say_redis(self, error: Exception) -> None:
        place = self.spec.redis.place
        why = str(error) if isinstance(error, OSError) else f"holds what no cell has written ({error!r})"
        self._say_fault(f"cannot meet the other cells: Redis at {place}: {why}")

    def _say_fault(self, fault: str) -> None:
        if fault and fault != self.fault:
            logger.warning("cell %s %s; what was decided last holds on", self.spec.name, fault)
        elif self.fault and not fault:
            logger.info("cell %s meets the other cells", self.spec.name)
        self.fault = fault

    async def _meet(self, own: CellReport, silent: bool = False) -> None:
        self._said = b"" if silent else orjson.dumps(self._record(own))
        seen = await self._meeting.meet(self._said)
        self._hear(seen.cells)
        self._look_for_twin(seen.before)
        if seen.map and seen.map["version"] >= self.version:
            self._take(seen.map)
        if not seen.leads:
            self._leader.rest()
            return
        # Beside the event loop: it takes 0.1 s for 3,000 models.
        homes = await asyncio.to_thread(
            self._leader.decide, self.reports, self.homes, now_us(), mapped=bool(seen.map)
        )
        names = sorted(each.name for each in self.reports)
        if homes is not None and (_differ(homes, self.homes) or seen.map.get("cells") != names):
            latest = max([self.version, *(seen.cells[each.name]["version"] for each in self.reports)])
            decided = {
                "version": latest + 1, "decided_by": self.spec.name, "cells": names, "homes": homes,
            }  # fmt: skip
            if await self._meeting.publish(orjson.dumps(decided)):
                self._take(decided)

    def _hear(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        """Take what the cells say; one of another release may say it otherwise, and is not heard."""
        reports, where = [], {}
        for name, record in records.items():
            try:
                report, at = _report(name, record), Addresses(*record["at"])
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                if name not in self._unheard:
                    logger.warning("cell %s says what this release does not understand: %r", name, error)
                self._unheard.add(name)
            else:
                reports.append(report)
                where[name] = at
        self.reports, self._where = reports, where

    def _look_for_twin(self, before: Mapping[str, Any]) -> None:
        other = before.get("who", self._who) != self._who and bool(self._said)
        self._twins = self._twins + 1 if other else 0
        if self._twins == TWINS_MAX:
            logger.error("two gateways have the name %s in `cells:`; each needs its own", self.spec.name)

    def _take(self, decided: Mapping[str, Any]) -> None:
        self.homes = decided["homes"]
        self.version, self.decided_by = decided["version"], decided["decided_by"]
        if self.spec.name in decided["cells"]:
            self._own = {model for model, parts in self.homes.items() if self.spec.name in parts}

    def _record(self, own: CellReport) -> dict[str, object]:
        where = self.addresses
        return {
            "who": self._who,
            "version": self.version,
            "at": (where.door, where.rest, where.grpc),
            "slices": 0 if self.leaving else own.slices,
            "file": sorted(own.file),
            "work": {model: round(part, 3) for model, part in own.work.items()},
            "ready": sorted(own.ready),
            "unfit": sorted(own.unfit),
            "sent": {tenant: round(rate, 1) for tenant, rate in own.sent.items()},
        }

    def _call(self, others: Sequence[CellReport]) -> None:
        """Keep a connection to each of the other cells."""
        wanted = {each.name: self._where[each.name].door for each in others if self._where[each.name].door}
        for name, (caller, task) in [*self._others.items()]:
            if wanted.get(name) != str(caller.gateway):
                task.cancel()
                del self._others[name]
        for name in wanted.keys() - self._others.keys():
            host, _, port = wanted[name].rpartition(":")
            gateway = Gateway(host.strip("[]"), int(port), self._context)
            caller = CellCaller(name, gateway, self.spec.name, self.spec.token)
            caller.on_connected = self._on_connected
            self._others[name] = caller, asyncio.create_task(caller.run())

    def _on_connected(self) -> None:
        if self.serving is not None:
            self.serving.look_again()

    def _route(self, own: CellReport, others: Sequence[CellReport]) -> None:
        """Say which models other cells answer: those that this one cannot, or is no home of. And say which
        models this cell is to have: it keeps those that no home of theirs has ready."""
        found = routes(others, self.homes)
        ways = {
            model: [(self._others[name][0], part) for name, part in parts.items() if name in self._others]
            for model, parts in found.items()
        }
        ways = {model: way for model, way in ways.items() if way}
        served = own.work.keys()
        homes: Set[str] = own.file if self._own is None else self._own
        left = {model for model in served if model not in homes and self._at_home(model, ways)}
        waiting = {model for model in served if model not in own.ready and model in ways}
        if self.serving is not None:
            self.serving.route(ways, (own.file - served) | waiting | left, self.homes.keys())
        wanted = (homes | served) - left - own.unfit
        if self._own is not None and wanted != served:
            self.follow(wanted)

    def _at_home(self, model: str, ways: Mapping[str, Route]) -> bool:
        """Return whether another cell is a home of the model and answers it."""
        homes = self.homes.get(model, {})
        return any(caller.name in homes and caller.connected for caller, _ in ways.get(model, ()))

    async def close(self) -> None:
        """Leave the meetings."""
        for _, task in self._others.values():
            task.cancel()
        self._others.clear()
        try:
            if self._said and not self.stays:
                await self._meeting.leave(self._said)
        except OSError as error:
            logger.info("cell %s leaves unsaid: %s", self.spec.name, error)
        await self._meeting.close()


def _report(name: str, record: Mapping[str, Any]) -> CellReport:
    int(record["version"])
    return CellReport(
        name,
        float(record["slices"]),
        frozenset(record["file"]),
        record["work"],
        frozenset(record["ready"]),
        frozenset(record["unfit"]),
        record["sent"],
    )


def _differ(homes: Homes, before: Homes) -> bool:
    """Return whether homes differ by what is worth a new map: other cells, or work by a fifth."""
    if {model: {*parts} for model, parts in homes.items()} != {
        model: {*parts} for model, parts in before.items()
    }:
        return True
    pairs = ((part, before[model][name]) for model, parts in homes.items() for name, part in parts.items())
    return any(abs(part - old) > max(0.2, 0.2 * old) for part, old in pairs)
