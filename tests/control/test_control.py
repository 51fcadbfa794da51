"""What control promises: wanted replicas come up, come back, and are measured before they are used."""

from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.control.commands import (
    Command,
    EndWorker,
    Expect,
    KeepProfile,
    LoadReplica,
    Measure,
    Route,
    StartWorker,
    Withdraw,
)
from serving.control.control import Control
from serving.control.measuring import LOAD_PATIENCE_US
from serving.control.state.desired import DesiredState
from serving.control.state.replicas import ReplicaStatus, WorkerStatus
from serving.control.state.timeouts import ANSWERED_US, BACKOFF_MAX_US, HEALTHY_US, backoff_us
from serving.policy.estimates.freshness import Freshness
from serving.profile.derived.latency import Latency
from serving.profile.sweeping.sweep import REFINED_COUNT
from serving.values.slice_specs import SliceSpec
from serving.values.specs import Limits, ServedModel
from serving.values.vocabulary import NEVER_US
from tests.builders import KIND, model_spec, profile, served

LIMITS = Limits()
C = TypeVar("C")


def answers(control: Control) -> bool:
    """Whether something of a model gets batches."""
    return any(
        replica.status is ReplicaStatus.READY
        for record in control.slices.values()
        for replica in record.replicas.values()
    )


def control_of(*models: ServedModel, known: bool = True, slices: tuple[str, ...] = ("s",)) -> Control:
    profiles = {
        (name, model.name, variant): profile(model.name, variant, count=REFINED_COUNT)
        for model in models
        for variant in model.variants
        for name in slices
    }
    specs = [SliceSpec(name, ()) for name in slices]
    return Control(specs, models, profiles if known else {}, LIMITS, lambda _: KIND)


def only(commands: Sequence[Command], kind: type[C]) -> list[C]:
    return [command for command in commands if isinstance(command, kind)]


def bring_up(control: Control, now: int = 0) -> list[Command]:
    """Start, answer every load, and return all that was asked."""
    asked = list(control.start(now))
    for name in control.slices:
        loads = control.worker_ready(name, now)
        asked += loads
        for load in only(loads, LoadReplica):
            asked += control.replica_loaded(name, load.replica, (5, 7), now)
    return asked


def answer_measurements(
    control: Control, commands: Sequence[Command], row_us: int, now: int = 0
) -> list[Command]:
    """Answer each Measure until there is none, as a device with `row_us` a row would."""
    asked: list[Command] = []
    queue = list(commands)
    while queue:
        command = queue.pop(0)
        asked.append(command)
        if isinstance(command, Measure):
            wanted = command.measurement
            latencies = [row_us * wanted.rows] * wanted.repeats
            queue += control.measured(command.slice, (wanted.rows, wanted.size), latencies, now)
    return asked


def test_a_known_profile_is_routed_as_soon_as_its_replica_is_loaded() -> None:
    control = control_of(served(model_spec(variants=("a", "b"))))
    asked = bring_up(control)
    assert [route.variant for route in only(asked, Route)] == ["a", "b"]
    assert not only(asked, Measure)
    assert answers(control)


def test_the_answering_variant_is_loaded_first() -> None:
    model = served(model_spec(variants=("slow", "fast")))
    control = control_of(ServedModel(model.spec, 1000, ("slow", "fast"), ("s",), default_variant="fast"))
    assert [load.variant for load in only(bring_up(control), LoadReplica)] == ["fast", "slow"]


def test_an_unknown_replica_is_measured_before_it_is_routed_and_its_profile_is_kept() -> None:
    control = control_of(served(), known=False)
    asked = answer_measurements(control, bring_up(control), row_us=100)
    kinds = [type(command) for command in asked]
    assert kinds.index(Measure) < kinds.index(Route)
    assert only(asked, KeepProfile)[0].profile.device_kind == KIND
    assert [command.measurement.rows for command in only(asked, Measure)] == [1, 2, 4, 8]
    assert Latency(only(asked, Route)[0].profile).predict_us(4) == 400


def test_the_first_sweep_never_measures_a_batch_above_the_slo() -> None:
    control = control_of(served(model_spec(slo_ms=50, batch_max=64)), known=False)
    asked = answer_measurements(control, bring_up(control), row_us=11_000)
    assert [command.measurement.rows for command in only(asked, Measure)] == [1, 2, 4]


def test_only_one_measurement_runs_on_a_slice_at_a_time() -> None:
    control = control_of(served(model_spec(variants=("a", "b", "c"))), known=False)
    assert len(only(bring_up(control), Measure)) == 1


