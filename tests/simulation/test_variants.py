"""Several variants of a model, in virtual time: who answers as the load comes and goes, and who never may."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.virtual.virtual_world import (
    Run,
    VirtualModel,
    VirtualVariant,
    World,
    accuracy_served,
    good_share,
    offer,
    offer_steps,
)
from serving.scheduler.commands import Answer, RunBatch
from serving.simulation.devices.faults import Fault
from serving.simulation.traffic.arrivals import Arrival
from serving.simulation.traffic.patterns import RateStep
from serving.values.objectives import CHEAPEST, Needs
from serving.values.specs import BatchingSpec, TenantSpec
from serving.values.vocabulary import COMPLETED
from tests.seeds import drawn, some
from tests.simulation.catalogue import SETTLED

pytestmark = pytest.mark.in_turn(2)

TOP, MIDDLE, BOTTOM = LADDER = (
    ("top", 0.99, 1500.0, 4000.0), ("middle", 0.96, 700.0, 2000.0), ("bottom", 0.9, 250.0, 1000.0),
)  # fmt: skip
CAPACITY = (
    500  # requests/s that the top one carries in 50 ms on a slice, 99 % in time; the bottom one 7 times
)
MODEL = VirtualModel(50_000, variants=LADDER)
WORLD = replace(SETTLED, unlike=(MODEL,))
ROUNDING = 1e-9


class Watched(Run):
    """A run that keeps what was answered by whom in each second, and that no variant runs what it may not."""

    def __init__(self, world: World, seed: int = 0, faults: Sequence[Fault] = ()) -> None:
        self.rows: dict[int, Counter[str]] = defaultdict(Counter)
        self.computed: dict[int, Counter[str]] = defaultdict(Counter)  # by request
        self.answers: dict[int, int] = {}  # rows, by request
        super().__init__(world, seed, faults)

    def ran(self, batch: RunBatch, start_us: int, end_us: int) -> None:
        for piece in batch.pieces:
            self.computed[piece.request.id][batch.variant] += piece.rows
            served = next(model for model in self.site.served if model.name == batch.model)
            promised = served.objective(piece.request.tier)
            assert batch.variant in promised.variants
            assert (served.accuracy(batch.variant) or 0.0) >= promised.accuracy_min - ROUNDING

    def answered(self, answer: Answer, now_us: int) -> None:
        if answer.outcome is COMPLETED:
            self.answers[answer.request.id] = answer.request.rows
            for variant, rows in self.parts_of(answer):
                self.rows[answer.request.arrived_us // 1_000_000][variant] += rows

    def accuracy(self, seconds: Iterable[int]) -> float:
        """The mean of the rows that came in these seconds."""
        rows: Counter[str] = sum((self.rows[second] for second in seconds), Counter())
        known = {name: accuracy for name, accuracy, _, _ in self.world.each[0].variants}
        return sum(known[name] * count for name, count in rows.items()) / rows.total()


@pytest.mark.parametrize("gap_cv", [1.0, 2.0])
@pytest.mark.parametrize("seed", some(range(2)))
@pytest.mark.slow
def test_on_a_ramp_all_is_in_time_and_accuracy_goes_down_with_the_load_and_comes_back(
    seed: int, gap_cv: float
) -> None:
    loads, each_s = (0.3, 1, 2, 3, 2, 1, 0.3, 0.3), 4
    world = replace(WORLD, gap_cv=gap_cv)
    run = Watched(world, seed)
    tally = run.play(offer_steps(world, [RateStep(CAPACITY * load, each_s) for load in loads], seed))
    assert tally.attainment >= 0.99
    steps = [run.accuracy(range(each_s * place, each_s * (place + 1))) for place in range(len(loads))]
    up, down = steps[:4], steps[3:7]
    assert all(later < sooner - 0.01 for sooner, later in pairwise(up[1:]))
    assert all(later > sooner for sooner, later in pairwise(down))
    assert steps[0] > 0.985
    assert steps[7] > 0.985
    assert steps[3] > 0.93  # better than the bottom one, though it alone would be in time
    peak_s, calm_s = each_s * 3, each_s * 6
    assert run.accuracy([peak_s + 1]) < 0.95
    assert run.accuracy([calm_s + 3]) > 0.985


@pytest.mark.parametrize("load", [0.3, 0.9, 1.5, 3, 5, 9])
@pytest.mark.slow
def test_it_is_never_worse_than_the_best_or_the_quickest_variant_alone(load: float) -> None:
    good, accuracy, _ = accuracy_served(WORLD, CAPACITY * load, 6, 2)
    for variant in (TOP, BOTTOM):
        alone = replace(WORLD, unlike=(replace(MODEL, variants=(variant,)),))
        others, fixed, _ = accuracy_served(alone, CAPACITY * load, 6, 2)
        assert good * accuracy >= 0.99 * others * fixed
        assert good >= 0.98 * others
        assert accuracy >= fixed - ROUNDING or variant is TOP


def test_without_pressure_the_most_accurate_answers_all() -> None:
    good, accuracy, shares = accuracy_served(WORLD, 0.3 * CAPACITY, 3, 1)
    assert (good, shares) == (1.0, {"top": 1.0})
    assert accuracy == pytest.approx(0.99)


def test_a_model_that_is_promised_nothing_is_answered_by_its_default_variant_only() -> None:
    world = replace(WORLD, unlike=(replace(MODEL, needs=Needs()),))
    _, _, shares = accuracy_served(world, 2 * CAPACITY, 2, 1)
    assert shares == {"top": 1.0}


@pytest.mark.slow
def test_below_its_floor_a_request_is_refused_rather_than_answered() -> None:
    needs = Needs("gold", accuracy_min=0.95)
    world = replace(WORLD, unlike=(replace(MODEL, tiers=(needs,)),), tier_mix=(("gold", 1.0),))
    good, accuracy, shares = accuracy_served(world, 5 * CAPACITY, 4, 1)
    assert set(shares) <= {"top", "middle"}
    assert accuracy >= 0.95
    alone = replace(WORLD, unlike=(replace(MODEL, variants=(MIDDLE,)),))
    assert good >= 0.95 * good_share(alone, 5 * CAPACITY, 4, 1) > 0.3


def test_the_cheapest_that_keeps_the_floor_answers_whoever_asks_for_it() -> None:
    tiers = (Needs("cheap", tolerance=0.05, optimize=CHEAPEST),)
    world = replace(
        WORLD, unlike=(replace(MODEL, tiers=tiers),), tier_mix=(("cheap", 0.5), ("", 0.5)), settle_us=0
    )
    run = Watched(world)
    run.play(offer(world, 0.4 * CAPACITY, 2, 0))
    answered: Counter[tuple[str, ...]] = Counter(tuple(each) for each in run.computed.values())
    assert set(answered) == {("middle",), ("top",)}
    assert answered[("middle",)] / answered.total() == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow
def test_two_models_on_a_slice_step_down_and_both_keep_their_promise() -> None:
    for slo_us in (50_000, 150_000):
        world = replace(SETTLED, unlike=(MODEL, replace(MODEL, slo_us=slo_us)))
        for load in (1.5, 5, 3):
            tally = Run(world).play(offer(world, load * CAPACITY, 6, 0))
            assert tally.attainment >= 0.99
        for model in ("m0", "m1"):
            rows = {name: count for (of, name), count in tally.answered_rows.items() if of == model}
            assert rows.get("top", 0) < 0.2 * sum(rows.values())


@pytest.mark.slow
def test_a_neighbour_that_cannot_step_down_keeps_its_promise_beside_one_that_can() -> None:
    fixed = VirtualModel(100_000, alpha_us=1000, beta_us=2000)
    world = replace(SETTLED, unlike=(MODEL, fixed))
    run = Run(world)
    tally = run.play(offer(world, 1.6 * CAPACITY, 6, 0))  # half of them for each: 0.8 of the top one alone
    assert tally.attainment >= 0.99
    assert tally.answered_rows["m0", "top"] < 0.9 * sum(
        count for (of, _), count in tally.answered_rows.items() if of == "m0"
    )


accuracies = st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99])
variants = st.lists(
    st.tuples(accuracies, st.integers(1, 20), st.integers(0, 10)),
    min_size=1,
    max_size=4,
    unique_by=lambda each: each[0],
)


@st.composite
def models(draw: st.DrawFn) -> VirtualModel:
    rungs: list[VirtualVariant] = [
        (f"v{place}", accuracy, 100.0 * alpha, 1000.0 * beta)
        for place, (accuracy, alpha, beta) in enumerate(draw(variants))
    ]
    best = max(accuracy for _, accuracy, _, _ in rungs)
    floors = st.floats(0.0, best)
    goals = st.sampled_from(["", "most_accurate", "cheapest", "balanced"])
    own = Needs(accuracy_min=draw(st.none() | floors), optimize=draw(goals))
    tiers = (
        Needs("gold", slo_us=draw(st.sampled_from([None, 20_000])), accuracy_min=draw(floors)),
        Needs("loose", tolerance=draw(st.floats(0.0, 1.0)), optimize=draw(goals)),
    )
    return VirtualModel(
        draw(st.sampled_from([10_000, 50_000, 200_000])), variants=tuple(rungs), needs=own, tiers=tiers
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    return World(
        BatchingSpec(draw(st.sampled_from(["slo", "slo", "static", "symphony", "nexus", "clockwork"]))),
        slices=draw(st.integers(1, 2)),
        unlike=tuple(draw(st.lists(models(), min_size=1, max_size=2))),
        gap_cv=draw(st.sampled_from([0.5, 1.0, 3.0])),
        row_mix=((1, 0.5), (8, 0.3), (100, 0.2)),
        tier_mix=(("", 0.4), ("gold", 0.4), ("loose", 0.2)),
        learned=draw(st.booleans()),
    )


@given(worlds(), st.sampled_from([20, 200, 1000]), st.integers(0, 99), st.booleans())
@settings(max_examples=drawn(40))
@pytest.mark.slow
def test_no_answer_is_below_its_floor_and_each_is_counted_for_who_computed_it(
    world: World, rate: float, seed: int, crash: bool
) -> None:
    run = Watched(world, seed, [Fault(300_000, "s0")] if crash else [])  # Watched looks at each batch
    arrivals = list(offer(world, rate, 1, seed))
    tally = run.play(arrivals)
    assert sum(tally.outcomes.values()) == tally.offered == len(arrivals)
    assert sum(tally.answered_rows.values()) == sum(run.answers.values())
    if not crash:  # then what a worker took with it was computed twice
        computed = sum((run.computed[each] for each in run.answers), Counter[str]())
        counted = Counter[str]()
        for (_, variant), rows in tally.answered_rows.items():
            counted[variant] += rows
        assert counted == computed


def test_a_request_in_several_pieces_may_be_answered_by_several_and_each_part_counts() -> None:
    world = replace(WORLD, settle_us=0)
    run = Watched(world)
    busy = [Arrival(1 + 2000 * count, 0, 4) for count in range(300)]
    tally = run.play(
        sorted([*busy, *(Arrival(at_us, 0, 90, slack_us=400_000) for at_us in (200_000, 400_000))])
    )
    large = [each for each, rows in run.answers.items() if rows == 90]
    assert len(large) == 2
    assert any(len(run.computed[each]) > 1 for each in large)
    assert all(run.computed[each].total() == 90 for each in large)
    assert sum(tally.answered_rows.values()) == 300 * 4 + 180


def test_an_unknown_tier_is_the_models_own_and_a_tenants_is_that_of_its_requests_that_ask_for_none() -> None:
    cheap = Needs("cheap", optimize=CHEAPEST)
    shop = TenantSpec("shop", tier="cheap")
    world = replace(WORLD, unlike=(replace(MODEL, tiers=(cheap,)),), tenants=(shop,), settle_us=0)
    run = Watched(world)
    run.play(
        [
            Arrival(1, 0),
            Arrival(100_001, 0, tier="gone"),
            Arrival(200_001, 0, tenant="shop"),
            Arrival(300_001, 0, tenant="shop", tier="gone"),
            Arrival(400_001, 0, tier="cheap"),
            Arrival(500_001, 0, variant="middle"),
        ]
    )
    assert [next(iter(run.computed[each])) for each in range(1, 7)] == [
        "top", "top", "bottom", "top", "bottom", "middle",
    ]  # fmt: skip
