"""What the gateway records of its calls, and that no disk holds it up."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.ports import Call
from serving.recording import RECORD, RecordedFlow, Recording, read
from serving.runtime.clocks.clock import now_us
from serving.runtime.files import recorder as module
from serving.runtime.files.arrival_files import ArrivalFiles, RecordBlock
from serving.runtime.files.recorder import BLOCK_BYTES, RETRY_US, WAITING_BYTES_MAX, Recorder, _Writer
from serving.values.objectives import Needs
from serving.values.specs import RecordingSpec
from tests.builders import model_spec, served

UNIX_US = 1_700_000_000_000_000
MODELS = [
    replace(served(spec), tiers=(Needs("gold", slo_us=9_000),))
    for spec in (model_spec("digits", ("linear", "cnn"), slo_ms=25), model_spec("minilm", slo_ms=250))
]
PER_BLOCK = -(-BLOCK_BYTES // RECORD.size)


@pytest.fixture(autouse=True, scope="module")
def patient() -> Iterator[None]:
    """Only a disk that hangs is given up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CLOSE_S", 60.0)
        yield


calls = st.lists(
    st.tuples(
        st.integers(-5_000_000, 5_000_000),  # from now on
        st.sampled_from(MODELS),
        st.sampled_from(["default", "shop"]),
        st.sampled_from(["", "cnn"]),
        st.sampled_from(["", "gold"]),
        st.integers(1, 1 << 33),  # rows
        st.one_of(st.none(), st.integers(1, 1 << 33)),  # timeout
        st.integers(0, 1 << 33),  # size
    ),
    max_size=5,
)


def call(rows: int = 1) -> Call:
    return Call(MODELS[0], [], rows)


def fill(recorder: Recorder, at_us: int, blocks: int = 1) -> None:
    """As many arrivals as make so many blocks."""
    for _ in range(blocks * PER_BLOCK):
        recorder.record(call(), at_us)


def files_in(folder: Path) -> list[Recording]:
    return [read(path) for path in sorted(folder.iterdir())]


@given(calls)
def test_a_recording_says_what_came_and_when(tmp_path_factory: pytest.TempPathFactory, given: list) -> None:  # type: ignore[type-arg]
    folder = tmp_path_factory.mktemp("recording")
    expected, made_us = [], list[int]()
    largest = (1 << 32) - 1

    async def record() -> None:
        before_us = now_us()
        recorder = Recorder(RecordingSpec(folder), UNIX_US)
        start_us = now_us()
        made_us.append(start_us - before_us)
        for after_us, model, tenant, variant, tier, rows, timeout_us, size in given:
            made = Call(model, [], rows)
            made.tenant, made.variant, made.timeout_us, made.size = tenant, variant, timeout_us, size
            made.objective = model.objective(tier)
            recorder.record(made, start_us + after_us)
            flow = RecordedFlow(model.name, tenant, variant, 9_000 if tier else model.slo_us, tier)
            expected.append(
                (after_us, flow, min(rows, largest), min(timeout_us or 0, largest), min(size, largest))
            )
        await recorder.close()
        assert (recorder.recorded, recorder.dropped) == (len(given), 0)

    asyncio.run(record())
    found = [
        (recording.start_unix_us + at_us - UNIX_US, recording.flows[flow], rows, timeout_us, size)
        for recording in files_in(folder)
        for at_us, timeout_us, flow, rows, size in recording.arrivals.tolist()
    ]
    assert [each[1:] for each in found] == [each[1:] for each in expected]
    behind_us = [each[0] - wanted[0] for each, wanted in zip(found, expected, strict=True)]
    assert len(set(behind_us)) <= 1  # start_us was read a little after the recorder read its clock
    assert all(0 <= each <= made_us[0] for each in behind_us)


class Watched(ArrivalFiles):
    """Waits before each block until `goes_on`; `written` counts the blocks."""

    goes_on = threading.Event()
    written = threading.Semaphore(0)

    def write(self, block: RecordBlock, flows: Sequence[RecordedFlow]) -> None:
        Watched.goes_on.wait()
        super().write(block, flows)
        Watched.written.release()


