"""Files of recorded arrivals: when each request came, and never what was in it.

`docs/recording.md` has the layout. A file is a header and then blocks, each with a checksum. A block holds
names of new flows, or arrivals. If a gateway is killed, only the last block of its file may be incomplete,
and each whole record in that block counts.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import NamedTuple, cast
from zlib import crc32

import numpy as np
import numpy.typing as npt

MAGIC = b"PENSTOCK"
VERSION = 2
"""The version that is written. Version 1 is read as well; its flows have no tier."""
SUFFIX = ".arrivals"
FLOWS_MAX = 1 << 16
"""The most flows in a file: a record has two bytes for its flow's number."""

RECORD = Struct("<iIHII")
"""An arrival: us from its block's base, the client's timeout in us (0: none given), flow, rows, size hint."""

LATEST_US = 1 << 60
"""36,000 years: sums of instants up to this bound fit 64-bit integers."""

_HEADER = Struct("<8sHQ")  # magic, version, start in unix us; then the checksum of all that
_CHECKSUM = Struct("<I")
_HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_BLOCK = Struct("<cII")  # kind, bytes of the body, their checksum; then the checksum of all that
_BLOCK_BYTES = _BLOCK.size + _CHECKSUM.size
_BASE = Struct("<q")  # us from the file's start
_NAMES, _ARRIVALS = b"N", b"A"
_RECORD_TYPE = np.dtype(
    [("offset_us", "<i4"), ("timeout_us", "<u4"), ("flow", "<u2"), ("rows", "<u4"), ("size", "<u4")]
)

ARRIVAL_TYPE = np.dtype(
    [("at_us", "<i8"), ("timeout_us", "<u4"), ("flow", "<u2"), ("rows", "<u4"), ("size", "<u4")]
)


class RecordedFlow(NamedTuple):
    """The group that a request belongs to.

    `variant`: the variant that the client pins, or "". `slo_us`: the SLO that was promised then. `tier`: the
    tier that the request asked for, "" for the model's own objective.
    """

    model: str
    tenant: str
    variant: str
    slo_us: int
    tier: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """The content of a file.

    `arrivals`: of ARRIVAL_TYPE, in the order of submission; `at_us` counts from the start of the file. `cut`:
    where the file ends too early, or "".
    """

    start_unix_us: int
    flows: tuple[RecordedFlow, ...]
    arrivals: npt.NDArray[np.void]
    cut: str = ""


def header(start_unix_us: int) -> bytes:
    """Return the first bytes of a file that starts at this instant."""
    head = _HEADER.pack(MAGIC, VERSION, start_unix_us)
    return head + _CHECKSUM.pack(crc32(head))


def flows_block(flows: Sequence[RecordedFlow]) -> bytes:
    """Return a block of the next flows of a file, numbered from 0 in the order of all its blocks."""
    return _block(_NAMES, json.dumps(flows, separators=(",", ":")).encode())


def arrivals_block(base_us: int, records: bytes | bytearray) -> bytes:
    """Return a block of RECORDs with their base, in us from the file's start.

    Blocks before this one must hold the flows of these records.
    """
    return _block(_ARRIVALS, _BASE.pack(base_us) + records)


def _block(kind: bytes, body: bytes) -> bytes:
    head = _BLOCK.pack(kind, len(body), crc32(body))
    return head + _CHECKSUM.pack(crc32(head)) + body


