"""A residency slice with its worker, driven by small numbers and held to the promises after each event."""

from collections.abc import Sequence
from random import Random

from serving.control.on_demand_model import (
    HOLD_US,
    BeginLoad,
    BeginUnload,
    LoadFigures,
    LoadState,
    Order,
    Ready,
    Refuse,
)
from serving.control.slice_memory import IN_USE, LOST, UNWANTED, WORTH_MORE, SliceMemory
from serving.policy.residency import Key

LIMIT = 10
REASONS = (IN_USE, WORTH_MORE, LOST, UNWANTED)
"""Beside those with numbers in them."""
EVENTS = (
    "ask", "ask", "ask", "ask", "work", "work", "work", "wait", "toggle", "toggle", "fill", "want", "fail",
    "lose",
)  # fmt: skip


class World:
    """Models of 1 to 12 units of memory; `surprises`: the worker finds them of other sizes than was said.

    It keeps a ledger of its own, from orders and what it answered them alone: `there` is what models really
    hold, `going` those of them that were told to go.
    """

    def __init__(self, seed: int, models: int = 8, surprises: bool = False) -> None:
        random = Random(seed)
        self.random = random
        self.residency = SliceMemory(LIMIT)
        self.keys: list[Key] = [(f"m{number // 2}", f"v{number % 2}") for number in range(models)]
        self.figures = {
            key: LoadFigures(random.choice((1, 2, 3, 4, 5, 12)), random.choice((1e4, 1e5, 1e6)), slo_us=2e5)
            for key in self.keys
        }
        self.sizes = {
            key: random.choice((1, 2, 4, 7, 13)) if surprises else each.memory_bytes
            for key, each in self.figures.items()
        }
        self.surprises = surprises
        self.now = 0
        self.up = False
        self.wanted: set[Key] = set()
        self.busy: set[str] = set()
        self.there: dict[Key, int] = {}
        self.going: set[Key] = set()
        self.loading: Key | None = None
        self.waiting: set[Key] = set()
        self.hold: dict[Key, int] = {}
        self.want(0)

    def run(self, steps: Sequence[tuple[int, int]]) -> None:
        for what, number in steps:
            getattr(self, EVENTS[what % len(EVENTS)])(number)

    # events

    def ask(self, number: int) -> None:
        key = self.keys[number % len(self.keys)]
        rates = {model: self.random.choice((0.0, 0.1, 10.0)) for model, _ in self.keys}
        was_there = key in self.there and key not in self.going
        orders = self.residency.ask(key, rates, self.busy, self.now)
        gone = {order.key for order in orders if isinstance(order, BeginUnload)}
        assert not {model for model, _ in gone} & self.busy, "a busy model was evicted"
        assert all(self.hold.get(each, 0) <= self.now for each in gone), (
            "one that was just loaded was evicted"
        )
        told = [order for order in orders if isinstance(order, Ready | Refuse) and order.key == key]
        assert was_there or told, f"who asked for {key} was told nothing"
        if told and isinstance(told[-1], Ready):
            self.waiting.add(key)
        self.obey(orders)

    def work(self, number: int) -> None:
        """The worker does one of the things that it was told."""
        able = sorted(self.going - {self.loading})
        if self.loading is not None and (not able or number % 2):
            self.loaded(self.loading, number)
        elif able:
            self.unloaded(able[number % len(able)])

    def loaded(self, key: Key, number: int) -> None:
        self.loading = None
        if key in self.going:  # what was told to go while it was being loaded answers by that alone
            self.unloaded(key)
            return
        self.there[key] = self.sizes[key]
        asked = key in self.waiting
        busy = None if number % 3 == 0 else self.busy
        took_us = round(self.figures[key].load_us) + number * 1000
        orders = self.residency.loaded(key, (took_us, self.sizes[key]), self.now, busy)
        gone = {order.key for order in orders if isinstance(order, BeginUnload)}
        assert not {model for model, _ in gone - {key}} & self.busy, "a busy model was evicted"
        assert busy is not None or gone <= {key}
        if asked and key not in gone:
            self.waiting.discard(key)
            self.hold[key] = self.now + max(took_us, HOLD_US)
        self.obey(orders)

    def unloaded(self, key: Key) -> None:
        self.going.discard(key)
        self.there.pop(key, None)
        self.hold.pop(key, None)
        self.obey(self.residency.unloaded(key, self.now))

    def fail(self, number: int) -> None:
        """Now and then, the load under way fails, or what is there does not work."""
        if number % 3:
            return
        key = self.loading
        able = sorted(set(self.there) - self.going)
        if key is None and able:
            key = able[number % len(able)]
        if key is not None and key not in self.going:
            self.hold.pop(key, None)
            if self.loading == key:
                self.loading = None
            self.obey(self.residency.failed(key, self.now))

    def wait(self, number: int) -> None:
        self.now += (1_000, 50_000, 400_000, 3_000_000, 70_000_000)[number % 5]

    def toggle(self, number: int) -> None:
        """A model begins to have batches in flight, or ends to."""
        self.busy ^= {self.keys[number % len(self.keys)][0]}

    def fill(self, number: int) -> None:
        self.up = True
        rates = {model: self.random.choice((0.0, 1.0)) for model, _ in self.keys}
        self.obey(self.residency.fill(rates if number % 2 else {}, self.now))

    def want(self, number: int) -> None:
        """All, or without one."""
        left_out = self.keys[number % len(self.keys)] if number % 3 == 1 else None
        self.wanted = {key for key in self.keys if key != left_out}
        if left_out is not None:
            self.busy.discard(left_out[0])
        self.obey(
            self.residency.want({key: self.figures[key] for key in self.keys if key in self.wanted}, self.now)
        )

    def lose(self, number: int) -> None:
        """Now and then, the worker dies."""
        if number % 4:
            return
        self.up = False
        self.there.clear()
        self.going.clear()
        self.hold.clear()
        self.loading = None
        self.obey(self.residency.lost(self.now))
        assert not self.waiting, "who waited for a lost worker was not told"

    # what was ordered

    def obey(self, orders: Sequence[Order]) -> None:
        for order in orders:
            match order:
                case BeginLoad(key=key):
                    assert self.up, "a load without a worker"
                    assert self.loading is None, "two loads at once"
                    assert key not in self.there, f"{key} is loaded twice"
                    assert key in self.wanted
                    self.loading = key
                case BeginUnload(key=key):
                    assert key in self.there or key == self.loading, f"{key} is not there to be unloaded"
                    assert key not in self.going, f"{key} is told to go twice"
                    self.going.add(key)
                case Ready(key=key, ready_us=ready_us):
                    assert ready_us >= self.now
                    assert key == self.loading or self.residency.residence(key) is LoadState.QUEUED
                case Refuse(key=key, reason=reason):
                    assert reason in REASONS or any(mark in reason for mark in (" MB", "next try", "worker"))
                    self.waiting.discard(key)
        self.check()

    def check(self) -> None:
        residency = self.residency
        assert residency.planned_bytes <= LIMIT
        staying = sum(size for key, size in self.there.items() if key not in self.going)
        assert staying <= LIMIT, f"{staying} of {LIMIT} are to stay"
        if not self.surprises:
            coming = {self.loading} - {None} - self.there.keys()
            held = sum(self.there.values()) + sum(self.sizes[key] for key in coming if key)
            assert held <= LIMIT, f"{held} of {LIMIT} are held"
            assert held == residency.held_bytes
        for key in self.keys:
            standing = residency.residence(key)
            assert (standing is LoadState.RESIDENT) == (key in self.there and key not in self.going)
            assert standing is not LoadState.LOADING or key == self.loading
        assert self.waiting <= self.wanted

    def settle(self) -> None:
        """The worker does all that it was told; then nobody waits any more."""
        for _ in range(100):
            self.work(1)
            if self.loading is None and not self.going:
                break
        assert self.loading is None
        assert not self.going
        assert not self.waiting, f"{self.waiting} were neither loaded nor refused"
