"""Watches the GPUs of this machine while slices use them, and carries out what their health asks for.

A daemon thread reads, because a driver may not return from a call. The event loop judges what was read.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from serving.policy.device_health import (
    Cordon,
    EndWorkers,
    GpuReading,
    GpuStanding,
    Note,
    Placed,
    Uncordon,
    Verdict,
    judge,
    struck,
)
from serving.runtime.clocks.clock import now_us

logger = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
"""Between two readings of all GPUs. One takes milliseconds."""

FRESH_WAIT_S: Final = 2.0
"""How long whoever wants a reading at once waits for it."""


class Reader(Protocol):
    """What tells the state of the GPUs."""

    reason: str

    def read(self) -> Sequence[GpuReading]: ...

    def close(self) -> None: ...


class Devices(Protocol):
    """What uses the GPUs (`serving.runtime.fleet.Fleet`)."""

    def device_lost(self, domain: str, reason: str) -> None: ...

    def device_back(self, domain: str) -> None: ...

    def end_worker(self, slice_name: str, reason: str) -> None: ...


class DeviceWatch:
    """The health of the GPUs. `placed`: where each slice computes; `domain_of`: what a slice is lost with."""

    def __init__(
        self,
        devices: Devices,
        placed: Callable[[], Mapping[str, Placed]],
        domain_of: Callable[[str], str],
        make_reader: Callable[[], Reader],
        pause_s: float = PAUSE_S,
    ) -> None:
        self.readings: Sequence[GpuReading] = ()
        self.standings: dict[str, GpuStanding] = {}
        self._devices = devices
        self._placed = placed
        self._domain_of = domain_of
        self._make_reader = make_reader
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._read_next: asyncio.Future[None] | None = None
        self._thread: threading.Thread | None = None
        self._reason = ""
        self._cordoned: dict[str, set[str]] = {}  # the domains that were given up with a GPU, by its UUID

    def start(self) -> None:
        """Begin to watch, from the event loop; nothing if it does already."""
        if self._thread is None and not self._stop.is_set():
            arguments = (asyncio.get_running_loop(),)
            self._thread = threading.Thread(target=self._read, args=arguments, name="gpus", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Watch no longer. A thread that the driver holds up is left behind."""
        self._stop.set()
        self._wake.set()

    async def fresh(self, wait_s: float = FRESH_WAIT_S) -> Sequence[GpuReading]:
        """Return a reading that begins now; the last one if the driver takes longer than `wait_s`."""
        if self._thread is None or self._stop.is_set():
            return self.readings
        for _ in range(2):  # the first may have begun before
            if self._read_next is None:
                self._read_next = asyncio.get_running_loop().create_future()
            self._wake.set()
            await asyncio.wait([self._read_next], timeout=wait_s)
        return self.readings

    def hear(self, readings: Sequence[GpuReading], reason: str = "", at_us: int | None = None) -> None:
        """Take what was read, and carry out what follows. `reason`: why nothing could be read; `at_us`: when
        it was read, None for now."""
        read_us = now_us() if at_us is None else at_us
        read, self._read_next = self._read_next, None
        if read is not None and not read.done():
            read.set_result(None)
        if self._stop.is_set():
            return
        if reason != self._reason:
            self._reason = reason
            if reason:
                logger.warning("the health of GPUs cannot be read: %s", reason)
        self.readings = readings or self.readings
        for reading in readings:
            standing = self.standings.get(reading.uuid, GpuStanding())
            self.standings[reading.uuid], verdicts = judge(standing, reading, read_us)
            for verdict in verdicts:
                self._carry_out(verdict)
        self._hold()

    def release(self, uuid: str) -> tuple[str, ...]:
        """Lift the cordon of a GPU, as its operator says that it is good. Return what was given up with it,
        and may be used again."""
        if uuid in self.standings:
            self.standings[uuid] = replace(self.standings[uuid], cordoned="", lost=False, calm_us=None)
        return tuple(sorted(self._cordoned.pop(uuid, ())))

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        reader = self._make_reader()
        while not self._stop.is_set():
            readings = reader.read()
            try:
                loop.call_soon_threadsafe(self.hear, readings, reader.reason)
            except RuntimeError:  # the loop is closed
                break
            self._wake.wait(self._pause_s)
            self._wake.clear()
        reader.close()

    def _carry_out(self, verdict: Verdict) -> None:
        match verdict:
            case Note(text=text):
                logger.warning("%s", text)
            case EndWorkers(reason=reason):
                names = struck(verdict, self._placed())
                logger.warning("%s; %s", reason, _ended(names))
                for name in names:
                    self._devices.end_worker(name, reason)
            case Cordon(uuid=uuid, reason=reason):
                self._cordoned[uuid] = set()
                logger.error("%s; its slices are lost until then", reason)
            case Uncordon(uuid=uuid):
                logger.warning("GPU %s was reset and is quiet; slices may use it", uuid)
                for domain in sorted(self._cordoned.pop(uuid, ())):
                    self._devices.device_back(domain)

    def _hold(self) -> None:
        """Give up the slices on cordoned GPUs, those too that came after the fault."""
        for name, place in self._placed().items():
            standing = self.standings.get(place.uuid)
            domain = self._domain_of(name)
            if standing is None or not standing.cordoned or domain in self._cordoned[place.uuid]:
                continue
            self._cordoned[place.uuid].add(domain)
            self._devices.device_lost(domain, standing.cordoned)


def _ended(names: Collection[str]) -> str:
    if not names:
        return "the worker that it struck ends by itself"
    return f"the workers of {', '.join(sorted(names))} end"