def test_a_lost_worker_is_withdrawn_at_once_and_started_again_after_its_back_off() -> None:
    control = control_of(served())
    bring_up(control)
    lost = control.worker_lost("s", "was killed", 1000)
    assert [each for each in lost if not isinstance(each, Expect)] == [Withdraw("s", "was killed")]
    assert not answers(control)
    assert control.wake_us == 1000 + backoff_us(1)
    assert not only(control.tick(control.wake_us - 1, ()), StartWorker)
    assert only(control.tick(1000 + backoff_us(1), ()), StartWorker) == [StartWorker("s")]
    assert only(control.worker_ready("s", 200_000), LoadReplica)


@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=12))
def test_back_off_doubles_while_a_worker_keeps_dying_and_is_bounded(pauses_us: list[int]) -> None:
    control = control_of(served())
    now = 0
    control.start(now)
    for failures, pause in enumerate(pauses_us, start=1):
        now += pause
        control.worker_lost("s", "died", now)
        assert control.wake_us - now == min(100_000 << (failures - 1), BACKOFF_MAX_US)
        now = control.wake_us
        assert only(control.tick(now, ()), StartWorker)


def test_a_worker_that_lived_long_starts_its_back_off_anew() -> None:
    control = control_of(served())
    now = 0
    control.start(now)
    for _ in range(5):
        control.worker_lost("s", "died", now)
        now = control.wake_us
        control.tick(now, ())
    control.worker_ready("s", now)
    control.worker_lost("s", "died", now + HEALTHY_US)
    assert control.wake_us == now + HEALTHY_US + backoff_us(1)


def test_a_worker_that_answered_is_started_again_at_once_however_often_it_is_killed() -> None:
    control = control_of(served())
    now = 0
    control.start(now)
    for kills in range(1, 12):
        for load in only(control.worker_ready("s", now), LoadReplica):
            control.replica_loaded("s", load.replica, (5, 7), now)
        now += ANSWERED_US
        control.worker_lost("s", "was killed by SIGKILL", now)
        assert control.wake_us == now + backoff_us(1)
        assert control.slices["s"].failures == kills
        now = control.wake_us
        assert only(control.tick(now, ()), StartWorker)


def test_a_worker_that_dies_while_it_loads_waits_longer_each_time() -> None:
    control = control_of(served())
    now = 0
    control.start(now)
    for failures in range(1, 4):
        asked = [*control.worker_ready("s", now), *control.tick(now + BACKOFF_MAX_US, ())]
        assert only(asked, LoadReplica)
        now += BACKOFF_MAX_US + ANSWERED_US
        control.worker_lost("s", "died", now)
        assert control.slices["s"].retry_us == now + backoff_us(failures)
        now = control.slices["s"].retry_us
        control.tick(now, ())


def test_a_worker_that_never_says_hello_is_ended() -> None:
    control = control_of(served())
    control.start(0)
    assert control.wake_us == LIMITS.startup_s * 1e6
    assert only(control.tick(control.wake_us, ()), EndWorker)


def test_a_worker_that_hangs_in_a_load_is_ended_with_the_model_named() -> None:
    control = control_of(served(model_spec(variants=("a", "b"))))
    control.start(0)
    loads = only(control.worker_ready("s", 10), LoadReplica)
    control.replica_loaded("s", loads[0].replica, (5, 7), 20)
    due_us = 20 + int(LIMITS.startup_s * 1e6)
    assert not only(control.tick(due_us - 1, ()), EndWorker)
    assert control.wake_us == due_us
    assert "m b did not load" in only(control.tick(due_us, ()), EndWorker)[0].reason


def test_a_load_that_hangs_is_ended_while_others_load_beside_it() -> None:
    control = control_of(served(model_spec(variants=("a", "b", "c"))))
    control.start(0)
    hung, *others = only(control.worker_ready("s", 10), LoadReplica)
    due_us = 10 + int(LIMITS.startup_s * 1e6)
    for now in range(20, due_us - BACKOFF_MAX_US, BACKOFF_MAX_US):
        for each in others:
            assert not only(control.replica_failed("s", each.replica, "no such file", now), EndWorker)
        others = only(control.tick(now + BACKOFF_MAX_US, ()), LoadReplica)
        assert len(others) == 2
    (ended,) = only(control.tick(due_us, ()), EndWorker)
    assert ended.reason.startswith(f"{hung.model} {hung.variant} did not load")


