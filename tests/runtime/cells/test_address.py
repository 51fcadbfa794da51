"""Promises of the address by which others reach this machine."""

import socket

from serving.runtime.cells.address import own_host


def test_it_is_the_address_on_the_way_to_redis() -> None:
    assert own_host("redis://127.0.0.1:6379/0") == "127.0.0.1"
    assert own_host("redis://user:secret@127.0.0.1/0") == "127.0.0.1"


def test_without_a_way_it_is_the_address_of_the_own_name() -> None:
    own = socket.gethostbyname(socket.gethostname())
    assert own_host("unix:///tmp/redis.sock") == own
    assert own_host("redis://no-such-host.invalid:6379/0") == own
