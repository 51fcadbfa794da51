"""What is promised at the door: in overload the right ones are turned away at once, told when to return."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.virtual.virtual_world import Run, World
from serving.policy.estimates.latency import TRY_US
from serving.policy.limits.admission import FlowDemand, allot
from serving.scheduler.admission import RESTART_US, RETRY_US_MIN
from serving.scheduler.commands import Answer, RunBatch
from serving.scheduler.models.models import TenantFlow
from serving.scheduler.scheduler import Scheduler
from serving.simulation.traffic.arrivals import Arrival
from serving.values.specs import DEFAULT_TENANT, BatchingSpec, Limits, TenantSpec
from serving.values.vocabulary import (
    COMPLETED,
    DEADLINE_UNREACHABLE,
    DRAINING,
    MEMORY_FULL,
    NO_REPLICA,
    OVERLOAD,
    QUEUE_FULL,
    QUOTA,
    TOO_LARGE,
    Outcome,
)
from tests.scheduler.values import (  # fmt: skip
    only,
    outcomes,
    replica_of,
    request_of,
    scheduler_on,
    send,
    served_model,
)

SLO = BatchingSpec("slo", guard_us=0)
STATIC = BatchingSpec("static")
NAMES, SLICES = ("m", "n", "o", "p"), ("s", "t", "u", "v")
homes = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(SLICES)), max_size=8)


def scheduler_of(
    places: Iterable[tuple[str, str]], tenants: Sequence[TenantSpec] = (), batching: BatchingSpec = SLO
) -> Scheduler:
    """Models m to p with a replica at each of these (model, slice)."""
    models = {name: served_model(name, slo_us=100_000, batching=batching) for name in NAMES}
    scheduler = Scheduler(models.values(), Limits(), {tenant.name: tenant for tenant in tenants})
    for model, slice_name in places:
        scheduler.replica_up(slice_name, model, replica_of(models[model], row_us=1000), 0)
    return scheduler


# who shares with whom


@given(homes, homes)
def test_models_are_grouped_with_those_they_share_slices_with_also_through_others(
    places: list[tuple[str, str]], gone: list[tuple[str, str]]
) -> None:
    scheduler = scheduler_of(places)
    for model, slice_name in gone:
        scheduler.replica_down(slice_name, model, "a", "gone", 0)
    left = set(places) - set(gone)
    joined = {name: {name} for name in NAMES}
    for slice_name in SLICES:
        members = [name for name in NAMES if (name, slice_name) in left]
        together = set[str]().union(*(joined[name] for name in members))
        joined |= dict.fromkeys(together, together)
    groups = [sorted(model.served.name for model in group) for group in scheduler._admission._grouped()]
    expected = {tuple(sorted(names)) for names in joined.values()}
    assert sorted(groups) == sorted(map(list, expected if places else ()))


needs = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["x", "y", "z"])),
    st.sampled_from([0.0, 0.2, 0.5, 1.0, 3.0]),
    max_size=8,
)
CLOSE = 1e-6


def shares_of(
    scheduler: Scheduler, wanted: Mapping[tuple[str, str], float], load: float
) -> dict[tuple[str, str], float]:
    """What is given of each flow's need, in slices' worth of time; by (model, tenant)."""
    for (model, tenant), need in wanted.items():
        scheduler._models[model].flow(tenant).need = need
    shares: dict[TenantFlow, float] = {}
    for group in scheduler._admission._grouped():
        shares |= scheduler._admission._shares(group, load)
    assert all(0 <= share <= 1 for share in shares.values())
    flows = {key: scheduler._models[key[0]].flow(key[1]) for key in wanted}
    return {key: shares[flow] * flow.need for key, flow in flows.items()}


@given(homes, needs, st.sampled_from([0.5, 1.0, 1.2]))
def test_nobody_is_given_more_than_slices_can_do_and_nobody_is_refused_what_they_could(
    places: list[tuple[str, str]], wanted: dict[tuple[str, str], float], load: float
) -> None:
    scheduler = scheduler_of(places)
    wanted = {key: need for key, need in wanted.items() if key[0] in {model for model, _ in places}}
    given_out = shares_of(scheduler, wanted, load)
    room = {name: load * len({s for m, s in places if m == name}) for name in NAMES}
    for name in NAMES:
        mine = [key for key in wanted if key[0] == name]
        assert sum(given_out[key] for key in mine) <= room[name] + CLOSE
    for group in scheduler._admission._grouped():
        names = {model.served.name for model in group}
        together = load * len({s for m, s in places if m in names})
        capped = sum(
            min(sum(need for key, need in wanted.items() if key[0] == name), room[name]) for name in names
        )
        total = sum(part for key, part in given_out.items() if key[0] in names)
        assert total == pytest.approx(min(capped, together))


def test_a_model_that_wants_more_than_its_own_slices_takes_nothing_from_those_that_are_within_theirs() -> (
    None
):
    scheduler = scheduler_of([("m", "s"), ("n", "t"), ("o", "s"), ("o", "t")])
    wanted = {("m", "x"): 50.0, ("n", "x"): 0.8, ("o", "x"): 0.2}
    assert shares_of(scheduler, wanted, 1.0) == pytest.approx({**wanted, ("m", "x"): 1.0})


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.1, 0.5, 1.0, 3.0, 9.0]),
            st.sampled_from([0.5, 1.0, 2.0]),
            st.sampled_from([0, 0, 1]),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_tenants_are_given_max_min_shares_by_weight_after_priority_whatever_models_they_use(
    asked: list[tuple[float, float, int]],
) -> None:
    tenants = [TenantSpec(f"t{number}", weight, level) for number, (_, weight, level) in enumerate(asked)]
    scheduler = scheduler_of([("m", "s"), ("n", "s")], tenants)
    wanted = {
        (model, tenant.name): need * part
        for tenant, (need, _, _) in zip(tenants, asked, strict=True)
        for model, part in (("m", 0.25), ("n", 0.75))
    }
    # A model alone may not want more than the slices can do either: here one does where tenants want much.
    lone = {name: sum(need for key, need in wanted.items() if key[0] == name) for name in "mn"}
    given_out = shares_of(scheduler, wanted, 1.0)
    totals = [given_out["m", tenant.name] + given_out["n", tenant.name] for tenant in tenants]
    if max(lone.values()) <= 1:
        assert totals == pytest.approx(allot([FlowDemand(*each) for each in asked], 1.0))
    for (need, _, level), part in zip(asked, totals, strict=True):
        if part < need - CLOSE:
            lower = [p for (_, _, other), p in zip(asked, totals, strict=True) if other < level]
            assert sum(lower) < CLOSE


# who is turned away, in virtual time

CAPACITY = 600.0  # rows a second of one slice within 25 ms, of the model that World describes
FRESH_US = 2_000_000


class Told(Run):
    """Counts outcomes by tenant, once the rates are known."""

    def __init__(self, world: World) -> None:
        self.ended: dict[str, Counter[Outcome]] = {}
        self.retries_us: list[int] = []
        super().__init__(world)

    def answered(self, answer: Answer, now_us: int) -> None:
        request = answer.request
        if request.arrived_us >= FRESH_US:
            in_time = answer.outcome is not COMPLETED or now_us <= request.deadline_us
            self.ended.setdefault(request.tenant, Counter())[answer.outcome] += in_time

    def share(self, tenant: str, *kinds: Outcome) -> float:
        """Of the tenant's requests that ended so."""
        ended = self.ended[tenant]
        return sum(ended[outcome] for outcome in kinds) / ended.total()


