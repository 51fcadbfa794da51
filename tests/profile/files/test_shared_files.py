"""Files that outlive the gateway: whole, on disk, and nothing else than files."""

import errno
import os
import resource
from pathlib import Path

import pytest

from serving.profile.files.shared_files import read_regular, replace_file


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_what_is_no_file_is_refused_by_name_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "state.json"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(OSError, match="it is no regular file") as told:
        read_regular(path)
    assert told.value.filename == str(path)


def test_a_file_is_read_through_links_and_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("real")
    assert (read_regular(tmp_path / "link"), read_regular(tmp_path / "link", 3)) == (b"12345", b"123")
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "nothing")


def test_a_file_is_on_disk_before_it_has_its_name_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut may leave an empty file under the name, or the old one."""
    path, synced = tmp_path / "state.json", list[tuple[str, bool]]()
    sync = os.fsync

    def watched(descriptor: int) -> None:
        sync(descriptor)
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), path.exists()))

    monkeypatch.setattr(os, "fsync", watched)
    replace_file(path, "whole")
    (scratch, there), (folder, there_then) = synced
    assert (Path(scratch).parent, there) == (tmp_path, False)
    assert (folder, there_then) == (str(tmp_path), True)
    assert path.read_text() == "whole"


def test_where_there_is_no_room_the_old_file_stays_and_the_error_names_it(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    replace_file(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # a real refusal by the system
    try:
        with pytest.raises(OSError, match="too large") as told:
            replace_file(path, b"x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (told.value.errno, told.value.filename) == (errno.EFBIG, str(path))
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]
