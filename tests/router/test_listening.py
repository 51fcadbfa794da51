"""The file of a Unix socket: its owner's alone, replaced where it is stale, left alone where it is in use."""

import os
import socket
import stat
from pathlib import Path

import pytest

from router.listening import SocketFile


@pytest.fixture
def file(tmp_path: Path) -> SocketFile:
    return SocketFile(tmp_path / "door")


def test_only_its_owner_may_connect_whatever_the_umask_says(file: SocketFile) -> None:
    before = os.umask(0)
    try:
        with file.bind():
            assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
            file.path.chmod(0o660)  # an operator lets a group in
            assert file.is_there
    finally:
        os.umask(before)


def test_nobody_can_connect_before_it_listens(file: SocketFile) -> None:
    with file.bind(), socket.socket(socket.AF_UNIX) as caller, pytest.raises(ConnectionRefusedError):
        caller.connect(str(file.path))


def test_what_an_ended_process_has_left_is_replaced(file: SocketFile) -> None:
    with file.bind() as ended:
        ended.listen()
    assert file.path.exists()
    again = SocketFile(file.path)
    with again.bind():
        assert again.is_there
        assert not file.is_there


def test_one_that_another_process_listens_on_is_left_alone(file: SocketFile) -> None:
    with file.bind() as listening, socket.socket(socket.AF_UNIX) as caller:
        listening.listen(0)
        caller.connect(str(file.path))  # its queue is full by now
        other = SocketFile(file.path)
        with pytest.raises(OSError, match="another process listens there"):
            other.bind()
        other.remove()
        assert file.is_there


@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_what_is_no_socket_is_left_alone(file: SocketFile, what: str) -> None:
    if what == "file":
        file.path.write_text("kept")
    elif what == "folder":
        file.path.mkdir()
    else:
        file.path.symlink_to("nowhere")
    with pytest.raises(OSError, match="no socket"):
        file.bind()
    assert file.path.lstat()


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SocketFile(tmp_path / "absent" / "door").bind()


def test_it_removes_its_own_file_only(file: SocketFile) -> None:
    with file.bind():
        file.path.unlink()
        assert not file.is_there
        file.path.write_text("another's")
        file.remove()
        assert file.path.read_text() == "another's"
    file.path.unlink()
    with file.bind():
        file.remove()
        file.remove()
        assert not file.path.exists()