def played(rates: Mapping[str, float], *tenants: TenantSpec, seconds: float = 6, slices: int = 1) -> Told:
    """Tenants that offer rows at these rates (a second), evenly spaced, to one model."""
    run = Told(World(SLO, slices=slices, tenants=tenants))
    arrivals = [
        Arrival(int(number * 1e6 / rate) + place + 1, 0, tenant=tenant)
        for place, (tenant, rate) in enumerate(rates.items())
        for number in range(int(rate * seconds))
    ]
    run.play(sorted(arrivals))
    return run


def test_below_capacity_nobody_is_turned_away() -> None:
    run = played({"x": 200.0, "y": 250.0}, TenantSpec("x"), TenantSpec("y"))
    for tenant in "xy":
        assert run.share(tenant, COMPLETED) > 0.99


@pytest.mark.slow
def test_at_twice_the_capacity_all_that_comes_is_needed_to_fill_batches() -> None:
    """A batch takes only what came in the last SLO less its own time: to refuse early would empty batches."""
    run = played({DEFAULT_TENANT: 2 * CAPACITY})
    assert run.ended[DEFAULT_TENANT][QUOTA] == 0
    assert run.share(DEFAULT_TENANT, COMPLETED) > 1 / 2


@pytest.mark.slow
@pytest.mark.parametrize("excess", [4, 8])
def test_a_single_tenant_over_capacity_is_overload_and_what_is_admitted_is_answered(excess: int) -> None:
    run = played({DEFAULT_TENANT: excess * CAPACITY})
    ended = run.ended[DEFAULT_TENANT]
    assert ended[QUOTA] == 0
    assert ended[OVERLOAD] > 0
    assert 0.8 / excess < run.share(DEFAULT_TENANT, COMPLETED) < 1.6 / excess