def test_a_load_has_its_own_time_behind_one_that_was_given_up() -> None:
    patience_us = int(LIMITS.startup_s * 1e6)
    first, second = (served(model_spec(name)) for name in "mn")
    control = control_of(first)
    control.start(0)
    (load,) = only(control.worker_ready("s", 10), LoadReplica)
    spec = control.slices["s"].spec
    assert only(control.want(DesiredState.of([spec], [second]), 20), LoadReplica)
    ended_us = 10 + patience_us - 1
    control.replica_unloaded("s", load.replica, ended_us)  # it had been loading until then
    assert not only(control.tick(ended_us + patience_us - 1, ()), EndWorker)
    assert only(control.tick(ended_us + patience_us, ()), EndWorker)


def test_a_worker_that_hangs_in_its_first_measurement_is_ended_with_the_model_named() -> None:
    control = control_of(served(), known=False)
    assert only(bring_up(control), Measure)
    assert control.wake_us == LIMITS.stall_us + LIMITS.sweep_s * 1e6
    assert "m a was measured" in only(control.tick(control.wake_us, ()), EndWorker)[0].reason


def test_a_worker_that_hangs_in_a_refinement_keeps_requests_waiting_no_longer_than_a_stall() -> None:
    control = control_of(served(), known=False)
    answer_measurements(control, bring_up(control), row_us=100)
    while not only(control.tick(7, ("s",)), Measure):
        pass
    assert control.wake_us == 7 + LIMITS.stall_us
    assert only(control.tick(control.wake_us, ()), EndWorker)


def test_a_failed_load_is_said_and_tried_again() -> None:
    control = control_of(served())
    control.start(0)
    load = only(control.worker_ready("s", 0), LoadReplica)[0]
    control.replica_failed("s", load.replica, "no such file", 10)
    replica = control.slices["s"].replicas[load.replica]
    assert (replica.status, replica.reason) == (ReplicaStatus.FAILED, "no such file")
    assert not answers(control)
    assert only(control.tick(10 + backoff_us(1), ()), LoadReplica) == [load]


def test_profiles_are_refined_only_on_idle_slices_and_only_until_they_are_good() -> None:
    control = control_of(served(), known=False)
    answer_measurements(control, bring_up(control), row_us=100)
    now, measured = 0, 0
    while control.wake_us != NEVER_US:
        now = control.wake_us
        busy = control.tick(now, ())
        assert not only(busy, Measure)
        for _ in range(2):
            commands = control.tick(now, ("s",))
        assert len(only(commands, Measure)) == 1
        answer_measurements(control, commands, row_us=100, now=now)
        measured += 1
        assert measured < 1000
    points = next(iter(control.slices["s"].replicas.values())).sweep.points()
    assert {point.rows for point in points} == set(range(1, 9))
    assert min(point.count for point in points) >= REFINED_COUNT


def test_after_stop_nothing_is_started_again() -> None:
    control = control_of(served())
    bring_up(control)
    control.stop()
    assert control.worker_lost("s", "ended", 5) == ()
    assert control.wake_us == NEVER_US
    assert control.slices["s"].status is WorkerStatus.WAITING


@pytest.mark.parametrize("failures", [1, 5, 64, 10_000])
def test_back_off_is_never_longer_than_its_bound(failures: int) -> None:
    assert 0 < backoff_us(failures) <= BACKOFF_MAX_US


def test_a_slow_load_keeps_what_is_loaded_from_being_measured_and_used_for_a_moment_only() -> None:
    control = control_of(served(model_spec("slow")), served(model_spec("quick")), known=False)
    control.start(0)
    loads = {each.model: each.replica for each in only(control.worker_ready("s", 0), LoadReplica)}
    asked = control.replica_loaded("s", loads["quick"], (1000, 1), 1000)
    assert not only(asked, Measure), "batches beside a load take longer: the other one may be there soon"
    assert control.wake_us <= 1000 + LOAD_PATIENCE_US
    now = 1000 + LOAD_PATIENCE_US
    asked = control.tick(now, ())
    while (measure := only(asked, Measure)) and not only(asked, Route):
        sample = measure[0].measurement
        took = [100 * sample.rows] * sample.repeats
        asked = control.measured("s", (sample.rows, sample.size), took, now)
    (route,) = only(asked, Route)
    assert route.model == "quick"
    replica = control.slices["s"].replicas[loads["quick"]]
    assert replica.freshness is Freshness.STALE, "to be measured anew in quiet"
    assert control.slices["s"].replicas[loads["slow"]].status is ReplicaStatus.LOADING
