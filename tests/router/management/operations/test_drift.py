"""What is differs from what is wanted: it is said once it lasts, and a worker off its cores is put back."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from router.management.operations.applied import PlannedFor
from router.management.operations.drift import (
    WORKER_BYTES,
    ObservedReplica,
    ObservedWorker,
    PlacementDrift,
    Sight,
    drifted,
    examined,
    sight,
)
from serving.control.control import Control
from serving.control.rollouts.rollout import RolloutState
from serving.control.state.desired import DesiredReplica, DesiredSlice, DesiredState
from serving.control.state.replicas import ReplicaStatus
from serving.runtime.calls.gateway import Gateway
from serving.runtime.fleet import Fleet
from serving.values.objectives import ReplicaSpec
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits
from tests.builders import model_spec, served
from tests.runtime.house import house

pytestmark = pytest.mark.live

CORES = tuple(sorted(os.sched_getaffinity(0)))
SPEC = SliceSpec("cpu-a", CORES[:1])
LINEAR = DesiredReplica("digits", "linear")
READY = ObservedReplica("digits", "linear", ReplicaStatus.READY, memory_bytes=1 << 20)


def seen(
    *held: ObservedReplica, spec: SliceSpec = SPEC, wanted: tuple[DesiredReplica, ...] = (LINEAR,)
) -> Sight:
    return Sight((ObservedWorker(spec, None, held),), DesiredState((DesiredSlice(spec, wanted),), ()))


def sentences(found: Sight) -> list[str]:
    return [each.sentence for each in drifted(found)]


def test_what_is_as_wanted_has_not_drifted() -> None:
    assert sentences(seen(READY)) == []


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ((), "slice cpu-a: digits linear is wanted, and is absent"),
        (
            (replace(READY, status=ReplicaStatus.FAILED, reason="no such file"),),
            "slice cpu-a: digits linear is wanted, and is failed (no such file)",
        ),
        (
            (replace(READY, status=ReplicaStatus.STANDING),),
            "slice cpu-a: digits linear is wanted, and is standing by",
        ),
        ((READY, replace(READY, model="mlp")), "slice cpu-a: mlp linear is loaded, and is not wanted"),
    ],
)
def test_a_replica_that_is_not_as_wanted_is_named(held: tuple[ObservedReplica, ...], said: str) -> None:
    assert sentences(seen(*held)) == [said]


def test_a_replica_that_is_to_stand_by_does() -> None:
    standing_by = replace(LINEAR, routed=False)
    assert sentences(seen(replace(READY, status=ReplicaStatus.STANDING), wanted=(standing_by,))) == []


def test_of_a_scaled_model_no_more_is_wanted_than_its_load_takes() -> None:
    slices = [SliceSpec("a", (0,)), SliceSpec("b", (1,))]
    scaled = replace(served(model_spec("digits")), slices=("a", "b"), replicas=ReplicaSpec())
    control = Control(slices, [scaled], {}, Limits(), lambda _spec: "cpu-here")
    control.tick(1_000_000, [])
    fleet = SimpleNamespace(control=control, movement=RolloutState.STEADY, pid=lambda _name: None)
    found = sight(cast(Fleet, fleet), cast(Gateway, SimpleNamespace(rates=dict)))
    assert found.wanted is not None
    assert [each.spec.name for each in found.wanted.slices] == ["a"]
    assert not [each for each in drifted(found) if each.key.startswith("absent")]


def test_slices_that_are_missing_or_too_many_are_named() -> None:
    other = ObservedWorker(SliceSpec("cpu-b", ()), None)
    found = seen(READY)
    assert sentences(replace(found, workers=(other,))) == [
        "slice cpu-a is wanted and is not there",
        "slice cpu-b is there and is not wanted",
    ]


def test_while_a_move_is_under_way_nothing_is_held_against_its_end() -> None:
    assert sentences(replace(seen(), wanted=None)) == []


def test_where_models_are_loaded_on_demand_none_is_missing_and_memory_is_bounded() -> None:
    spec = replace(SPEC, memory_bytes=1 << 20)
    assert sentences(seen(spec=spec)) == []
    assert sentences(seen(READY, spec=spec)) == []
    held = replace(READY, memory_bytes=3 << 20)
    assert sentences(seen(held, spec=spec)) == ["the replicas of slice cpu-a hold 3 MB; it may have 1 MB"]


LOADS = {"digits": PlannedFor(requests=50.0, rows=2.0, capacity=400.0)}


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (25.0, ""),
        (200.0, ""),
        (200.1, "digits is asked 200 requests a second, more than the 200 that its placement carries"),
        (
            24.9,
            "digits is asked 24.9 requests a second, less than half of the 50 that its placement was made",
        ),
    ],
)
def test_what_is_asked_is_held_against_what_was_planned(rate: float, said: str) -> None:
    found = sentences(replace(seen(READY), rates={"digits": rate, "mlp": 1e9}, loads=LOADS))
    assert len(found) == bool(said)
    assert not said or found[0].startswith(said)


def test_a_model_that_was_planned_for_nothing_needs_no_less() -> None:
    loads = {"digits": PlannedFor(0.0, 0.0, 10.0)}
    assert sentences(replace(seen(READY), rates={"digits": 0.0}, loads=loads)) == []


async def test_only_what_lasts_is_said_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    found = [seen(READY)]
    rates = {"digits": 300.0}
    drift = PlacementDrift(lambda: replace(found[0], rates=rates), lambda: LOADS)
    with caplog.at_level(logging.WARNING, "router.management.operations.drift"):
        await drift.check()
        assert drift.found == ()
        rates["digits"] = 400.0  # the figures change, and it is the same drift
        await drift.check()
        assert len(drift.found) == 1
        assert drift.found[0].startswith("digits is asked 400 requests a second")
        await drift.check()
        assert len(caplog.messages) == 1
        rates["digits"] = 100.0
        await drift.check()
        assert drift.found == ()
        rates["digits"] = 300.0
        await drift.check()
        assert drift.found == ()
        await drift.check()
        assert len(caplog.messages) == 2


CODE = """
import threading
stop = threading.Event()
threading.Thread(target=stop.wait).start()
print(1, flush=True)
"""


@pytest.fixture
def process() -> Iterator[int]:
    """One with a second thread, on all cores."""
    with subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started.pid
        started.kill()


@pytest.mark.skipif(len(CORES) < 2, reason="takes a core to stray to")
def test_a_worker_that_has_left_its_cores_is_put_back_with_all_its_threads(process: int) -> None:
    threads = [int(each.name) for each in Path(f"/proc/{process}/task").iterdir()]
    for thread in threads:
        os.sched_setaffinity(thread, CORES)
    (found,) = examined([ObservedWorker(SPEC, process)])
    assert found.mended
    assert found.sentence.startswith(f"the worker of slice cpu-a (process {process}) ran on cores ")
    assert found.sentence.endswith(f", not on core {SPEC.cores[0]}; it was put back")
    assert [os.sched_getaffinity(thread) for thread in threads] == [{SPEC.cores[0]}] * len(threads)
    assert examined([ObservedWorker(SPEC, process)]) == []


def test_a_worker_whose_cores_cannot_be_had_is_named(process: int) -> None:
    (found,) = examined([ObservedWorker(SliceSpec("cpu-a", (4095,)), process)])
    assert not found.mended
    assert "cannot be put back: are these cores usable?" in found.sentence


def test_a_worker_that_is_not_pinned_or_has_just_ended_is_left_alone(process: int) -> None:
    assert (
        examined(
            [
                ObservedWorker(SliceSpec("cpu-a", ()), process),
                ObservedWorker(SPEC, None),
                ObservedWorker(SPEC, 1 << 22),
            ]
        )
        == []
    )


def test_a_worker_that_holds_much_more_than_its_slice_may_is_named(process: int, tmp_path: Path) -> None:
    folder = tmp_path / str(process)
    folder.mkdir()
    held = (WORKER_BYTES + (2 << 20)) >> 10
    (folder / "status").write_text(f"Name:\tx\nRssAnon:\t{held} kB\n")
    unpinned = SliceSpec("cpu-a", (), memory_bytes=1 << 20)
    (found,) = examined([ObservedWorker(unpinned, process)], tmp_path)
    assert found.sentence == ("the worker of slice cpu-a holds 1,026 MB, of which its replicas may have 1 MB")
    assert examined([ObservedWorker(replace(unpinned, memory_bytes=2 << 20), process)], tmp_path) == []


@pytest.mark.slow
async def test_a_gateway_at_rest_has_not_drifted_and_one_without_its_worker_has(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        await here.until(lambda: here.fleet.movement is RolloutState.STEADY)
        found = sight(here.fleet, here.gateway)
        assert [each.spec.name for each in found.workers] == ["s"]
        assert {each.model for each in found.workers[0].replicas} == {"simple", "identity"}
        assert found.rates.keys() == {"simple", "identity"}
        assert drifted(found) == []
        pid = found.workers[0].pid
        assert pid is not None
        assert examined(found.workers) == []
        os.kill(pid, signal.SIGKILL)
        await here.until(lambda: here.fleet.pid("s") is None)
        assert [each.sentence for each in drifted(sight(here.fleet, here.gateway))] == [
            "slice s: simple default is wanted, and is absent",
            "slice s: identity default is wanted, and is absent",
        ]