def test_who_stays_within_its_share_is_served_and_who_does_not_is_over_its_quota() -> None:
    run = played({"modest": 150.0, "greedy": 4 * CAPACITY}, TenantSpec("modest"), TenantSpec("greedy"))
    assert run.share("modest", COMPLETED) > 0.95
    assert run.ended["modest"][QUOTA] == run.ended["modest"][OVERLOAD] == 0
    assert run.ended["greedy"][QUOTA] > 0
    assert run.ended["greedy"][OVERLOAD] == 0


@pytest.mark.slow
def test_where_all_are_over_their_share_it_is_overload_and_weights_say_who_is_served() -> None:
    run = played(
        {"light": 3 * CAPACITY, "heavy": 3 * CAPACITY}, TenantSpec("light"), TenantSpec("heavy", 3.0)
    )
    assert run.ended["light"][QUOTA] == run.ended["heavy"][QUOTA] == 0
    ratio = run.ended["heavy"][COMPLETED] / run.ended["light"][COMPLETED]
    assert 2.2 < ratio < 4.2


def test_the_higher_priority_is_served_first() -> None:
    run = played(
        {"first": 0.6 * CAPACITY, "last": 2 * CAPACITY}, TenantSpec("first", 1.0, 1), TenantSpec("last")
    )
    assert run.share("first", COMPLETED) > 0.95
    assert run.ended["last"][QUOTA] > 0


def test_who_is_not_listed_is_as_a_tenant_of_weight_one() -> None:
    run = played({"stranger": 2 * CAPACITY, "listed": 100.0}, TenantSpec("listed"))
    assert run.share("listed", COMPLETED) > 0.95
    assert run.ended["stranger"][QUOTA] > 0


def test_a_tenant_that_has_gone_shares_nothing_any_more() -> None:
    """One request half a minute ago does not make all that the other is refused a matter of its quota."""
    run = Told(World(SLO, tenants=(TenantSpec("gone"), TenantSpec("here"))))
    later = [Arrival(30_000_000 + 550 * number, 0, tenant="here") for number in range(5000)]
    run.play([Arrival(1, 0, tenant="gone"), *later])
    assert run.ended["here"][OVERLOAD] > 0
    assert run.ended["here"][QUOTA] == 0


def test_a_slice_that_cannot_be_counted_on_has_no_room_to_share() -> None:
    scheduler = scheduler_of([("m", "s"), ("m", "t")])
    wanted = {("m", "x"): 5.0}
    assert shares_of(scheduler, wanted, 1.0) == pytest.approx({("m", "x"): 2.0})
    scheduler._slices["t"].suspect = True
    assert shares_of(scheduler, wanted, 1.0) == pytest.approx({("m", "x"): 1.0})


# each request by itself


def slo_scheduler(*slices: str, batch_max: int = 4, limits: Limits | None = None) -> Scheduler:
    """A row takes 1 ms."""
    model = served_model(batch_max=batch_max, slo_us=100_000, batching=SLO)
    return scheduler_on(*slices, model=model, limits=limits, row_us=1000)


@pytest.mark.parametrize(
    ("slices", "now_us", "slack_us"),
    [
        (("s",), 100, 900 + 1000),  # after the batch that runs
        (("s",), 3000, 2000 + 1000),  # which is late by 2 ms: by as much again
        (("s", "t"), 100, 1000),  # on the other slice, at once
    ],
)
def test_only_what_could_not_be_in_time_even_if_it_ran_next_is_unreachable(
    slices: tuple[str, ...], now_us: int, slack_us: int
) -> None:
    scheduler = slo_scheduler(*slices)
    send(scheduler, request_of(1, slack_us=90_000))
    late = request_of(2, arrived_us=now_us, slack_us=slack_us - 1)
    (answer,) = only(scheduler.arrive(late, now_us), Answer)
    assert answer.outcome is DEADLINE_UNREACHABLE
    assert (
        answer.detail
        == f"m could not answer within {(slack_us - 1) / 1000:g} ms even if the request ran next"
    )
    assert scheduler.arrive(request_of(3, arrived_us=now_us, slack_us=slack_us), now_us) == ()


