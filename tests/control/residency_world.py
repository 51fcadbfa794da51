"""A residency slice with its worker, driven by small numbers and held to the promises after each event."""

from collections.abc import Sequence
from random import Random

from serving.control.on_demand.on_demand_model import (
    BESIDE_MAX,
    HOLD_US,
    SLOW_US,
    UNSURE,
    BeginLoad,
    BeginUnload,
    LoadFigures,
    LoadState,
    Order,
    Ready,
    Refuse,
)
from serving.control.on_demand.slice_memory import IN_USE, LOST, UNWANTED, WORTH_MORE, SliceMemory
from serving.policy.residency import Key

LIMIT = 10
REASONS = (IN_USE, WORTH_MORE, LOST, UNWANTED)
"""Beside those with numbers in them."""
EVENTS = (
    "ask", "ask", "ask", "ask", "work", "work", "work", "wait", "toggle", "toggle", "fill", "want", "fail",
    "lose",
)  # fmt: skip


class World:
    """Models of 1 to 12 units of memory; `surprises`: the worker finds other sizes than were estimated.

    It keeps a ledger of its own, from orders and what it answered them alone: `there` is what models really
    hold, `going` those of them that were told to go.
    """

    def __init__(self, seed: int, models: int = 8, surprises: bool = False) -> None:
        random = Random(seed)
        self.random = random
        self.residency = SliceMemory(LIMIT)
        self.keys: list[Key] = [(f"m{number // 2}", f"v{number % 2}") for number in range(models)]
        self.figures = {
            key: LoadFigures(
                random.choice((1, 1, 2, 3, 4, 5, 12)),
                random.choice((1e4, 1e5, 1e6, 9e6)),
                slo_us=2e5,
                known=not surprises and random.random() < 0.7,
            )
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
        self.loading: dict[Key, int] = {}  # since when
        self.grown: dict[Key, int] = {}  # beside them, by the others
        self.measured: set[Key] = set()  # loaded alone once
        self.beside = 0  # loads that began beside others
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
        able = sorted(self.going - self.loading.keys())
        loading = sorted(self.loading)
        if loading and (not able or number % 2):
            self.loaded(loading[number // 2 % len(loading)], number)
        elif able:
            self.unloaded(able[number % len(able)])

    def loaded(self, key: Key, number: int) -> None:
        grown = self.ended(key)
        if key in self.going:  # what was told to go while it was being loaded answers by that alone
            self.unloaded(key)
            return
        self.there[key] = self.sizes[key]
        asked = key in self.waiting
        busy = None if number % 3 == 0 else self.busy
        took_us = round(self.figures[key].load_us) + number * 1000
        cost = (took_us, self.sizes[key] + self.random.randint(0, grown))
        orders = self.residency.loaded(key, cost, self.now, busy)
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
        key = next(iter(sorted(self.loading)), None)
        able = sorted(set(self.there) - self.going)
        if key is None and able:
            key = able[number % len(able)]
        if key is not None and key not in self.going:
            self.hold.pop(key, None)
            if key in self.loading:
                self.ended(key)
            self.obey(self.residency.failed(key, self.now))

    def wait(self, number: int) -> None:
        self.now += (1_000, 50_000, 400_000, 3_000_000, 70_000_000)[number % 5]
        self.obey(self.residency.go_on(self.now))

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
        self.loading.clear()
        self.obey(self.residency.lost(self.now))
        assert not self.waiting, "who waited for a lost worker was not told"

    # what was ordered

    def obey(self, orders: Sequence[Order]) -> None:
        for order in orders:
            match order:
                case BeginLoad(key=key):
                    assert self.up, "a load without a worker"
                    self.begin(key)
                case BeginUnload(key=key):
                    assert key in self.there or key in self.loading, f"{key} is not there to be unloaded"
                    assert key not in self.going, f"{key} is told to go twice"
                    self.going.add(key)
                case Ready(key=key, ready_us=ready_us):
                    assert ready_us >= self.now
                    assert key in self.loading or self.residency.residence(key) is LoadState.QUEUED
                case Refuse(key=key, reason=reason):
                    assert reason in REASONS or any(mark in reason for mark in (" MB", "next try", "worker"))
                    self.waiting.discard(key)
        self.check()

    def begin(self, key: Key) -> None:
        """A load begins: alone, or beside slow ones, where the sizes are known or there is clearly room."""
        assert key not in self.there, f"{key} is loaded twice"
        assert key not in self.loading, f"{key} is loaded twice at once"
        assert key in self.wanted
        assert len(self.loading) < BESIDE_MAX
        assert all(self.now - since >= SLOW_US for since in self.loading.values()), "beside one that is quick"
        if self.loading:
            together = {key, *self.loading}
            unsure = [each for each in together if not (self.figures[each].known or each in self.measured)]
            needed = self.residency.held_bytes  # with this load
            needed += sum((UNSURE - 1) * min(self.figures[each].memory_bytes, LIMIT) for each in unsure)
            assert needed <= LIMIT or not unsure, f"{unsure} are of unknown size"
            self.beside += 1
        self.grown[key] = 0
        for other in self.loading:
            self.grown[other] += self.sizes[key]
            self.grown[key] += self.sizes[other]
        self.loading[key] = self.now

    def ended(self, key: Key) -> int:
        """A load is over; returns by how much others may have grown beside it."""
        del self.loading[key]
        grown = self.grown.pop(key)
        if not grown:
            self.measured.add(key)
        return grown

    def check(self) -> None:
        residency = self.residency
        assert residency.planned_bytes <= LIMIT
        staying = sum(size for key, size in self.there.items() if key not in self.going)
        assert staying <= LIMIT, f"{staying} of {LIMIT} are to stay"
        if not self.surprises:
            held = sum(self.there.values()) + sum(self.sizes[key] for key in self.loading)
            assert held <= LIMIT, f"{held} of {LIMIT} are held"
            assert held <= residency.held_bytes
            unsure = any(not each.known for each in self.figures.values())
            assert unsure or held == residency.held_bytes
        for key in self.keys:
            standing = residency.residence(key)
            assert (standing is LoadState.RESIDENT) == (key in self.there and key not in self.going)
            assert standing is not LoadState.LOADING or key in self.loading
        assert self.waiting <= self.wanted

    def settle(self) -> None:
        """The worker does all that it was told; then nobody waits any more."""
        for _ in range(100):
            self.now += SLOW_US
            self.obey(self.residency.go_on(self.now))
            self.work(1)
            if not self.loading and not self.going:
                break
        assert not self.loading
        assert not self.going
        assert not self.waiting, f"{self.waiting} were neither loaded nor refused"
