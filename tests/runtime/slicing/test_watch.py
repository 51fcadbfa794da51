"""What `DeviceWatch` carries out of what it reads, without blocking its loop or outliving its stop."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from serving.policy.device_health import GpuReading, Placed, Xid
from serving.runtime.clocks.clock import now_us
from serving.runtime.slicing.watch import DeviceWatch

CALM = GpuReading("GPU-0", 0, "NVIDIA H200", xids=())


class Told:
    """`Devices` that note what they are told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.lost = asyncio.Event()

    def device_lost(self, domain: str, reason: str) -> None:
        self.said.append(("lost", domain))
        self.lost.set()

    def device_back(self, domain: str) -> None:
        self.said.append(("back", domain))

    def end_worker(self, slice_name: str, reason: str) -> None:
        self.said.append(("end", slice_name))


class Readings:
    """A reader that gives one reading after the other, and waits for `go` before each."""

    reason = ""

    def __init__(self, *readings: GpuReading) -> None:
        self.go = threading.Semaphore(0)
        self.closed = threading.Event()
        self._left = [*readings]

    def read(self) -> Sequence[GpuReading]:
        self.go.acquire()
        return [self._left.pop(0)] if self._left else []

    def close(self) -> None:
        self.closed.set()


def watch(told: Told, placed: dict[str, Placed], reader: Readings | None = None) -> DeviceWatch:
    return DeviceWatch(told, lambda: placed, lambda name: f"of {name}", lambda: reader or Readings(), 0.001)


def test_a_lost_gpu_takes_its_slices_along_later_ones_too_and_gives_them_back() -> None:
    told = Told()
    placed = {"a": Placed("GPU-0", "", "mps"), "b": Placed("GPU-1", "", "mps")}
    seen = watch(told, placed)
    seen.hear([CALM])
    seen.hear([replace(CALM, lost=True)])
    assert told.said == [("lost", "of a")]
    placed["c"] = Placed("GPU-0", "", "mps")
    seen.hear([replace(CALM, lost=True)])
    assert told.said[1:] == [("lost", "of c")]
    begin_us = now_us()
    for later_s in (100, 159):
        seen.hear([CALM], at_us=begin_us + later_s * 1_000_000)
    assert told.said[2:] == []
    seen.hear([CALM], at_us=begin_us + 161_000_000)
    assert told.said[2:] == [("back", "of a"), ("back", "of c")]
    seen.hear([CALM], at_us=begin_us + 162_000_000)
    assert len(told.said) == 4


def test_a_gpu_whose_operator_says_that_it_is_good_is_used_until_its_next_fault() -> None:
    told = Told()
    seen = watch(told, {"a": Placed("GPU-0", "", "whole")})
    faulty = replace(CALM, xids=(Xid(119),))
    seen.hear([faulty])
    seen.hear([CALM])
    assert seen.release("GPU-0") == ("of a",)
    seen.hear([CALM])
    assert told.said == [("lost", "of a")]
    seen.hear([faulty])
    assert told.said == [("lost", "of a")] * 2
    assert seen.release("GPU-1") == ()


def test_a_fault_of_an_application_ends_its_worker_and_leaves_the_gpu_in_use(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()
    seen = watch(told, {"a": Placed("GPU-0", "", "whole")})
    seen.hear([replace(CALM, xids=(Xid(31),))])
    assert told.said == [("end", "a")]
    assert "GPU 0: XID 31, memory page fault; the workers of a end" in caplog.text


async def test_readings_come_from_another_thread_and_end_with_stop() -> None:
    told, reader = Told(), Readings(CALM, replace(CALM, xids=(Xid(79),)))
    seen = watch(told, {"a": Placed("GPU-0", "", "whole")}, reader)
    seen.start()
    assert seen.readings == ()  # the loop goes on while the reader waits
    for _ in range(3):
        reader.go.release()
    async with asyncio.timeout(30):
        await told.lost.wait()
    assert told.said == [("lost", "of a")]
    seen.stop()
    reader.go.release()
    assert await asyncio.to_thread(reader.closed.wait, 30)


def test_that_nothing_can_be_read_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    seen = watch(Told(), {})
    for _ in range(2):
        seen.hear((), "NVML: not found")
    assert caplog.text.count("the health of GPUs cannot be read: NVML: not found") == 1


async def test_a_fresh_reading_begins_after_it_was_asked_for() -> None:
    reader = Readings(CALM, replace(CALM, memory_used_bytes=1), replace(CALM, memory_used_bytes=2))
    seen = DeviceWatch(Told(), dict, str, lambda: reader, pause_s=3600)
    assert await seen.fresh() == ()  # it does not watch yet
    seen.start()
    asking = asyncio.ensure_future(seen.fresh(30))
    for _ in range(3):
        reader.go.release()
    assert [each.memory_used_bytes for each in await asking] in ([1], [2])
    seen.stop()
    reader.go.release()


async def test_a_driver_that_does_not_return_holds_nobody_up() -> None:
    reader = Readings(CALM)
    seen = DeviceWatch(Told(), dict, str, lambda: reader, pause_s=3600)
    seen.start()
    assert await seen.fresh(0.01) == ()
    seen.stop()
    reader.go.release()
