"""On a slice that loads on demand a slow load delays only itself, within the memory of the slice."""

import pytest

from serving.control.on_demand.on_demand_model import (
    BESIDE_MAX,
    RETRY_FIRST_US,
    SLOW_US,
    UNSURE,
    BeginLoad,
    BeginUnload,
    LoadFigures,
    LoadState,
    Ready,
)
from serving.control.on_demand.slice_memory import SliceMemory
from serving.values.vocabulary import NEVER_US
from serving.worker.loop import loader
from tests.control.on_demand.test_slice_memory import LOAD_US, MB, A, B, C, D, keys, residency_of


def beginning(limit_mb: int, *figures: LoadFigures) -> SliceMemory:
    """A, B and so on with these figures are to be loaded at the start."""
    residency = SliceMemory(limit_mb * MB)
    residency.want(dict(zip(keys, figures, strict=False)), 0)
    assert BeginLoad(A) in residency.fill({}, 0)
    return residency


def test_what_is_slow_for_the_worker_is_slow_here() -> None:
    assert (SLOW_US, BESIDE_MAX) == (loader.SLOW_S * 1e6, loader.BESIDE_MAX)


def test_a_slow_load_delays_only_itself() -> None:
    residency = beginning(9, *[LoadFigures(MB, 60e6)] * 3)
    assert residency.due_us(1) == SLOW_US
    assert residency.go_on(SLOW_US - 1) == []
    assert residency.go_on(SLOW_US) == [BeginLoad(B), Ready(B, 60_000_000 + SLOW_US)]
    assert residency.go_on(SLOW_US + 1) == []
    assert residency.due_us(SLOW_US + 1) == 2 * SLOW_US
    assert residency.loaded(B, (LOAD_US, MB), SLOW_US + 9) == [
        BeginLoad(C),
        Ready(C, 60_000_000 + SLOW_US + 9),
    ]
    assert residency.loaded(C, (LOAD_US, MB), SLOW_US + 10) == []
    assert residency.residence(A) is LoadState.LOADING
    assert residency.due_us(SLOW_US + 11) == NEVER_US
    assert residency.loaded(A, (60_000_000, MB), 60_000_000) == []
    assert residency.held_bytes == 3 * MB


def test_what_is_asked_for_beside_a_slow_load_is_ready_when_its_own_load_ends() -> None:
    residency = beginning(9, LoadFigures(MB, 60e6), *[LoadFigures(MB, LOAD_US)] * 2)
    residency.ask(C, {}, (), 0)
    assert residency.ready_in_us(C, 500_000) == SLOW_US - 500_000 + LOAD_US
    assert residency.go_on(SLOW_US)[0] == BeginLoad(C)
    assert residency.ready_in_us(B, SLOW_US) == 2 * LOAD_US


def test_no_more_loads_run_at_once_than_the_worker_takes() -> None:
    figures = dict.fromkeys([(f"m{number}", "v") for number in range(BESIDE_MAX + 1)], LoadFigures(MB, 60e6))
    residency = SliceMemory(20 * MB)
    residency.want(figures, 0)
    begun = [residency.fill({}, 0), *(residency.go_on(turn * SLOW_US) for turn in range(1, BESIDE_MAX + 2))]
    assert [len(each) > 0 for each in begun] == [True] * BESIDE_MAX + [False, False]


def test_a_load_beside_another_waits_for_the_memory_of_what_goes() -> None:
    residency = residency_of(3, dict.fromkeys((A, B, C, D), LoadFigures(MB, 60e6)), there=(A, B))
    residency.ask(D, {}, {"b"}, 0)  # C is being loaded; A goes
    assert residency.go_on(SLOW_US) == []
    assert residency.held_bytes == 3 * MB
    assert BeginLoad(D) in residency.unloaded(A, SLOW_US + 1)


def test_a_model_of_unknown_size_loads_alone_unless_there_is_clearly_room() -> None:
    known, unknown = LoadFigures(MB, 60e6), LoadFigures(MB, 60e6, known=False)
    for pair in ((known, unknown), (unknown, known)):
        assert beginning(UNSURE, *pair).go_on(SLOW_US) == []
        assert BeginLoad(B) in beginning(UNSURE + 1, *pair).go_on(SLOW_US)
    assert beginning(2 * UNSURE - 1, unknown, unknown).go_on(SLOW_US) == []
    assert BeginLoad(B) in beginning(2 * UNSURE, unknown, unknown).go_on(SLOW_US)
    residency = beginning(UNSURE, known, unknown)
    residency.loaded(A, (LOAD_US, MB), SLOW_US)
    residency.loaded(B, (LOAD_US, MB), SLOW_US)  # alone: now it is known
    for key in (A, B):
        residency.failed(key, SLOW_US)
        residency.unloaded(key, SLOW_US)
    now_us = SLOW_US + RETRY_FIRST_US
    assert BeginLoad(A) in residency.ask(A, {}, (), now_us)
    residency.ask(B, {}, (), now_us)
    assert BeginLoad(B) in residency.go_on(now_us + SLOW_US)


@pytest.mark.parametrize(
    ("known", "grown_mb", "held_mb"), [(True, 3, 2), (True, 0, 2), (True, 5, 4), (False, 3, 3), (False, 0, 2)]
)
def test_a_load_beside_another_counts_as_planned_but_for_what_no_plan_explains(
    known: bool, grown_mb: int, held_mb: int
) -> None:
    """The process grows by both: by 2 MB of its own, and by up to 1 MB of the other's."""
    residency = beginning(20, LoadFigures(2 * MB, 60e6, known=known), LoadFigures(MB, 60e6))
    residency.go_on(SLOW_US)
    residency.loaded(A, (60_000_000, grown_mb * MB), 60_000_000)
    assert residency.held_bytes == (held_mb + 1) * MB
    residency.failed(A, 60_000_000)
    residency.unloaded(A, 60_000_000)
    residency.ask(A, {}, (), 62_000_000)
    assert residency.planned_bytes == 3 * MB  # it has learnt no size


def test_a_slow_load_that_is_to_go_keeps_nothing_waiting_that_has_room() -> None:
    """D waits for the memory that C gives back when its load ends, and B for nothing."""
    both = dict.fromkeys((A, C), LoadFigures(MB, 60e6))
    residency = SliceMemory(3 * MB)
    residency.want(both, 0)
    residency.fill({}, 0)
    residency.loaded(A, (LOAD_US, MB), 0)
    assert residency.residence(C) is LoadState.LOADING
    sizes = {A: LoadFigures(MB, LOAD_US), D: LoadFigures(2 * MB, LOAD_US), B: LoadFigures(MB, LOAD_US)}
    assert residency.want({A: sizes[A], B: sizes[B], D: sizes[D]}, 1) == [BeginUnload(C)]
    residency.ask(D, {}, {"a"}, 2)
    assert residency.go_on(SLOW_US) == []  # B has no place beside A and D
    residency.want({D: sizes[D], B: sizes[B]}, SLOW_US)
    residency.ask(B, {}, (), SLOW_US)
    residency.unloaded(A, SLOW_US)
    assert residency.residence(B) is LoadState.LOADING
    assert residency.residence(D) is LoadState.QUEUED
    residency.unloaded(C, SLOW_US + 5)
    residency.loaded(B, (LOAD_US, MB), SLOW_US + 6)
    assert residency.residence(D) is LoadState.LOADING
