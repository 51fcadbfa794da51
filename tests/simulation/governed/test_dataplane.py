"""The engine as control's data plane: it does what control says of models, slices and measurements."""

from dataclasses import replace

from loadtests.virtual.virtual_moves import GIB, ONE, SECOND, Listed, M, N
from serving.control.commands import ForgetModel, Look, Measure, RetireModel, Route, ServeModel
from serving.policy.estimates.freshness import Freshness
from serving.profile.curve import Point, Profile
from serving.profile.sweeping.sweep import REFINED_COUNT, Measurement
from serving.scheduler.commands import FlagProfile
from serving.simulation.traffic.arrivals import Arrival
from serving.values.objectives import ReplicaSpec
from serving.values.specs import ServedModel
from serving.values.vocabulary import COMPLETED, UNKNOWN_MODEL, Kind

TOOK_US = 5_000
NAME = ONE.name


def plane(*asked: Arrival, first: ServedModel = M) -> Listed:
    """Both models on one slice, with these requests to come."""
    found = Listed((first, N), (ONE,), lambda *_: TOOK_US, asked)
    points = (Point(0, 1, TOOK_US, TOOK_US, REFINED_COUNT),)
    for number, name in enumerate(("m", "n"), start=1):
        profile = Profile(name, "a", "virtual", points, 1_400_000, GIB, share=ONE.share)
        found.carry_out(Route(NAME, number, name, "a", profile), 0)
    return found


def play(run: Listed, until_us: int) -> list[tuple[object, ...]]:
    """What control is to hear of before that instant."""
    heard: list[tuple[object, ...]] = []
    while run.wake_us < until_us:
        heard += run.wake(run.wake_us)
    return heard


def test_a_slice_that_is_measured_computes_nothing_else_until_that_is_done() -> None:
    run = plane(Arrival(1000, 0))
    run.carry_out(Measure(NAME, 1, Measurement(1, 0, 1, SECOND)), 500)
    play(run, 10_000)
    assert run.ended == []
    assert not run.rest_us(NAME, 10_000)
    run.settled(NAME, ("measured", (1, 0), [TOOK_US]), 10_000)
    play(run, SECOND)
    assert [(each.outcome, each.late_us + M.slo_us + 1000) for each in run.ended] == [
        (COMPLETED, 10_000 + TOOK_US)
    ]


def test_a_model_that_retires_answers_what_it_took_then_control_hears_then_it_is_unknown() -> None:
    run = plane(Arrival(1000, 1), Arrival(3000, 1), Arrival(20_000, 1), Arrival(20_000, 0))
    play(run, 2000)
    assert run.carry_out(RetireModel("n"), 2000) == []
    assert play(run, 10_000) == [("model_retired", "n")]
    assert {(each.arrived_us, each.outcome.kind) for each in run.ended} == {
        (1000, Kind.COMPLETED),
        (3000, Kind.REJECTED),
    }
    run.scheduler.replica_down(NAME, "n", "a", "it is not served any more", 11_000)
    run.carry_out(ForgetModel("n"), 11_000)
    play(run, SECOND)
    assert [each.outcome for each in run.ended if each.arrived_us == 20_000] == [UNKNOWN_MODEL, COMPLETED]


def test_a_model_that_is_served_otherwise_promises_that_from_then_on() -> None:
    run = plane(Arrival(1000, 0), Arrival(SECOND, 0))
    play(run, SECOND)
    run.carry_out(ServeModel(replace(M, slo_us=2 * M.slo_us)), SECOND)
    play(run, 2 * SECOND)
    assert [each.late_us for each in run.ended] == [TOOK_US - M.slo_us, TOOK_US - 2 * M.slo_us]


def test_control_hears_of_load_of_stuck_workers_and_of_profiles_that_batches_contradict() -> None:
    run = plane(Arrival(1000, 0), first=replace(M, replicas=ReplicaSpec(1, 2)))
    play(run, SECOND)
    ((event, reports),) = run.carry_out(Look(), SECOND)
    assert event == "seen"
    assert {report.model: report.offered for report in reports} == {"m": 1}
    run.stuck(NAME, "it stalls", SECOND)
    run.told(FlagProfile(NAME, 1, Freshness.STALE), SECOND)
    run.ask([Arrival(2 * SECOND, 0)])
    assert play(run, 2 * SECOND + 1) == [
        ("worker_stuck", NAME, "it stalls"),
        ("profile_flagged", NAME, 1, Freshness.STALE),
    ]
