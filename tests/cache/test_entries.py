"""What is kept is its own, and takes what it says."""

import tracemalloc

from serving.cache.entries import entry_of
from serving.cache.memory import MemoryStore
from serving.values.tensor import Tensor
from tests.cache.values import TTL_US, key_of


def test_an_entry_keeps_its_answer_whatever_becomes_of_the_batch() -> None:
    batch = bytearray(b"abcd")
    kept = entry_of("m", "a", [Tensor("Y", "INT8", (2,), memoryview(batch)[2:])], 7)
    batch[:] = b"...."
    assert (kept.model, kept.variant, kept.stored_us) == ("m", "a", 7)
    assert [(t.name, t.datatype, t.shape, t.data) for t in kept.outputs] == [("Y", "INT8", (2,), b"cd")]


def test_a_store_takes_the_memory_that_it_says() -> None:
    for outputs, width in ((1, 40), (3, 400)):
        tracemalloc.start()
        try:
            store = MemoryStore(1 << 30, TTL_US)
            before = tracemalloc.get_traced_memory()[0]
            _fill(store, outputs, width)
            taken = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert 0.75 < taken / store.held_bytes <= 1


def _fill(store: MemoryStore, outputs: int, width: int) -> None:
    for number in range(2500):  # their instants and shapes are objects of their own, as in service
        batch = memoryview(bytes(64 * width))
        rows = [Tensor(f"Y{index}", "INT8", (1, width), batch[:width]) for index in range(outputs)]
        store.put(key_of(number), entry_of("m", "a", rows, 10**9 + number), 10**9)
