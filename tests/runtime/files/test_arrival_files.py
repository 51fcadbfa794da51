"""The files of a recording: how large, how many, whose, and what a disk that fails leaves of them."""

import errno
import fcntl
import os
import resource
import shutil
from contextlib import suppress
from io import FileIO
from pathlib import Path

import pytest

from serving.recording import MAGIC, RECORD, RecordedFlow, read
from serving.runtime.files.arrival_files import ArrivalFiles, RecordBlock
from serving.values.specs import RecordingSpec

UNIX_OFFSET_US = 1_700_000_000_000_000
FLOWS = [RecordedFlow("digits", "default", "", 25_000), RecordedFlow("minilm", "shop", "int8", 250_000)]
BLOCK_RECORDS = 40  # 750 bytes with what is around them


def block(number: int, flow_count: int = 1) -> RecordBlock:
    """Requests of `number` rows, a second after those of the block before."""
    record = RECORD.pack(0, 0, flow_count - 1, number, 0)
    return RecordBlock(number * 1_000_000, record * BLOCK_RECORDS, flow_count)


def spec(folder: Path, file_bytes: int = 2000, files: int = 3) -> RecordingSpec:
    return RecordingSpec(folder, file_bytes, files)


def blocks_in(folder: Path) -> list[list[int]]:
    """The numbers of the blocks in each file."""
    found = [read(path) for path in sorted(folder.glob("*.arrivals"))]
    assert not [recording.cut for recording in found if recording.cut]
    rows = [recording.arrivals["rows"].tolist() for recording in found]
    assert all(len(each) % BLOCK_RECORDS == 0 for each in rows)
    return [each[::BLOCK_RECORDS] for each in rows]


def test_files_are_rotated_before_they_are_too_large_and_the_oldest_goes(tmp_path: Path) -> None:
    files, folder = (
        ArrivalFiles(spec(tmp_path / "made" / "by it"), UNIX_OFFSET_US),
        tmp_path / "made" / "by it",
    )
    for number in range(1, 12):
        files.write(block(number), FLOWS)
        sizes = [path.stat().st_size for path in folder.iterdir()]
        assert max(sizes) <= 2000
        assert len(sizes) <= 3
    files.close()
    assert blocks_in(folder) == [[7, 8], [9, 10], [11]]


def test_a_file_says_when_it_starts_and_names_its_flows_by_itself(tmp_path: Path) -> None:
    files = ArrivalFiles(spec(tmp_path, file_bytes=1000), UNIX_OFFSET_US)
    files.write(block(1), FLOWS)
    files.write(block(2, flow_count=2), FLOWS)
    files.close()
    first, second = (read(path) for path in sorted(tmp_path.iterdir()))
    assert first.flows == tuple(FLOWS[:1])
    assert second.flows == tuple(FLOWS)
    assert [each.start_unix_us - UNIX_OFFSET_US for each in (first, second)] == [1_000_000, 2_000_000]
    assert sorted(path.name for path in tmp_path.iterdir())[0] == "20231114T221321.000000Z.arrivals"
    assert second.arrivals["flow"].tolist() == [1] * BLOCK_RECORDS


def test_a_flow_is_named_once_a_file(tmp_path: Path) -> None:
    files = ArrivalFiles(spec(tmp_path, file_bytes=10_000), UNIX_OFFSET_US)
    for number, flow_count in ((1, 1), (2, 2), (3, 2)):
        files.write(block(number, flow_count), FLOWS)
    files.close()
    (path,) = tmp_path.iterdir()
    assert read(path).flows == tuple(FLOWS)
    assert path.read_bytes().count(b"minilm") == 1


def test_what_others_left_in_the_folder_stays(tmp_path: Path) -> None:
    foreign = [tmp_path / name for name in ("notes.txt", "a.arrivals", "20200101T000000.000000Z.arrivals")]
    for path in foreign:
        path.write_text("not a recording")
    old = tmp_path / "20200102T000000.000000Z.arrivals"
    old.write_bytes(MAGIC[:3])  # of a gateway that was killed
    files = ArrivalFiles(spec(tmp_path, files=1), UNIX_OFFSET_US)
    files.write(block(1), FLOWS)
    files.close()
    assert all(path.read_text() == "not a recording" for path in foreign)
    assert not old.exists()


def test_a_file_that_another_gateway_writes_is_not_deleted(tmp_path: Path) -> None:
    others, own = (ArrivalFiles(spec(tmp_path, files=1), UNIX_OFFSET_US) for _ in range(2))
    others.write(block(1), FLOWS)
    own.write(block(1), FLOWS)  # in the same microsecond
    assert blocks_in(tmp_path) == [[1], [1]]
    others.write(block(2), FLOWS)
    others.close()
    own.write(block(2), FLOWS)
    own.write(block(3), FLOWS)  # in its next file
    own.close()
    assert blocks_in(tmp_path) == [[3]]


class Disk(FileIO):
    """Has room for so many bytes in all of its files."""

    room = 0

    def write(self, content: memoryview) -> int:  # type: ignore[override]
        taken = min(len(content), Disk.room)
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        Disk.room -= taken
        return super().write(content[:taken])


class OnDisk(ArrivalFiles):
    @staticmethod
    def _create(path: Path) -> FileIO:
        return Disk(path, "x")


@pytest.mark.parametrize("room", [1, 700, 800, 900, 1500])
def test_on_a_full_disk_files_stay_whole_and_go_on_when_there_is_room(tmp_path: Path, room: int) -> None:
    files = OnDisk(spec(tmp_path, file_bytes=10_000), UNIX_OFFSET_US)
    Disk.room = room
    written = []
    for number in range(1, 7):
        if number == 5:
            Disk.room = 10_000
        with suppress(OSError):
            files.write(block(number), FLOWS)
            written.append(number)
        if not written:
            assert list(tmp_path.iterdir()) == []
    files.close()
    assert blocks_in(tmp_path) == [written]
    assert written[-2:] == [5, 6]
    assert len(written) < 6


def test_a_file_that_cannot_grow_is_left_whole_for_a_new_one(tmp_path: Path) -> None:
    files = ArrivalFiles(spec(tmp_path, file_bytes=1 << 20), UNIX_OFFSET_US)
    files.write(block(1), FLOWS)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # the kernel takes a part of the next block
    try:
        with pytest.raises(OSError, match="File too large"):
            files.write(block(2), FLOWS)
        files.write(block(3), FLOWS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    files.close()
    assert blocks_in(tmp_path) == [[1], [3]]


def test_a_folder_that_went_away_is_made_again_for_the_next_file(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    files = ArrivalFiles(spec(folder, file_bytes=1000), UNIX_OFFSET_US)
    files.write(block(1), FLOWS)
    shutil.rmtree(folder)
    files.write(block(2), FLOWS)
    files.close()
    assert blocks_in(folder) == [[2]]


def test_a_file_is_locked_while_it_is_written(tmp_path: Path) -> None:
    files = ArrivalFiles(spec(tmp_path), UNIX_OFFSET_US)
    files.write(block(1), FLOWS)
    (path,) = tmp_path.iterdir()
    with path.open() as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        files.close()
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
