"""The memory of a slice that cannot hold all of its models at once: which are there, are loaded, are evicted.

Each event has one method, which returns orders. Room is planned when a request asks for a model. Models that
make room for it are evicted at once. Its load begins when they have gone, and the earlier loads are done or
slow. So the present, the loading and the promised models never need more than the slice has. Neither does the
memory in use, but for the moment in which a model turns out larger than known.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from serving.control.on_demand.on_demand_model import (
    BESIDE_MAX,
    HOLD_US,
    SLOW_US,
    BeginLoad,
    BeginUnload,
    LoadFigures,
    LoadState,
    OnDemandModel,
    Order,
    Ready,
    Refuse,
)
from serving.policy.residency import EvictionPolicy, ForecastGdsf, Key, Newcomer
from serving.values.vocabulary import NEVER_US

Rates = Mapping[str, float]
"""Requests a second by model; a model that is not in it has none."""

IN_USE = "all that could make room for it is in use, or has just been loaded"
WORTH_MORE = "what would have to make room for it is asked for more"
LOST = "its worker was lost"
UNWANTED = "it is not wanted on this slice"
IN_TIME = 0.8
"""A model that is ready within so much of its SLO is ready in time for a present request.

Loads sometimes take longer, the evicted models must have gone, and the request must be answered.
"""
_MB = 1 << 20


class SliceMemory:
    """The models on one slice of `limit_bytes` that loads on demand.

    Loads begin one after the other: first those that requests wait for, in the order of asking, then those
    ahead of any request. One that takes longer than SLOW_US has the next one beside it, if their sizes are
    known or there is clearly room.
    """

    def __init__(self, limit_bytes: int, policy: EvictionPolicy | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._policy: EvictionPolicy = policy or ForecastGdsf()
        self._there = False  # the worker
        self._rates: Rates = {}
        self._residents: dict[Key, OnDemandModel] = {}
        self._queue: list[Key] = []
        self._loading: list[Key] = []  # in the worker's loader, even if it is to be evicted

    # what may be asked

    def residence(self, key: Key) -> LoadState:
        """Return the model's state; ABSENT also if it is not desired here."""
        one = self._residents.get(key)
        if one is None:
            return LoadState.ABSENT
        return LoadState.QUEUED if one.promised_bytes else one.residence

    @property
    def held_bytes(self) -> int:
        """The memory of all models, with the load under way."""
        return sum(one.held_bytes for one in self._residents.values())

    @property
    def planned_bytes(self) -> int:
        """The memory of all models when all evicted ones have gone, and all promised ones have come."""
        return sum(
            one.promised_bytes + (0 if one.residence is LoadState.LEAVING else one.held_bytes)
            for one in self._residents.values()
        )

    def load_us(self, key: Key, now_us: int) -> int:
        """Return how soon the model could be ready at best, if nothing else loads; NEVER_US if it cannot."""
        one = self._residents.get(key)
        if one is None or not one.desired or one.need_bytes > self.limit_bytes:
            return NEVER_US
        return round(max(0, one.retry_us - now_us) + one.load_us)

    def why_never(self, key: Key) -> str:
        """Return why the model cannot be loaded before a change; "" if it can, or is not desired here."""
        one = self._residents.get(key)
        if one is None or not one.desired or one.need_bytes <= self.limit_bytes:
            return ""
        return _too_large(one.need_bytes, self.limit_bytes)

    def ready_in_us(self, key: Key, now_us: int) -> int:
        """Return the time until the model is loaded, or would be if a request came now and it was admitted.

        NEVER_US if it cannot be loaded.
        """
        alone_us = self.load_us(key, now_us)
        if alone_us == NEVER_US:
            return NEVER_US
        one = self._residents[key]
        if one.residence is LoadState.RESIDENT:
            return 0
        if one.residence is LoadState.LOADING:
            return round(one.remaining_us(now_us))
        loading = [self._residents[each] for each in self._loading]
        asked = self._asked()
        before = [self._residents[each] for each in (asked[: asked.index(key)] if key in asked else asked)]
        if self._is_clear(one):
            wait_us = max((each.alone_us(now_us) for each in loading), default=0.0)
            wait_us += sum(min(each.load_us, SLOW_US) for each in before)
        else:
            wait_us = max((each.remaining_us(now_us) for each in loading), default=0.0)
            wait_us += sum(each.load_us for each in before)
        return round(max(wait_us + one.load_us, alone_us))

    def due_us(self, now_us: int) -> int:
        """Return when `go_on` may have something to do if no event comes before; NEVER_US if never."""
        if not self._queue or not self._loading:
            return NEVER_US
        slow_us = max(self._residents[each].since_us for each in self._loading) + SLOW_US
        return slow_us if slow_us > now_us else NEVER_US

    # events

    def want(self, keys: Mapping[Key, LoadFigures], now_us: int) -> Sequence[Order]:
        """Set the models that may be here; the first are loaded first.

        A model that is no longer desired is evicted, even if it is in use.
        """
        orders: list[Order] = []
        gone = [key for key in self._residents if key not in keys]
        for key in gone:
            orders += self._dismiss(key)
        if gone:  # their sizes may include memory of models that leave
            for one in self._residents.values():
                one.forget_oversize(self.limit_bytes)
        before = self._residents
        self._residents = {key: before.get(key, OnDemandModel(figures)) for key, figures in keys.items()}
        for key, figures in keys.items():
            one = self._residents[key]
            one.desired, one.figures = True, figures
        self._residents = self._residents | before  # the others are leaving
        return [*orders, *self._next(now_us)]

    def renew(self, key: Key) -> None:
        """Forget the measured size of a model, because its files have changed."""
        one = self._residents.get(key)
        if one is not None:
            one.forget()

    def fill(self, rates: Rates, now_us: int) -> Sequence[Order]:
        """Load what there is room for, because the worker is ready.

        The first time, that is all that fits; later, all with requests. The order is by value, then as in
        `want`.
        """
        first, self._there, self._rates = not self._there, True, rates
        free_bytes = self.limit_bytes - self.planned_bytes
        absent = [
            one.candidate(key, rates.get(key[0], 0.0))
            for key, one in self._residents.items()
            if one.desired and self.residence(key) is LoadState.ABSENT and one.retry_us <= now_us
        ]
        for each in sorted(absent, key=lambda one: -one.worth / one.memory_bytes):
            if each.memory_bytes <= free_bytes and (first or each.worth > 0.0):
                self._residents[each.key].promised_bytes = each.memory_bytes
                self._queue.append(each.key)
                free_bytes -= each.memory_bytes
        return self._next(now_us)

    def go_on(self, now_us: int) -> Sequence[Order]:
        """Begin a load beside slow ones, if one is due."""
        return self._next(now_us)

    def ask(self, key: Key, rates: Rates, busy: Collection[str], now_us: int) -> Sequence[Order]:
        """Load a model for a request, unless it is resident; the orders have a `Ready` or a `Refuse` for it.

        `busy`: the models with running batches or waiting requests; they are not evicted.
        """
        self._rates = rates
        one = self._residents.get(key)
        if one is not None and one.residence is LoadState.RESIDENT:
            return ()
        orders: Sequence[Order] = ()
        if one is None or not one.desired or one.residence is not LoadState.LOADING:
            orders, reason = self._admit(key, busy, now_us)
            if reason:
                return (Refuse(key, reason),)
        self._residents[key].asked = True
        begun = self._next(now_us)
        return [*orders, *(begun or (self._ready(key, now_us),))]

    def loaded(
        self, key: Key, cost: tuple[int, int], now_us: int, busy: Collection[str] | None = None
    ) -> Sequence[Order]:
        """Take a loaded model.

        `cost`: microseconds of the load, and bytes by which the process grew (`OnDemandModel.learn`). If the
        model is larger than planned, others are evicted for it, but no `busy` ones. If that is not enough, or
        the busy ones are unknown (None), it is evicted itself.
        """
        one = self._residents.get(key)
        self._end(key)
        if one is None or one.residence is not LoadState.LOADING:  # it was evicted in that time
            return self._next(now_us)
        load_us, memory_bytes = cost
        one.held_bytes = one.learn(load_us, memory_bytes, self.limit_bytes)
        one.residence = LoadState.RESIDENT
        asked, one.asked = one.asked, False
        one.keep_us = now_us + max(load_us, HOLD_US) if asked else now_us
        self._policy.enter(key, now_us)
        orders, reason = self._make_room(key, self.planned_bytes - self.limit_bytes, busy, now_us)
        if reason:
            self._drop([each for each in self._queue if not self._residents[each].asked])
            orders = self._evict(key)  # the estimates were wrong: stop loading ahead by them
            if asked:
                orders.append(Refuse(key, f"it takes {one.held_bytes / _MB:.0f} MB, and {reason}"))
        return [*orders, *self._next(now_us)]

    def unloaded(self, key: Key, now_us: int) -> Sequence[Order]:
        """Take the end of an unload: its memory is free."""
        self._end(key)
        if key in self._residents:
            self._clear(key)
        return self._next(now_us)

    def failed(self, key: Key, now_us: int) -> Sequence[Order]:
        """Take a model that could not be loaded, or failed when it was: it waits for its next try."""
        one = self._residents.get(key)
        self._end(key)
        if one is None:
            return self._next(now_us)
        pause_us = one.fail(now_us)
        orders: list[Order] = []
        if one.asked:
            one.asked = False
            reason = f"it could not be loaded; the next try is in {pause_us / 1e6:g} s"
            orders.append(Refuse(key, reason))
        self._drop([key])
        if one.residence is LoadState.RESIDENT:
            orders += self._evict(key)
        else:
            self._clear(key)
        return [*orders, *self._next(now_us)]

    def lost(self, now_us: int) -> Sequence[Order]:  # noqa: ARG002  as every event
        """Take the loss of the worker with all its models. `fill` follows when it is back."""
        waiting = [key for key, one in self._residents.items() if one.asked]
        self._queue.clear()
        self._loading.clear()
        self._there = False
        for key, one in list(self._residents.items()):
            one.promised_bytes, one.asked = 0, False
            one.forget_oversize(self.limit_bytes)
            self._clear(key)
        return [Refuse(key, LOST) for key in waiting]

    # steps

    def _admit(self, key: Key, busy: Collection[str], now_us: int) -> tuple[Sequence[Order], str]:
        """Give a model a place in the queue, before those without requests; or return why not."""
        one = self._residents.get(key)
        if one is None or not one.desired:
            return (), UNWANTED
        if one.asked:
            return (), ""
        if not self._there:
            return (), "its worker is not there yet"
        if now_us < one.retry_us:
            return (), f"it could not be loaded; the next try is in {(one.retry_us - now_us) / 1e6:.1f} s"
        if one.need_bytes > self.limit_bytes:
            return (), _too_large(one.need_bytes, self.limit_bytes)
        orders: Sequence[Order] = ()
        if one.promised_bytes:  # it was to be loaded ahead; now a request needs it
            self._queue.remove(key)
        else:
            short_bytes = self.planned_bytes + one.need_bytes - self.limit_bytes
            orders, reason = self._make_room(key, short_bytes, busy, now_us)
            if reason:
                return (), reason
            one.promised_bytes = one.need_bytes
        self._queue.insert(len(self._asked()), key)
        return orders, ""

    def _make_room(
        self, key: Key, short_bytes: int, busy: Collection[str] | None, now_us: int
    ) -> tuple[list[Order], str]:
        """Evict others for a model, first those that wait to be loaded ahead; or return why they stay."""
        dropped = []
        for other in reversed(self._queue):
            if short_bytes > 0 and not self._residents[other].asked:
                dropped.append(other)
                short_bytes -= self._residents[other].promised_bytes
        orders: list[Order] = []
        if short_bytes > 0:
            able = [
                one.candidate(other, self._rates.get(other[0], 0.0))
                for other, one in self._residents.items()
                if other != key and busy is not None and other[0] not in busy and one.may_go(now_us)
            ]
            if sum(each.memory_bytes for each in able) < short_bytes:
                return [], IN_USE
            victims = self._policy.choose(self._newcomer(key, short_bytes, now_us), able, now_us)
            if victims is None:
                return [], WORTH_MORE
            for victim in victims:
                orders += self._evict(victim.key)
        self._drop(dropped)
        return orders, ""

    def _newcomer(self, key: Key, short_bytes: int, now_us: int) -> Newcomer:
        one = self._residents[key]
        ready_us = self.ready_in_us(key, now_us)  # 0 if it is resident, and larger than known
        model = one.candidate(key, self._rates.get(key[0], 0.0))
        wait_us = max(ready_us - model.load_us, 0.0)
        return Newcomer(model, short_bytes, wait_us, ready_us <= IN_TIME * one.figures.slo_us)

    def _next(self, now_us: int) -> list[Order]:
        """Begin the next load if the loader takes one and there is room; `Ready` goes to all waiting ones."""
        loading = [self._residents[each] for each in self._loading]
        if len(loading) == BESIDE_MAX or any(now_us - each.since_us < SLOW_US for each in loading):
            return []
        # a model that leaves before its slow load is done keeps nothing waiting that has room without it
        passing = any(each.residence is LoadState.LEAVING for each in loading)
        for key in self._queue if passing else self._queue[:1]:
            one = self._residents[key]
            gone = one.residence is LoadState.ABSENT  # and so are the evicted ones if there is room
            if gone and self.held_bytes + one.promised_bytes <= self.limit_bytes and self._is_clear(one):
                return self._begin(key, now_us)
        return []

    def _begin(self, key: Key, now_us: int) -> list[Order]:
        one = self._residents[key]
        self._queue.remove(key)
        one.residence, one.since_us = LoadState.LOADING, now_us
        one.held_bytes, one.promised_bytes, one.beside_bytes = one.promised_bytes, 0, 0
        one.clouded = any(other.residence is LoadState.LEAVING for other in self._residents.values())
        for other in (self._residents[each] for each in self._loading):
            other.beside_bytes += one.held_bytes
            one.beside_bytes += other.held_bytes
        self._loading.append(key)
        return [BeginLoad(key), *(self._ready(each, now_us) for each in (key, *self._asked()))]

    def _end(self, key: Key) -> None:
        """Take it out of the loader's hands."""
        if key in self._loading:
            self._loading.remove(key)

    def _is_clear(self, one: OnDemandModel) -> bool:
        """Return whether a model can load beside those that are loading, although some sizes are unknown."""
        together = (one, *(self._residents[each] for each in self._loading))
        unsure_bytes = sum(each.unsure_bytes for each in together) if self._loading else 0
        need_bytes = one.promised_bytes or one.need_bytes
        return not unsure_bytes or self.held_bytes + need_bytes + unsure_bytes <= self.limit_bytes

    def _ready(self, key: Key, now_us: int) -> Ready:
        return Ready(key, now_us + self.ready_in_us(key, now_us))

    def _asked(self) -> list[Key]:
        """Return the models in the queue that requests wait for; they come before the others."""
        return [key for key in self._queue if self._residents[key].asked]

    def _drop(self, keys: Iterable[Key]) -> None:
        """Remove these models from the queue, if they wait to be loaded."""
        for key in keys:
            if self._residents[key].promised_bytes:
                self._queue.remove(key)
                self._residents[key].promised_bytes = 0

    def _evict(self, key: Key) -> list[Order]:
        self._residents[key].residence = LoadState.LEAVING
        for each in self._loading:
            self._residents[each].clouded = True
        return [BeginUnload(key)]

    def _dismiss(self, key: Key) -> list[Order]:
        """Remove a model that is not desired any more."""
        one = self._residents[key]
        orders: list[Order] = [Refuse(key, UNWANTED)] if one.asked else []
        one.desired = one.asked = False
        self._drop([key])
        if one.residence in (LoadState.LOADING, LoadState.RESIDENT):
            orders += self._evict(key)
        elif one.residence is LoadState.ABSENT:
            del self._residents[key]
        return orders

    def _clear(self, key: Key) -> None:
        """Mark a model as gone."""
        one = self._residents[key]
        one.residence, one.held_bytes, one.keep_us = LoadState.ABSENT, 0, 0
        if not one.desired:
            del self._residents[key]


def _too_large(need_bytes: int, limit_bytes: int) -> str:
    need, limit = need_bytes / _MB, limit_bytes / _MB
    return f"it takes {need:.0f} MB, and its slice has {limit:.0f} MB for models (memory_mb)"