def read(path: Path) -> Recording:
    """Read the file at `path`. ValueError names the file, the fault, and what was expected there."""
    try:
        return parse(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ValueError(f"cannot read the recording {path}: {reason}") from error


def parse(content: bytes) -> Recording:
    """Return the recording in a file's bytes; ValueError if they are damaged or no recording."""
    if len(content) < _HEADER_BYTES and content[: len(MAGIC)] == MAGIC[: len(content)]:
        empty = np.empty(0, ARRIVAL_TYPE)
        return Recording(0, (), empty, f"ends after {len(content)} bytes, within its header")
    start_unix_us = _parse_header(content)
    flows: list[RecordedFlow] = []
    found = [np.empty(0, ARRIVAL_TYPE)]
    cut = ""
    for at, kind, body, whole in _blocks(content):
        if kind == _ARRIVALS:
            found.append(_parse_arrivals(body, len(flows), at))
        elif whole:
            flows += _parse_flows(body, at)
        if not whole:
            count = len(found[-1]) if kind == _ARRIVALS else 0
            cut = (
                f"ends at byte {len(content)}, within the block of byte {at}; {count} requests of it are read"
            )
    return Recording(start_unix_us, tuple(flows), np.concatenate(found), cut)


def _parse_header(content: bytes) -> int:
    expected = f"the header of a recording of version 1 to {VERSION}, which begins with {MAGIC!r}"
    if not content.startswith(MAGIC):
        raise ValueError(f"it begins with {content[: len(MAGIC)]!r}, expected {expected}")
    _, version, start_unix_us = _HEADER.unpack_from(content)
    (checksum,) = _CHECKSUM.unpack_from(content, _HEADER.size)
    if not 1 <= version <= VERSION:
        raise ValueError(f"it has version {version}, expected {expected}")
    if checksum != crc32(content[: _HEADER.size]):
        raise ValueError(f"its header is damaged (checksum), expected {expected}")
    if start_unix_us > LATEST_US:
        raise ValueError(f"it starts {start_unix_us} us after 1970, expected at most {LATEST_US}")
    return int(start_unix_us)


def _blocks(content: bytes) -> Iterator[tuple[int, bytes, bytes, bool]]:
    """Yield (position, kind, body, is it complete) of each block; only the last may be incomplete."""
    at = _HEADER_BYTES
    while at < len(content):
        start = at + _BLOCK_BYTES
        if start > len(content):
            yield at, b"", b"", False
            return
        kind, length, checksum = _BLOCK.unpack_from(content, at)
        (head_checksum,) = _CHECKSUM.unpack_from(content, at + _BLOCK.size)
        if kind not in (_NAMES, _ARRIVALS) or head_checksum != crc32(content[at : at + _BLOCK.size]):
            raise ValueError(f"damaged at byte {at}: expected the head of a block, got one of kind {kind!r}")
        body = content[start : start + length]
        whole = len(body) == length
        if whole and checksum != crc32(body):
            raise ValueError(
                f"damaged within the block of byte {at}: expected {length} bytes of checksum {checksum:08x}"
            )
        yield at, kind, body, whole
        at = start + length


def _parse_arrivals(body: bytes, flow_count: int, at: int) -> npt.NDArray[np.void]:
    """Return all complete records of a block's body."""
    if len(body) < _BASE.size:
        return np.empty(0, ARRIVAL_TYPE)
    (base_us,) = _BASE.unpack_from(body)
    if abs(base_us) > LATEST_US:
        raise ValueError(f"damaged at byte {at}: its requests are {base_us} us from the start of the file")
    count = (len(body) - _BASE.size) // RECORD.size
    records = np.frombuffer(body, _RECORD_TYPE, count, _BASE.size)
    arrivals = np.empty(count, ARRIVAL_TYPE)
    arrivals["at_us"] = base_us + records["offset_us"].astype(np.int64)
    for name in ("timeout_us", "flow", "rows", "size"):
        arrivals[name] = records[name]
    if count and (arrivals["flow"].max() >= flow_count or not arrivals["rows"].min()):
        raise ValueError(f"damaged at byte {at}: expected requests of rows >= 1 in one of {flow_count} flows")
    return arrivals


def _parse_flows(body: bytes, at: int) -> list[RecordedFlow]:
    try:
        entries = json.loads(body)
        flows = [RecordedFlow(*entry) for entry in cast("list[list[object]]", entries)]  # type: ignore[arg-type]
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"damaged at byte {at}: expected a list of flows ({error})") from error
    for flow in flows:
        texts = (flow.model, flow.tenant, flow.variant, flow.tier)
        if not all(type(name) is str for name in texts) or type(flow.slo_us) is not int:
            raise ValueError(
                f"damaged at byte {at}: expected model, tenant, variant, SLO and tier, got {list(flow)!r:.80}"
            )
    return flows