async def test_without_a_request_there_is_no_file(tmp_path: Path) -> None:
    recorder = Recorder(RecordingSpec(tmp_path / "recordings"), UNIX_US)
    await recorder.close()
    assert files_in(tmp_path) == []


@pytest.mark.slow
async def test_an_arrival_is_in_the_file_though_no_other_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ArrivalFiles", Watched)
    Watched.goes_on.set()
    recorder = Recorder(RecordingSpec(tmp_path), UNIX_US)
    recorder.record(call(), now_us())
    assert await asyncio.to_thread(Watched.written.acquire, timeout=30)
    assert sum(len(each.arrivals) for each in files_in(tmp_path)) == 1
    await recorder.close()


async def test_a_disk_that_hangs_holds_nobody_up_and_what_it_does_not_take_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "ArrivalFiles", Watched)
    Watched.goes_on.clear()
    recorder = Recorder(RecordingSpec(tmp_path), UNIX_US)
    blocks = WAITING_BYTES_MAX // BLOCK_BYTES + 10
    fill(recorder, now_us(), blocks)
    assert recorder.recorded == 0
    assert 0 < recorder.dropped <= 10 * PER_BLOCK
    Watched.goes_on.set()
    for _ in range(blocks - recorder.dropped // PER_BLOCK):
        assert await asyncio.to_thread(Watched.written.acquire, timeout=30)
    fill(recorder, now_us())
    await recorder.close()
    assert recorder.recorded + recorder.dropped == (blocks + 1) * PER_BLOCK
    assert sum(len(each.arrivals) for each in files_in(tmp_path)) == recorder.recorded
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "the disk is too slow for the recording: arrivals are dropped until it keeps up",
        f"the recording keeps up again; {recorder.dropped} requests are not in it",
    ]


async def test_a_disk_that_hangs_does_not_keep_the_gateway_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(ArrivalFiles, "write", lambda *_: goes_on.wait())
    monkeypatch.setattr(module, "CLOSE_S", 0.01)
    recorder = Recorder(RecordingSpec(tmp_path), UNIX_US)
    recorder.record(call(), now_us())
    await recorder.close()
    assert [record.getMessage() for record in caplog.records] == [
        "the disk did not take the end of the recording within 0.01 s"
    ]
    goes_on.set()
    recorder._thread.join()


def block(at_us: int) -> RecordBlock:
    return RecordBlock(at_us, RECORD.pack(0, 0, 0, 1, 0), 1)


def run(writer: _Writer, *instants_us: int) -> None:
    """Write a request of each of these instants."""
    for at_us in instants_us:
        writer.blocks.put(block(at_us))
    writer.blocks.put(None)
    writer.run()


def test_what_cannot_be_written_is_counted_said_once_and_over_by_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "recordings"
    folder.touch()  # no folder
    flows = [RecordedFlow("digits", "default", "", 25_000)]
    writer = _Writer(ArrivalFiles(RecordingSpec(folder), UNIX_US), flows)
    run(writer, 0, 1, RETRY_US, RETRY_US + 1)
    assert (writer.recorded, writer.dropped) == (0, 4)
    folder.unlink()
    run(writer, 2 * RETRY_US - 1, 2 * RETRY_US, 2 * RETRY_US + 1)
    assert (writer.recorded, writer.dropped) == (2, 5)
    (recording,) = files_in(folder)
    assert recording.arrivals["at_us"].tolist() == [0, 1]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0].startswith("arrivals are not recorded until this is over: [Errno 17] File exists")
    assert said[1] == "arrivals are recorded again; 5 requests are not in it"


async def test_more_flows_than_a_file_can_number_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FLOWS_MAX", 2)
    recorder = Recorder(RecordingSpec(tmp_path), UNIX_US)
    for tenant in ("a", "b", "c", "a"):
        made = call()
        made.tenant = tenant
        recorder.record(made, now_us())
    await recorder.close()
    assert (recorder.recorded, recorder.dropped) == (3, 1)
