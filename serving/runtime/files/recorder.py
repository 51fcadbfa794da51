"""Records the arrivals that the gateway is given: packed on the event loop, written by a thread.

Recording never holds a request up. What the disk does not take is dropped and counted, and said once.
"""

import asyncio
import logging
import struct
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Final

from serving.ports import Call
from serving.recording import FLOWS_MAX, RECORD, RecordedFlow
from serving.runtime.clocks.clock import now_us
from serving.runtime.files.arrival_files import ArrivalFiles, RecordBlock
from serving.values.specs import RecordingSpec

logger = logging.getLogger(__name__)

FLUSH_S: Final = 0.5
"""How long an arrival waits for others before it is written: what a gateway that is killed may lose."""
BLOCK_BYTES: Final = 64 << 10
"""Of records, after which a block is written whatever its age: 3,600 arrivals."""
WAITING_BYTES_MAX: Final = 4 << 20
"""Of blocks that the disk has yet to take: what comes beyond is dropped."""
RETRY_US: Final = 10_000_000
"""After a failure, until the disk is tried again."""
CLOSE_S: Final = 2.0
"""For the disk to take what is left, at the end."""

_PACK = RECORD.pack
_INT32_MAX, _UINT32_MAX = (1 << 31) - 1, (1 << 32) - 1


class Recorder:
    """Writes a series of files (`serving/recording.py`). Made on the running event loop.

    `unix_us`: the wall clock's time of now; instants in the files are the monotonic clock's.
    """

    def __init__(self, spec: RecordingSpec, unix_us: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._flows: list[RecordedFlow] = []
        self._numbers: dict[tuple[str, str, str, str], int] = {}
        self._records = bytearray()
        self._base_us = 0
        self._timer: asyncio.TimerHandle | None = None
        self._handed_bytes = 0
        self._dropped = 0
        self._behind = False
        files = ArrivalFiles(spec, unix_us - now_us())
        self._writer = _Writer(files, self._flows)
        self._thread = Thread(target=self._writer.run, name="recorder", daemon=True)
        self._thread.start()

    @property
    def recorded(self) -> int:
        """Requests that are in files."""
        return self._writer.recorded

    @property
    def dropped(self) -> int:
        """Requests that will be in none."""
        return self._dropped + self._writer.dropped

    def record(self, call: Call, at_us: int) -> None:
        """Note that the call arrived, at this instant of the gateway's clock."""
        number = self._numbers.get((call.model.name, call.tenant, call.variant, call.objective.tier))
        if number is None:
            number = self._meet(call)
            if number is None:
                return
        records = self._records
        if not records:
            self._begin(at_us)
        timeout_us = call.timeout_us or 0
        try:
            records += _PACK(at_us - self._base_us, timeout_us, number, call.rows, call.size)
        except struct.error:
            offset_us = max(-_INT32_MAX, min(at_us - self._base_us, _INT32_MAX))
            large = [min(value, _UINT32_MAX) for value in (timeout_us, call.rows, call.size)]
            records += _PACK(offset_us, large[0], number, *large[1:])
        if len(records) >= BLOCK_BYTES:
            self._hand_over()

    async def close(self) -> None:
        """Write what is left; gives up on a disk that does not take it within CLOSE_S."""
        self._hand_over()
        self._writer.blocks.put(None)
        await asyncio.to_thread(self._thread.join, CLOSE_S)
        if self._thread.is_alive():
            logger.error("the disk did not take the end of the recording within %g s", CLOSE_S)

    def _meet(self, call: Call) -> int | None:
        """Return a new flow's number, or None where there are too many."""
        number = len(self._flows)
        if number == FLOWS_MAX:
            self._dropped += 1
            return None
        model, tenant, variant, promised = call.model.name, call.tenant, call.variant, call.objective
        self._flows.append(RecordedFlow(model, tenant, variant, promised.slo_us, promised.tier))
        self._numbers[model, tenant, variant, promised.tier] = number
        return number

    def _begin(self, at_us: int) -> None:
        self._base_us = at_us
        self._timer = self._loop.call_later(FLUSH_S, self._hand_over)

    def _hand_over(self) -> None:
        """Give the thread what there is, or drop it where too much waits there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        records = self._records
        if not records:
            return
        if self._handed_bytes - self._writer.taken_bytes > WAITING_BYTES_MAX:
            self._dropped += len(records) // RECORD.size
            if not self._behind:
                logger.error("the disk is too slow for the recording: arrivals are dropped until it keeps up")
                self._behind = True
        else:
            self._handed_bytes += len(records)
            self._writer.blocks.put(RecordBlock(self._base_us, bytes(records), len(self._flows)))
            if self._behind:
                logger.warning("the recording keeps up again; %d requests are not in it", self.dropped)
                self._behind = False
        records.clear()


class _Writer:
    """The thread's part. The event loop reads its counters; only the thread changes them."""

    def __init__(self, files: ArrivalFiles, flows: Sequence[RecordedFlow]) -> None:
        self.blocks: SimpleQueue[RecordBlock | None] = SimpleQueue()
        self.taken_bytes = 0
        self.recorded = 0
        self.dropped = 0
        self._files = files
        self._flows = flows
        self._failed = False
        self._retry_us = 0

    def run(self) -> None:
        """Write blocks until None comes."""
        while (block := self.blocks.get()) is not None:
            count = len(block.records) // RECORD.size
            if self._failed and block.base_us < self._retry_us:
                self.dropped += count
            else:
                self._write(block, count)
            self.taken_bytes += len(block.records)
        self._files.close()

    def _write(self, block: RecordBlock, count: int) -> None:
        try:
            self._files.write(block, self._flows)
        except OSError as error:
            self.dropped += count
            self._retry_us = block.base_us + RETRY_US
            if not self._failed:
                logger.error("arrivals are not recorded until this is over: %s", error)
                self._failed = True
            return
        self.recorded += count
        if self._failed:
            logger.warning("arrivals are recorded again; %d requests are not in it", self.dropped)
            self._failed = False
