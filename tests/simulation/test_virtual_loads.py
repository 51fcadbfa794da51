"""Virtual workers load as real ones do: one after the other, and a slow load delays only itself."""

from heapq import heappop, heappush

from serving.control.commands import LoadReplica
from serving.control.on_demand.on_demand_model import BESIDE_MAX, SLOW_US
from serving.simulation.governed.virtual_workers import Chances, VirtualWorker, Weight, Workers, WorkerTerms
from serving.values.slice_specs import SliceSpec
from tests.builders import model_spec

SECOND_US = 1_000_000


class Steady(Chances):
    """Nothing goes wrong, and all takes its typical time."""

    def jitter(self, typical_us: int) -> int:
        return typical_us


class House:
    """One worker that is ready at 0; its loads take so many seconds."""

    def __init__(self, *load_s: float) -> None:
        weights = {
            (f"m{place}", "v"): Weight(round(each * SECOND_US), 1) for place, each in enumerate(load_s)
        }
        terms = WorkerTerms(weights, start_us=0)
        self.now_us = 0
        self.events: list[tuple[int, int, VirtualWorker, tuple[object, ...]]] = []
        self.seen: list[tuple[object, ...]] = []
        self.workers = Workers(terms, Steady(terms, 0, 0), self._tell)
        self.workers.start(SliceSpec("a", (0,)), 0)
        self.play()
        for place in range(len(load_s)):
            order = LoadReplica("a", place + 1, f"m{place}", "v", model_spec(f"m{place}"))
            self.workers.load(order, self.now_us)

    def _tell(self, after_us: int, worker: VirtualWorker, *happening: object) -> None:
        heappush(self.events, (self.now_us + after_us, len(self.events), worker, happening))

    def play(self, until_us: int = 0) -> None:
        while self.events and self.events[0][0] <= until_us:
            self.now_us, _, worker, happening = heappop(self.events)
            seen = self.workers.happens(worker, happening, self.now_us)
            if seen is not None:
                self.seen.append((seen[0], seen[1:2], self.now_us))


def ended(house: House) -> dict[object, float]:
    """Seconds at which replicas were loaded."""
    house.play(1000 * SECOND_US)
    return {seen[1][0]: seen[2] / SECOND_US for seen in house.seen if seen[0] == "replica_loaded"}  # type: ignore[index, operator]


def test_quick_loads_come_one_after_the_other_and_slow_ones_have_the_next_beside_them() -> None:
    slow_s = SLOW_US / SECOND_US
    assert ended(House(1, 1, 1)) == {1: 1, 2: 2, 3: 3}
    assert ended(House(60, 1, 30, 1)) == {1: 60, 2: slow_s + 1, 3: slow_s + 31, 4: 2 * slow_s + 2}


def test_where_as_many_are_slow_as_may_be_the_next_waits_for_one_of_them() -> None:
    found = ended(House(*[100] * BESIDE_MAX, 1))
    assert found[BESIDE_MAX + 1] == 101


def test_what_is_unloaded_while_it_loads_is_given_back_when_its_load_ends() -> None:
    house = House(60, 1)
    house.play(SLOW_US)
    house.workers.unload("a", 1, 0, house.now_us)
    house.play(1000 * SECOND_US)
    assert house.seen[-1] == ("replica_unloaded", (1,), 60 * SECOND_US)
