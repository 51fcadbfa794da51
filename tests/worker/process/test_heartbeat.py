"""A load that keeps the interpreter is told from one that only takes long."""

import ctypes
import time

import pytest

from serving.worker.process.heartbeat import Heartbeat

pytestmark = pytest.mark.live

HELD_US = 600_000


def test_a_call_that_keeps_the_interpreter_is_seen_and_one_that_waits_is_not() -> None:
    with Heartbeat() as holding:
        ctypes.PyDLL(None).usleep(HELD_US)
    with Heartbeat() as waiting:
        time.sleep(HELD_US / 1e6)
    assert holding.longest_us > 0.9 * HELD_US
    assert waiting.longest_us < holding.longest_us


def test_it_ends_with_what_it_watches() -> None:
    began_s = time.monotonic()
    with Heartbeat() as heartbeat:
        pass
    assert not heartbeat._thread.is_alive()
    assert heartbeat.longest_us <= (time.monotonic() - began_s) * 1e6
