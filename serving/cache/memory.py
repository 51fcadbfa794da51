"""The memory tier: answers in this process, never more than so many bytes.

A new answer first stays in a window (first in, first out), so that what is asked again at once finds it.
From there TinyLFU is the door to the rest: where an answer is asked for less often than what would have to
make room for it, it goes, so that questions nobody repeats flush nothing. CLOCK (second chance) says what
would have to: the queue's front is the hand; what was asked for since its last turn goes to the back again.
"""

from collections import OrderedDict

from serving.cache.entries import Entry
from serving.cache.sketch import Sketch

WINDOW = 0.1
"""Share of the bytes that is the window (W-TinyLFU, in TinyLFU's paper, has 0.01). Measured with keys asked
four times within 200 asks, in room for 1000: hits 0.22 without it, 0.36 with 0.01, 0.75 with 0.1, as LRU and
ARC have; for Zipf(1.0) it costs 0.2 to 0.3 points."""

SAMPLE = 30
"""Asks per entry between halvings. Zipf(1.0) over 100,000 keys in room for 1000: hits 0.562 with 10, as
Caffeine has, 0.575 with 20, 0.582 with 30, 0.591 with 100; LRU has 0.506, ARC 0.596. But popularity ends the
later: where all ranks change at every 100,000th ask, in room for 10,000, hits are 0.706 with 10 and 0.662
with 30 (LRU 0.718)."""

SAMPLE_ENTRIES_MIN = 128  # a halving costs as much as a thousand asks
COUNTER_BYTES = 128  # of the store for each counter of the sketch: four and more for an entry
HAND_STEPS_MAX = 512  # of one turn of the hand: half a millisecond


class _Slot:
    __slots__ = ("asked", "entry")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.asked = False


class _Queue:
    """Entries by key, the one that may go next first, in at most `bytes_max`."""

    __slots__ = ("bytes_max", "held_bytes", "slots")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self.slots: OrderedDict[bytes, _Slot] = OrderedDict()

    def append(self, key: bytes, entry: Entry) -> None:
        self.slots[key] = _Slot(entry)
        self.held_bytes += entry.bytes

    def remove(self, key: bytes) -> Entry:
        entry = self.slots.pop(key).entry
        self.held_bytes -= entry.bytes
        return entry

    def forget(self, model: str) -> None:
        """Drop a model's entries, or all, by building the rest anew: quicker than taking them out."""
        items = self.slots.items() if model else ()
        self.slots = OrderedDict((key, slot) for key, slot in items if slot.entry.model != model)
        self.held_bytes = sum(slot.entry.bytes for slot in self.slots.values())

    def replace(self, key: bytes, entry: Entry) -> bool:
        """Put an entry in an older one's place; False where there is none, or a smaller one, which goes."""
        slot = self.slots.get(key)
        if slot is None:
            return False
        if entry.bytes > slot.entry.bytes:
            self.remove(key)
            return False
        self.held_bytes += entry.bytes - slot.entry.bytes
        slot.entry = entry
        return True


class MemoryStore:
    """At most `bytes_max` of entries (its sketch takes up to a sixty-fourth more), each for `ttl_us`; none is
    larger than `bytes_max` less the window.

    `evictions`: entries that went for want of room. `epoch` grows with each invalidation: an answer that was
    asked for in an earlier one must neither be stored nor be joined any more.
    """

    __slots__ = ("_main", "_sketch", "_ttl_us", "_window", "epoch", "evictions")

    def __init__(self, bytes_max: int, ttl_us: int) -> None:
        self._window = _Queue(int(bytes_max * WINDOW))
        self._main = _Queue(bytes_max - self._window.bytes_max)
        self._ttl_us = ttl_us
        self._sketch = Sketch(bytes_max // COUNTER_BYTES)
        self.epoch = 0
        self.evictions = 0

    def __len__(self) -> int:
        """Entries, expired ones included until they are met."""
        return len(self._main.slots) + len(self._window.slots)

    @property
    def held_bytes(self) -> int:
        """What the entries take."""
        return self._main.held_bytes + self._window.held_bytes

    def get(self, key: bytes, now_us: int) -> Entry | None:
        """The answer, where one younger than `ttl_us` is kept. Each get counts as an ask."""
        sketch = self._sketch
        sketch.add(key)
        if sketch.added >= SAMPLE * max(len(self), SAMPLE_ENTRIES_MIN):
            sketch.halve()
        queue = self._main
        slot = queue.slots.get(key)
        if slot is None:
            queue = self._window
            slot = queue.slots.get(key)
            if slot is None:
                return None
        if self._expired(slot.entry, now_us):
            queue.remove(key)
            return None
        slot.asked = True
        return slot.entry

    def put(self, key: bytes, entry: Entry, now_us: int) -> None:
        """Keep an answer, instead of an older one to the same question; it may go at once."""
        window = self._window
        if self._main.replace(key, entry) or window.replace(key, entry):
            return
        if entry.bytes > window.bytes_max:  # it would empty the window
            self._pass_door(key, entry, now_us)
            return
        window.append(key, entry)
        while window.held_bytes > window.bytes_max:
            oldest = next(iter(window.slots))
            self._pass_door(oldest, window.remove(oldest), now_us)

    def invalidate(self, model: str = "") -> int:
        """Drop the model's entries, or all; how many. It takes up to 0.5 ms per 1000 entries."""
        self.epoch += 1
        count = len(self)
        for queue in (self._main, self._window):
            queue.forget(model)
        return count - len(self)

    def _pass_door(self, key: bytes, entry: Entry, now_us: int) -> None:
        """Keep an entry beside the window, where there is room or it is worth what goes for it."""
        if self._expired(entry, now_us):
            return
        main = self._main
        lacking = main.held_bytes + entry.bytes - main.bytes_max
        fits = entry.bytes <= main.bytes_max
        if fits and (lacking <= 0 or self._make_room(lacking, self._sketch.estimate(key), now_us)):
            main.append(key, entry)
        else:
            self.evictions += 1

    def _make_room(self, lacking: int, worth: int, now_us: int) -> bool:
        """Turn the hand until `lacking` bytes are free; False where one turn does not do, or what would have
        to go is together asked for as often as `worth` (aggregated victims: Einziger, Eytan, Friedman and
        Manes, "Lightweight Robust Size Aware Cache Management", ACM Transactions on Storage 18(3), 2022).

        What nobody asked for lately goes in any case: else a large answer would never find its room.
        """
        slots = self._main.slots
        victims = []
        for _ in range(min(len(slots), HAND_STEPS_MAX)):
            key, slot = next(iter(slots.items()))
            asks = self._sketch.estimate(key)
            if self._expired(slot.entry, now_us):
                lacking -= self._main.remove(key).bytes
            elif slot.asked:
                slot.asked = False
                slots.move_to_end(key)
            elif asks:
                slots.move_to_end(key)
                worth -= asks
                if worth <= 0:
                    return False
                victims.append(key)
                lacking -= slot.entry.bytes
            else:
                lacking -= self._main.remove(key).bytes
                self.evictions += 1
            if lacking <= 0:
                break
        else:
            return False
        for key in victims:
            self._main.remove(key)
        self.evictions += len(victims)
        return True

    def _expired(self, entry: Entry, now_us: int) -> bool:
        return now_us - entry.stored_us >= self._ttl_us
