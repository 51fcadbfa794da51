"""Whatever a client registers, and whatever it does to its file: a sentence, and nothing else happens."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.payloads.bulk.pool import Bulk
from router.payloads.regions import registry
from router.payloads.regions.region import FOLDER, OTHERS, KeyRefusedError, open_file
from router.payloads.regions.registry import CallerMemory, Fault, Regions, RegistrationRefusedError
from router.security.auth.identity import Identity
from router.settings.values.client_shm import ClientShm
from router.tensors.parts.errors import RequestError, memory_full
from router.tensors.parts.places import CopyFirst, Place
from serving.values.specs import Limits
from serving.values.tensor import Tensor
from serving.worker.frames.shared import PORTION_BYTES
from tests.router.payloads.regions.conftest import Made, Make

BODY_BYTES = 8 << 20


def regions(bounds: ClientShm | None = None) -> Regions:
    limits = Limits(body_bytes=BODY_BYTES)
    return Regions(bounds or ClientShm(), BODY_BYTES, Bulk(limits), lambda: None)


def caller(name: str) -> Identity:
    return Identity(name, "default", frozenset(("infer",)))


@pytest.fixture
def memory() -> CallerMemory:
    return regions().of(None)


def refused(memory: CallerMemory, name: str, key: str, offset: int, size: int) -> RegistrationRefusedError:
    with pytest.raises(RegistrationRefusedError) as caught:
        memory.register(name, key, offset, size)
    return caught.value


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("", "a key is one name"),
        ("/", "a key is one name"),
        ("..", "a key is one name"),
        ("//x", "a key is one name"),
        ("../etc/passwd", "a key is one name"),
        ("/a/b", "a key is one name"),
        ("a\0b", "a key is one name"),
        ("\ud800", "text in UTF-8"),
        ("ä" * 128, "at most 255 bytes"),
        ("/penstock-test-there-is-none", "there is no file that the gateway can read and write"),
        *((f"/{prefix}x", "choose another name") for prefix in OTHERS),
    ],
)
def test_a_key_names_one_file_of_shared_memory(memory: CallerMemory, key: str, sentence: str) -> None:
    error = refused(memory, "r", key, 0, 8)
    assert str(error).startswith("Unable to open shared memory region: ")
    assert sentence in str(error)
    assert error.fault is Fault.INVALID


@contextmanager
def entry(kind: str, aim: Made) -> Iterator[str]:
    """Something under /dev/shm that is no plain file; the key of it."""
    name = f"penstock-test-{uuid4().hex}"
    path = f"{FOLDER}/{name}"
    if kind == "folder":
        os.mkdir(path)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        os.symlink(aim.path, path)
    try:
        yield f"/{name}"
    finally:
        (os.rmdir if kind == "folder" else os.unlink)(path)


@pytest.mark.parametrize("kind", ["folder", "fifo", "symlink"])
def test_what_is_no_plain_file_is_refused_and_left_closed(
    memory: CallerMemory, made: Make, kind: str
) -> None:
    with entry(kind, made(64)) as key:
        before = open_files()
        refused(memory, "r", key, 0, 8)
        assert open_files() == before


def test_a_region_lies_within_its_file(memory: CallerMemory, made: Make) -> None:
    key = made(64).key
    for offset, size in ((0, 65), (64, 1), (1 << 63, 1), ((1 << 64) - 1, 2), (0, (1 << 64) - 1)):
        assert refused(memory, "r", key, offset, size).fault is not Fault.EXISTS
    for offset, size in ((-1, 8), (0, 0), (0, -8)):
        assert "expected 1 byte or more" in str(refused(memory, "r", key, offset, size))
    memory.register("r", key, 63, 1)
    assert [each.byte_size for each in memory.registered()] == [1]


def test_a_name_is_bounded_and_registered_once(memory: CallerMemory, made: Make) -> None:
    key = made(64).key
    assert "1 to 255 characters, got 0" in str(refused(memory, "", key, 0, 8))
    assert "1 to 255 characters, got 256" in str(refused(memory, "n" * 256, key, 0, 8))
    memory.register("r", key, 0, 8)
    twice = refused(memory, "r", key, 0, 8)
    assert str(twice) == "shared memory region 'r' already in manager"
    assert twice.fault is Fault.EXISTS
    memory.register("s", key, 8, 8)
    memory.unregister("r")
    memory.register("r", key, 16, 8)
    assert [each.name for each in memory.registered()] == ["s", "r"]


def test_ten_thousand_registrations_keep_no_more_files_open_than_the_limit_says(made: Make) -> None:
    memory, key, before = regions(ClientShm(regions=5)).of(None), made(64).key, open_files()
    faults = []
    for index in range(10_000):
        try:
            memory.register(f"r{index}", key, 0, 64)
        except RegistrationRefusedError as error:
            faults.append(error.fault)
    assert faults == [Fault.FULL] * 9_995
    assert open_files() == before + 5
    memory.unregister()
    assert open_files() == before


def test_bytes_and_all_callers_together_are_bounded_too(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    all_callers, key = regions(ClientShm(region_bytes=100)), made(64).key
    memory = all_callers.of(None)
    memory.register("a", key, 0, 64)
    full = refused(memory, "b", key, 0, 37)
    assert "all regions may have 100 bytes (server.client_shm.mb), got 37 besides 64" in str(full)
    memory.register("b", key, 0, 36)
    monkeypatch.setattr(registry, "REGION_COUNT_MAX", 3)
    other = all_callers.of(caller("other"))
    other.register("a", made(8).key, 0, 8)
    assert "all callers together have the limit of 3" in str(refused(other, "b", made(8).key, 0, 8))
    memory.unregister("b")
    other.register("b", made(8).key, 0, 8)


def test_no_caller_reaches_what_another_has_registered(made: Make) -> None:
    all_callers, file = regions(), made(64)
    mine, other = all_callers.of(caller("mine")), all_callers.of(caller("other"))
    mine.register("r", file.key, 0, 64)
    assert other.find("r") is None
    assert other.registered() == ()
    for use in (other.take, other.aim):
        with pytest.raises(RequestError, match="Unable to find shared memory region: 'r'; register it first"):
            use([Place("r", 0, 8)])
    assert "in use by another caller" in str(refused(other, "r", file.key, 0, 64))
    os.link(file.path, f"{file.path}-2")
    try:
        assert "in use by another caller" in str(refused(other, "r", f"{file.key}-2", 0, 64))
    finally:
        os.unlink(f"{file.path}-2")
    other.unregister()
    other.unregister("r")
    assert mine.find("r") is not None
    mine.unregister()
    other.register("r", file.key, 0, 64)


@given(
    st.integers(0, 64), st.integers(1, 64),
    st.integers(0, 80) | st.integers((1 << 64) - 80, (1 << 64) - 1),
    st.integers(0, 80) | st.integers((1 << 64) - 80, (1 << 64) - 1),
    st.integers(0, 64),
)  # fmt: skip
def test_only_bytes_of_the_region_are_read_or_written(
    base: int, length: int, offset: int, size: int, left: int
) -> None:
    """`left`: what the file is cut to after the registration. The file has 64 bytes, each its own number."""
    file = Made(64)
    memory = regions().of(None)
    try:
        file.write(bytes(range(64)))
        if base + length > 64:
            refused(memory, "r", file.key, base, length)
            return
        memory.register("r", file.key, base, length)
        file.cut(left)
        place = Place("r", offset, size)
        inside = offset + size <= length and base + offset + size <= left
        if not inside:
            for use in (memory.take, memory.aim):
                with pytest.raises(RequestError):
                    use([place])
            return
        first = base + offset
        assert memory.take([place]) == [bytes(range(first, first + size))]
        (target,) = memory.aim([place])
        target.check(Tensor("X", "UINT8", (size,), bytes(size)))
        with pytest.raises(RequestError, match="should be at least"):
            target.check(Tensor("X", "UINT8", (size + 1,), bytes(size + 1)))
        for _ in target.writing(b"\xff" * size):
            pass
        expected = bytes(range(first)) + b"\xff" * size + bytes(range(first + size, left))
        assert file.read(99) == expected
    finally:
        memory.unregister()
        file.path.unlink()


def test_a_file_that_is_removed_or_replaced_is_used_as_it_was_registered(
    memory: CallerMemory, made: Make
) -> None:
    file = made(8)
    file.write(b"original")
    memory.register("r", file.key, 0, 8)
    os.rename(file.path, f"{file.path}-old")
    try:
        file.path.write_bytes(b"replaced")
        assert memory.take([Place("r", 0, 8)]) == [b"original"]
    finally:
        os.unlink(f"{file.path}-old")
    assert memory.take([Place("r", 0, 8)]) == [b"original"]


def test_a_file_that_is_cut_after_the_check_of_an_output_says_so(memory: CallerMemory, made: Make) -> None:
    file = made(64)
    memory.register("r", file.key, 0, 64)
    (target,) = memory.aim([Place("r", 0, 64)])
    file.cut(63)
    with pytest.raises(RequestError, match="shorter than when it was registered; register it again"):
        list(target.writing(bytes(64)))
    assert file.read(99) == bytes(63)


def test_a_region_that_is_unregistered_serves_the_request_under_way(memory: CallerMemory, made: Make) -> None:
    file, before = made(8), open_files()
    memory.register("r", file.key, 0, 8)
    targets = memory.aim([Place("r", 0, 8)])
    memory.unregister()
    list(targets[0].writing(b"answered"))
    assert file.read(8) == b"answered"
    del targets
    assert open_files() == before


def test_outputs_may_not_overlap_whatever_their_regions_are_called(memory: CallerMemory, made: Make) -> None:
    file = made(64)
    memory.register("a", file.key, 0, 64)
    memory.register("b", file.key, 16, 32)
    memory.register("c", made(64).key, 0, 64)
    for places in (
        [Place("a", 0, 16), Place("a", 15, 2)],
        [Place("a", 0, 17), Place("b", 0, 1)],
        [Place("a", 0, 64), Place("c", 0, 64), Place("b", 31, 1)],
    ):
        with pytest.raises(RequestError, match="outputs overlap in shared memory"):
            memory.aim(places)
    for places in (
        [Place("a", 0, 16), Place("a", 16, 2)],
        [Place("a", 0, 16), Place("b", 0, 1)],
        [Place("a", 0, 64), Place("c", 0, 64), Place("b", 31, 0)],
    ):
        assert len(memory.aim(places)) == len(places)


async def test_many_bytes_are_copied_in_portions_and_only_as_many_as_a_body_may_have(made: Make) -> None:
    file = made(BODY_BYTES + 1)
    memory = regions().of(None)
    memory.register("r", file.key, 0, BODY_BYTES + 1)
    last = bytes(range(256)) * 4
    file.write(last, 2 * PORTION_BYTES)
    with pytest.raises(RequestError, match="at most 8388608 are accepted"):
        memory.take([Place("r", 0, BODY_BYTES), Place("r", 0, 1)])
    places = [Place("r", 0, 2 * PORTION_BYTES + 1024), Place("r", 0, 0), Place("r", 2 * PORTION_BYTES, 8)]
    with pytest.raises(CopyFirst) as caught:
        memory.take(places)
    copied = await caught.value.copy(0)
    whole, empty, few = copied.take(places)
    assert bytes(whole[-1024:]) == last
    assert (len(whole), bytes(empty), bytes(few)) == (2 * PORTION_BYTES + 1024, b"", last[:8])
    assert memory._all.bulk.held_bytes == 0
    with pytest.raises(CopyFirst) as caught:
        memory.take(places)
    file.cut(2 * PORTION_BYTES)
    with pytest.raises(RequestError, match="shorter than when it was registered"):
        await caught.value.copy(0)
    assert memory._all.bulk.held_bytes == 0


def test_large_inputs_are_refused_while_the_gateway_holds_too_much(made: Make) -> None:
    file = made(1 << 17)
    full = Regions(ClientShm(), BODY_BYTES, Bulk(Limits()), lambda: memory_full("full"))
    memory = full.of(None)
    memory.register("r", file.key, 0, 1 << 17)
    assert len(memory.take([Place("r", 0, 1 << 16)])[0]) == 1 << 16
    with pytest.raises(RequestError, match="full"):
        memory.take([Place("r", 0, (1 << 16) + 1)])


@given(st.text(max_size=300))
def test_no_key_opens_anything_outside_the_folder(key: str) -> None:
    with suppress(KeyRefusedError):
        file = open_file(key)
        os.close(file.fd)
        assert os.stat(f"{FOLDER}/{key.removeprefix('/')}").st_ino == file.identity[1]