def test_rows_that_would_take_longer_than_a_batch_may_be_late_are_refused_as_too_many() -> None:
    model = served_model(slo_us=60_000_000, batch_max=4)
    scheduler = scheduler_on("s", model=model, row_us=1000, limits=Limits(stall_us=100_000))
    (answer,) = only(scheduler.arrive(request_of(1, rows=101, slack_us=50_000_000), 0), Answer)
    assert (answer.outcome, answer.retry_us) == (TOO_LARGE, 0)
    assert answer.detail == (
        "the 101 rows of this request would take m 0.1 s, which is more than one request may"
        " (limits.stall_s); send fewer rows at once"
    )
    assert only(scheduler.arrive(request_of(2, rows=100, slack_us=50_000_000), 0), Answer) == []


def test_a_single_row_may_take_as_long_as_it_takes() -> None:
    model = served_model(slo_us=60_000_000, batch_max=4)
    scheduler = scheduler_on("s", model=model, row_us=200_000, limits=Limits(stall_us=100_000))
    assert only(scheduler.arrive(request_of(1, slack_us=50_000_000), 0), Answer) == []


def test_when_a_replica_comes_or_goes_what_is_in_time_is_looked_at_anew() -> None:
    model = served_model(slo_us=100_000, batching=SLO)
    scheduler = scheduler_on("s", model=model, row_us=1000)
    ended = []
    for request_id, row_us in enumerate((None, 50.0, None)):
        if row_us is not None:
            scheduler.replica_up("t", "m", replica_of(model, row_us=row_us), 0)
        elif request_id:
            scheduler.slice_down("t", "ended", 0)
        ended.append(only(scheduler.arrive(request_of(request_id, slack_us=500), 0), Answer))
        scheduler.cancel(request_id)
    assert [[answer.outcome for answer in answers] for answers in ended] == [
        [DEADLINE_UNREACHABLE],
        [],
        [DEADLINE_UNREACHABLE],
    ]


def test_what_is_in_time_follows_what_batches_take() -> None:
    scheduler = slo_scheduler("s")
    now_us = 0
    for request_id in range(40):  # they take twice what the profile says
        now_us += 20_000
        (batch,) = send(scheduler, request_of(request_id, arrived_us=now_us, slack_us=90_000), now_us=now_us)
        scheduler.batch_done(batch.id, 2000, now_us + 2000)
    now_us += 60_000
    late = request_of(1000, arrived_us=now_us, slack_us=1900)
    assert outcomes(scheduler.arrive(late, now_us)) == {1000: DEADLINE_UNREACHABLE}


def test_who_may_come_back_is_told_when_and_the_later_the_more_waits() -> None:
    scheduler = slo_scheduler("s", limits=Limits(queue_requests=40))
    send(scheduler, request_of(1, slack_us=90_000))
    told_us = []
    for request_id in range(2, 42):
        (answer,) = only(scheduler.arrive(request_of(1000 + request_id, slack_us=1), 0), Answer)
        assert answer.outcome is DEADLINE_UNREACHABLE
        told_us.append(answer.retry_us)
        assert scheduler.arrive(request_of(request_id, slack_us=90_000), 0) == ()
    assert told_us[0] >= RETRY_US_MIN
    assert told_us == sorted(told_us)
    assert told_us[-1] >= told_us[0] + 30_000, "39 rows of 1 ms wait"
    (full,) = only(scheduler.arrive(request_of(99, slack_us=90_000), 0), Answer)
    assert (full.outcome, full.retry_us >= told_us[-1]) == (QUEUE_FULL, True)


def test_who_finds_no_replica_or_a_gateway_that_stops_is_told_as_much_as_is_known() -> None:
    scheduler = slo_scheduler("s")
    scheduler.slice_down("s", "killed", 0)
    (absent,) = only(scheduler.arrive(request_of(1), 0), Answer)
    assert (absent.outcome, absent.retry_us) == (NO_REPLICA, RESTART_US)
    scheduler.drain()
    (stopping,) = only(scheduler.arrive(request_of(2), 0), Answer)
    assert (stopping.outcome, stopping.retry_us) == (DRAINING, 0)


