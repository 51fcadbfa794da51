"""Promises of page-locked memory: as long as it is mapped, never longer, and never necessary."""

import os
from mmap import mmap

from serving.worker.device.pinning import CudaLocks, PinnedArea
from tests.worker.device.locks import Noted


def test_an_area_that_grows_is_locked_anew_and_the_old_pages_are_unlocked() -> None:
    locks, notes = Noted(), list[str]()
    area = PinnedArea(locks, notes.append)
    small, large = mmap(-1, 4096), mmap(-1, 8192)
    assert not area.differs(None)
    area.follow(small)
    assert [*locks.locked.values()] == [4096]
    assert not area.differs(small)
    area.follow(large)
    assert [*locks.locked.values()] == [8192]
    area.release()
    area.release()
    assert locks.locked == {}
    assert notes == []


def test_a_refusal_is_said_once_and_not_tried_again() -> None:
    notes: list[str] = []
    area = PinnedArea(Noted("CUDA error 2"), notes.append)
    area.follow(mmap(-1, 4096))
    assert not area.differs(mmap(-1, 8192))
    area.release()
    assert notes == ["shared memory is not page-locked, so its copies are slower: CUDA error 2"]


def test_nothing_is_locked_before_a_model_uses_the_device() -> None:
    locks = Noted()
    area = PinnedArea(locks, print)
    locks.ready = False
    mapping = mmap(-1, os.sysconf("SC_PAGE_SIZE"))
    area.follow(mapping)
    assert locks.locked == {}
    locks.ready = True
    assert area.differs(mapping)


def test_without_a_gpu_cuda_is_never_in_use() -> None:
    assert not CudaLocks().ready
