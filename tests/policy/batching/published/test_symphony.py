"""What `symphony` promises: a candidate waits exactly as long as its mode says, and is then formed anew."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.batching.published.symphony import BETA_LAMBDA, FRONTRUN, LATEST, Symphony
from serving.policy.batching.published.window_drop import WindowDrop
from serving.values.vocabulary import NEVER_US
from tests.policy.views import (
    NOW_US,
    ArrivalSeen,
    LaneSeen,
    PieceSeen,
    QueueSeen,
    ReplicaSeen,
    lanes,
    queues,
    replicas,
)

SECOND_US = 1_000_000
SLO_US = 100_000
RESNET = ReplicaSeen({0: 64}, row_us=1080, base_us=5200)
devices = st.builds(replace, replicas, base_us=st.sampled_from([0.0, 2.0]))
modes = st.sampled_from([FRONTRUN, LATEST, BETA_LAMBDA])


def waiting_rows(rows: int, now_us: int) -> QueueSeen:
    return QueueSeen((LaneSeen((PieceSeen(1, now_us + SLO_US, now_us),) * rows),), {"a": RESNET})


@given(st.integers(1, 40), st.integers(0, 2000), st.none() | st.integers(0, 2000))
def test_frontrun_waits_until_one_row_more_could_not_be_served_and_latest_for_itself(
    rows: int, guard_us: int, measured_us: int | None
) -> None:
    view = replace(waiting_rows(rows, NOW_US), lateness_us=measured_us)
    late_us = guard_us if measured_us is None else measured_us
    for mode, more in ((FRONTRUN, 1), (LATEST, 0)):
        choice = Symphony(SLO_US, guard_us, mode).choose(view, NOW_US)
        start_us = NOW_US + SLO_US - late_us - RESNET.predict_us(rows + more, 0)
        assert choice.lane is None
        assert choice.wake_us == int(start_us)


@given(lanes, devices, modes)
def test_a_candidate_that_waits_for_the_announced_instants_runs_in_time(
    lane: LaneSeen, replica: ReplicaSeen, mode: str
) -> None:
    policy, now_us, waited = Symphony(40, 0, mode), NOW_US, False
    while True:
        choice = policy.choose(QueueSeen((lane,), dict.fromkeys(lane.variants, replica)), now_us)
        if choice.lane is not None:
            break
        assert now_us < choice.wake_us <= max(lane.pieces[0].deadline_us, now_us + 1)
        now_us, waited = choice.wake_us, True
        lane = replace(lane, pieces=in_time_alone(lane, replica, now_us))
    if waited:
        finish_us = now_us + replica.predict_us(choice.rows, lane.size)
        assert all(finish_us <= piece.deadline_us for piece in choice.pieces)


def in_time_alone(lane: LaneSeen, replica: ReplicaSeen, now_us: int) -> tuple[PieceSeen, ...]:
    """What is left of a lane when the hopeless has been given up."""
    late = [piece.deadline_us < now_us + replica.typical_us(piece.rows, piece.size) for piece in lane.pieces]
    return lane.pieces[late.index(False) :]


@given(st.integers(1, 30), st.integers(500, 20_000))
def test_beta_lambda_goes_when_waiting_for_a_row_costs_more_than_it_saves_else_it_is_frontrun(
    rows: int, gap_us: int
) -> None:
    view, due = waiting_rows(rows, SECOND_US), {}
    for mode in (BETA_LAMBDA, FRONTRUN):
        policy = Symphony(SLO_US, 0, mode)
        for now_us in range(0, SECOND_US + 1, gap_us):
            policy.on_arrival(ArrivalSeen(), now_us)
        due[mode] = policy.choose(view, SECOND_US).lane is not None
    pays = RESNET.base_us / gap_us  # beta * lambda
    if abs(rows - pays) > 0.15 * pays:  # the rate is measured
        assert due[BETA_LAMBDA] == (rows > pays or due[FRONTRUN])


@given(lanes, devices, modes)
def test_a_batch_that_cannot_grow_goes_at_once(lane: LaneSeen, replica: ReplicaSeen, mode: str) -> None:
    policy = Symphony(40, 0, mode)
    closed = replace(lane, closed=True)
    assert policy.choose(QueueSeen((closed,), dict.fromkeys(lane.variants, replica)), NOW_US).lane is closed
    full = replace(lane, pieces=(PieceSeen(1, NOW_US + 90),) * replica.rows_max(lane.bucket))
    assert policy.choose(QueueSeen((full,), dict.fromkeys(lane.variants, replica)), NOW_US).lane is full


@given(st.integers(1, 15), st.integers(2, 16), st.sampled_from([FRONTRUN, LATEST]))
def test_a_batch_that_the_next_request_does_not_fit_into_goes_at_once(
    rows: int, next_rows: int, mode: str
) -> None:
    device = replace(RESNET, limits={0: 16})
    pieces = tuple(PieceSeen(each, NOW_US + SLO_US, NOW_US) for each in (rows, next_rows))
    choice = Symphony(SLO_US, 0, mode).choose(QueueSeen((LaneSeen(pieces),), {"a": device}), NOW_US)
    if rows + next_rows > 16:
        assert choice.pieces == pieces[:1]
    else:
        assert (choice.lane is None) == (rows + next_rows < 16)


@given(queues, modes)
def test_what_runs_is_the_window_drop_s_batch(view: QueueSeen, mode: str) -> None:
    for lane in view.lanes:
        alone = replace(view, lanes=(lane,))
        choice = Symphony(40, 0, mode).choose(alone, NOW_US)
        if choice.lane is not None:
            assert choice == WindowDrop(40).choose(alone, NOW_US)


@given(queues, modes)
def test_of_the_candidates_whose_time_has_come_the_least_latest_start_goes(
    view: QueueSeen, mode: str
) -> None:
    policy = Symphony(40, 0, mode)
    alone = [policy.choose(replace(view, lanes=(lane,)), NOW_US) for lane in view.lanes]
    due = [choice for choice in alone if choice.lane is not None]
    chosen = policy.choose(view, NOW_US)
    if due:
        assert chosen == min(due, key=lambda choice: choice.latest_start_us)
    else:
        assert chosen.wake_us == min((choice.wake_us for choice in alone), default=NEVER_US)