@pytest.mark.parametrize("policy", ["static", "aimd"])
def test_a_policy_that_promises_nothing_refuses_nobody_for_what_could_be_expected(policy: str) -> None:
    roomy = Limits(queue_requests=10**6, queue_rows=10**6)
    model = served_model(slo_us=10_000, batching=BatchingSpec(policy))
    scheduler = scheduler_on("s", model=model, limits=roomy, row_us=1000)
    for number in range(3000):
        now_us = 100 * number
        assert scheduler.arrive(request_of(number, 4, now_us, slack_us=number % 50), now_us) == ()


@pytest.mark.slow
def test_a_static_model_beside_an_slo_model_is_not_thinned_with_it() -> None:
    models = {"m": served_model("m", batching=SLO), "n": served_model("n", batching=BatchingSpec("static"))}
    scheduler = Scheduler(models.values(), Limits(queue_requests=10**6, queue_rows=10**6))
    for name, model in models.items():
        scheduler.replica_up("s", name, replica_of(model, row_us=1000), 0)
    refused = Counter[str]()
    for number in range(4000):
        now_us = 50 * number
        request = request_of(number, arrived_us=now_us, slack_us=200_000)
        request.model = "mn"[number % 2]
        refused[request.model] += bool(scheduler.arrive(request, now_us))
        if scheduler.wake_us <= now_us:
            scheduler.wake(now_us)
    assert refused["n"] == 0
    assert refused["m"] > 0


def test_while_in_doubt_nobody_is_turned_away_for_what_could_be_expected() -> None:
    """Nothing has come back for a second: the only way to learn how long a batch takes is to let one in."""
    scheduler = slo_scheduler("s")
    now_us = TRY_US
    assert scheduler.arrive(request_of(1, arrived_us=now_us, slack_us=0), now_us) == ()
    (batch,) = only(scheduler.wake(now_us), RunBatch)
    scheduler.batch_done(batch.id, 1000, now_us + 1000)
    now_us += 60_000
    assert scheduler.arrive(request_of(2, arrived_us=now_us, slack_us=0), now_us) == ()  # a review is due
    scheduler.wake(now_us)
    ended = outcomes(scheduler.arrive(request_of(3, arrived_us=now_us, slack_us=0), now_us))
    assert ended == {3: DEADLINE_UNREACHABLE}


def test_a_model_without_slices_asks_for_nothing_and_stands_in_nobodys_way() -> None:
    scheduler = scheduler_of([("m", "s"), ("n", "t"), ("m", "t")])
    for number in range(100):
        request = request_of(number, slack_us=100_000)
        request.model = "m" if number % 10 else "n"
        scheduler.arrive(request, 0)
    scheduler.replica_down("t", "m", "a", "gone", 100)
    scheduler.slice_down("s", "killed", 100)
    request = request_of(1000, arrived_us=60_000, slack_us=100_000)
    request.model = "n"
    assert scheduler.arrive(request, 60_000) == ()
    assert scheduler._models["m"].flow(DEFAULT_TENANT).need == 0
    assert scheduler._models["n"].flow(DEFAULT_TENANT).share == 1


def test_every_request_counts_as_offered_load_whatever_refuses_it() -> None:
    def rate_after(scheduler: Scheduler, *refused: Outcome) -> float:
        requests = [request_of(number, rows=2) for number in range(1, 5)]
        for request in requests:
            request.payload_bytes = 60
        found = [answer.outcome for each in requests for answer in only(scheduler.arrive(each, 0), Answer)]
        assert tuple(found) == refused
        (flow,) = scheduler._models["m"].flows.values()
        return flow.rate.peak(1)

    expected = rate_after(scheduler_on("s"))
    assert expected > 0
    assert rate_after(scheduler_on("s", limits=Limits(held_bytes=100)), *[MEMORY_FULL] * 3) == expected
    assert rate_after(Scheduler([served_model()], Limits()), *[NO_REPLICA] * 4) == expected
    draining = scheduler_on("s")
    draining.drain()
    assert rate_after(draining, *[DRAINING] * 4) == expected
    retired = scheduler_on("s")
    retired.retire("m")
    assert rate_after(retired, *[NO_REPLICA] * 4) == expected


def test_what_an_edge_has_no_room_for_counts_as_offered_load_too() -> None:
    refused, asked = scheduler_on("s"), scheduler_on("s")
    for number in range(1, 5):
        refused.offer("m", "default", 0)
        asked.arrive(request_of(number), 0)
    refused.offer("unloaded by now", "default", 0)
    rates = [each._models["m"].flows["default", None, 0].rate.peak(1) for each in (refused, asked)]
    assert rates[0] == rates[1] > 0
    assert refused._models["m"].forecast.arrivals == asked._models["m"].forecast.arrivals == 4
