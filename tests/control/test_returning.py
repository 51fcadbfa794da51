"""The scheduler hears when what a lost worker served is back, before it hears that it is gone."""

from serving.control.commands import Cold, Expect, LoadReplica, Withdraw
from serving.control.control import Control
from serving.control.reconciling import LOAD_TRIES, START_TRIES
from serving.control.state.replicas import START_US
from serving.control.state.timeouts import backoff_us
from serving.values.slice_specs import SliceSpec
from serving.values.vocabulary import NEVER_US
from tests.builders import KIND, model_spec, profile, served
from tests.control.test_control import LIMITS, bring_up, control_of, only

START, LOAD = 300_000, 400_000
LIVED_US = 40_000_000


def up(slices: tuple[str, ...] = ("s",), variants: tuple[str, ...] = ("a",)) -> Control:
    """Each worker started in START, each replica loaded in LOAD."""
    control = control_of(served(model_spec(variants=variants), slices), slices=slices)
    control.start(0)
    loads = [load for name in slices for load in only(control.worker_ready(name, START), LoadReplica)]
    for load in loads:  # what was loaded nowhere yet is loaded on one slice first
        told = control.replica_loaded(load.slice, load.replica, (LOAD, 7), START + LOAD)
        loads += only(told, LoadReplica)
    return control


def restart(control: Control, at_us: int) -> int:
    """The back-off of "s" is over and its worker starts; when it is ready."""
    control.tick(at_us + backoff_us(1), ())
    return at_us + backoff_us(1) + START


def test_what_a_lost_worker_served_is_expected_after_back_off_start_and_loads() -> None:
    control = up(variants=("a", "b"))
    first_us = LIVED_US + backoff_us(1) + START
    assert control.worker_lost("s", "was killed", LIVED_US) == [
        Expect("m", "a", first_us + LOAD),
        Expect("m", "b", first_us + 2 * LOAD),
        Withdraw("s", "was killed"),
    ]


def test_before_a_start_was_timed_it_is_guessed() -> None:
    control = control_of(served())
    bring_up(control)
    (expected, _) = control.worker_lost("s", "was killed", LIVED_US)
    assert isinstance(expected, Expect)
    assert 0 < expected.ready_us - LIVED_US - backoff_us(1) < START_US


def test_what_comes_as_planned_is_said_once() -> None:
    control = up()
    control.worker_lost("s", "was killed", LIVED_US)
    ready_us = restart(control, LIVED_US)
    (load,) = said = control.worker_ready("s", ready_us)
    assert isinstance(load, LoadReplica)
    told = [*said, *control.replica_loaded("s", load.replica, (LOAD, 7), ready_us + LOAD)]
    assert not only(told, Expect)
    assert not only(told, Cold)
    assert not only(control.tick(ready_us + 9 * LOAD, ()), Expect)


def test_a_worker_that_dies_again_is_expected_later() -> None:
    control = up()
    control.worker_lost("s", "was killed", LIVED_US)
    started_us = LIVED_US + backoff_us(1)
    control.tick(started_us, ())
    died = control.worker_lost("s", "died", started_us + 1000)
    assert only(died, Expect) == [Expect("m", "a", started_us + 1000 + backoff_us(2) + START + LOAD)]


def test_a_start_that_took_longer_is_expected_to_take_as_long_again() -> None:
    control = up()
    control.worker_lost("s", "was killed", LIVED_US)
    ready_us = restart(control, LIVED_US) + 2_000_000
    (said,) = only(control.worker_ready("s", ready_us), Expect)
    assert said.ready_us == ready_us + LOAD
    again_us = ready_us + LIVED_US
    (load,) = control.slices["s"].replicas
    control.replica_loaded("s", load, (LOAD, 7), ready_us + LOAD)
    (said,) = only(control.worker_lost("s", "was killed", again_us), Expect)
    assert said.ready_us == again_us + backoff_us(1) + START + 2_000_000 + LOAD


def test_what_cannot_be_loaded_is_expected_no_more() -> None:
    control, now = up(), LIVED_US
    control.worker_lost("s", "was killed", now)
    now = restart(control, now)
    (load,) = only(control.worker_ready("s", now), LoadReplica)
    told = []
    for failures in range(1, LOAD_TRIES + 1):
        told = list(control.replica_failed("s", load.replica, "no such file", now))
        if failures < LOAD_TRIES:
            assert not only(told, Cold)
            now += backoff_us(failures)
            control.tick(now, ())
    assert only(told, Cold) == [Cold("m", "a", NEVER_US)]


def test_a_worker_that_never_starts_is_expected_no_more() -> None:
    control, now = up(), LIVED_US
    told = list(control.worker_lost("s", "was killed", now))
    for _ in range(1, START_TRIES):
        assert only(told, Expect)
        now = control.wake_us
        control.tick(now, ())
        told = list(control.worker_lost("s", "died", now))
    assert only(told, Cold) == [Cold("m", "a", NEVER_US)]
    assert not only(told, Expect)


def test_the_first_of_two_lost_slices_counts() -> None:
    control = up(("s", "t"))
    (first,) = only(control.worker_lost("s", "was killed", LIVED_US), Expect)
    (second,) = only(control.worker_lost("t", "was killed", LIVED_US + 60_000), Expect)
    assert first.ready_us == second.ready_us == LIVED_US + backoff_us(1) + START + LOAD
    control.tick(LIVED_US + backoff_us(1), ())
    (later,) = only(control.worker_lost("s", "died", LIVED_US + backoff_us(1) + 1000), Expect)
    assert later.ready_us == LIVED_US + 60_000 + backoff_us(1) + START + LOAD


def test_a_lost_device_brings_nothing_back() -> None:
    control = up()
    control.worker_lost("s", "was killed", LIVED_US)
    domain = control.slices["s"].spec.domain
    assert only(control.device_lost(domain, "gone", LIVED_US + 1000), Cold) == [Cold("m", "a", NEVER_US)]


def test_a_slice_that_loads_on_demand_speaks_for_itself() -> None:
    model = served()
    spec = SliceSpec("s", (), memory_bytes=1 << 30)
    control = Control([spec], [model], {("s", "m", "a"): profile("m", "a")}, LIMITS, lambda _: KIND)
    bring_up(control)
    told = control.worker_lost("s", "was killed", LIVED_US)
    assert not [each for each in only(told, Expect) if each.ready_us < LIVED_US + backoff_us(1)]
