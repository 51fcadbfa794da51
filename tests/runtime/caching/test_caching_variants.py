"""The cache where several variants may answer: a kept answer is no worse than what would be computed, never
below what a call asks for, and gives way to a better one only."""

from dataclasses import replace
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.cache.entries import KeptAnswer, entry_of
from serving.cache.spec import CacheSpec
from serving.ports import Call, Reply
from serving.runtime.caching.caching import CachedServing
from serving.runtime.calls.pending_calls import describe
from serving.values.objectives import Needs
from serving.values.specs import BatchingSpec, ServedModel
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED, Downgrade
from tests.builders import graded
from tests.runtime.caching.test_searching_histories import Scripted
from tests.runtime.ground import Ground, turn
from tests.seeds import drawn

SHARES: dict[str, float | None] = {"large": 0.95, "base": 0.9, "tiny": 0.8}
TIERS = (Needs("gold", accuracy_min=0.94), Needs("cheap", accuracy_min=0.85, optimize="cheapest"))
MODEL = replace(graded(SHARES, Needs(tolerance=1.0), TIERS, BatchingSpec("static", size=1)), cache=True)


class Ladder(Ground):
    """A gateway on whose slice variants come and go, before it a cache."""

    def __init__(self, model: ServedModel = MODEL, *variants: str) -> None:
        super().__init__(model)
        self.model = model
        self.cached = CachedServing(self.gateway, CacheSpec(), self.tally)
        self.count = 0
        self.live: set[str] = set()
        for variant in variants:
            self.up(variant)

    def up(self, variant: str) -> None:
        if variant not in self.live:
            self.count += 1
            self.live.add(variant)
            self.route("m", self.count, variant)

    def down(self, variant: str) -> None:
        if variant in self.live:
            self.live.discard(variant)
            self.gateway.replica_down("s", "m", variant, "was unloaded")

    def call(self, tier: str = "", floor: float = 0.0, variant: str = "", question: int = 0) -> Call:
        tensor = Tensor("X", "FP32", (1, 4), question.to_bytes(4, "little") * 4)
        call = Call(self.model, [tensor], 1)
        call.objective, call.variant = self.model.objective(tier, floor), variant
        return call

    def start(self, call: Call) -> list[Reply]:
        """What is told to this call, when it is."""
        told: list[Reply] = []
        self.cached.submit(call, told.append)
        return told

    async def ask(self, call: Call) -> Reply:
        told = self.start(call)
        await turn()
        while self.bench.running:
            self.finish()
        (reply,) = told
        assert reply.outcome is COMPLETED
        return reply


def facts(reply: Reply) -> tuple[str, str, float | None]:
    return reply.cache, reply.variant, reply.accuracy


async def test_a_kept_answer_names_its_variant_and_accuracy_and_is_no_downgrade() -> None:
    here = Ladder(MODEL, "large")
    assert facts(await here.ask(here.call())) == ("miss", "large", 0.95)
    reply = await here.ask(here.call())
    assert (facts(reply), reply.downgrade) == (("hit", "large", 0.95), "")


async def test_a_lesser_answer_is_given_again_while_nothing_better_would_be_computed() -> None:
    here = Ladder(MODEL, "tiny")
    assert facts(await here.ask(here.call())) == ("miss", "tiny", 0.8)
    assert facts(await here.ask(here.call())) == ("hit", "tiny", 0.8)


async def test_a_lesser_answer_makes_room_for_the_better_one_that_would_be_computed_now() -> None:
    here = Ladder(MODEL, "tiny")
    await here.ask(here.call())
    here.up("large")
    assert facts(await here.ask(here.call())) == ("miss", "large", 0.95)
    here.down("large")
    assert facts(await here.ask(here.call())) == ("hit", "large", 0.95), "better than what could be computed"


async def test_no_lesser_answer_takes_the_place_of_a_better_one() -> None:
    here = Ladder(MODEL, "base")
    await here.ask(here.call())
    here.up("large")
    here.up("tiny")
    here.start(here.call(variant="tiny", question=1))  # the slice is busy
    told = here.start(here.call())  # a miss, as large would answer
    here.down("base")
    here.down("large")  # but it goes before the batch is formed
    await turn()
    while here.bench.running:
        here.finish()
    assert [facts(reply) for reply in told] == [("miss", "tiny", 0.8)]
    assert facts(await here.ask(here.call())) == ("hit", "base", 0.9)


async def test_a_call_is_never_answered_from_below_its_floor_and_shares_with_its_like() -> None:
    here = Ladder(MODEL, "tiny", "large")
    here.down("large")
    assert facts(await here.ask(here.call())) == ("miss", "tiny", 0.8)
    here.up("base")
    assert facts(await here.ask(here.call(floor=0.9))) == ("miss", "base", 0.9)
    assert facts(await here.ask(here.call(floor=0.89))) == ("hit", "base", 0.9), "the same may answer"


async def test_a_pinned_variants_answers_are_its_own() -> None:
    here = Ladder(MODEL, "tiny", "large")
    assert facts(await here.ask(here.call())) == ("miss", "large", 0.95)
    assert facts(await here.ask(here.call(variant="tiny"))) == ("miss", "tiny", 0.8)
    assert facts(await here.ask(here.call(variant="tiny"))) == ("hit", "tiny", 0.8)
    assert facts(await here.ask(here.call("gold"))) == ("miss", "large", 0.95)
    assert facts(await here.ask(here.call(variant="large"))) == ("hit", "large", 0.95), "gold leaves only it"


async def test_who_asks_for_the_best_joins_nobody_for_whom_another_is_best() -> None:
    free = Needs("free", accuracy_min=0.85, optimize="most_accurate")
    here = Ladder(replace(MODEL, tiers=(*TIERS, free)), "large", "base")
    calls = [here.call("cheap"), here.call("free"), here.call("cheap"), here.call("free")]
    assert len({call.objective.variants for call in calls}) == 1
    told = [here.start(call) for call in calls]
    await turn()
    while here.bench.running:
        here.finish()
        await turn()
    assert [reply.cache for (reply,) in told] == ["miss", "miss", "join", "join"]


async def test_who_joins_is_told_variant_accuracy_and_downgrade_as_who_is_joined() -> None:
    here = Ladder(MODEL, "base")
    first, second = here.start(here.call()), here.start(here.call())
    await turn()
    here.finish()
    (computed,), (joined,) = first, second
    assert (facts(computed), facts(joined)) == (("miss", "base", 0.9), ("join", "base", 0.9))
    assert joined.downgrade == computed.downgrade == Downgrade.ABSENT


async def test_why_a_variant_answers_is_told_as_by_the_gateway() -> None:
    here = Ladder(MODEL, "base")
    assert here.cached.standing("m").ladders.keys() == here.gateway.standing("m").ladders.keys()


async def test_where_one_of_those_that_may_answer_is_moody_nothing_is_kept() -> None:
    spec = MODEL.spec
    moody = tuple(replace(each, deterministic=each.name != "tiny") for each in spec.variants)
    here = Ladder(replace(MODEL, spec=replace(spec, variants=moody)), "large", "base")
    assert [(await here.ask(here.call())).cache for _ in range(2)] == ["", ""]
    assert [(await here.ask(here.call("gold"))).cache for _ in range(2)] == ["miss", "hit"]


def test_what_the_gateway_never_sees_is_counted_for_its_tier_with_that_tiers_deadline() -> None:
    call = Call(replace(MODEL, tiers=(Needs("hasty", slo_us=9),)), [], 1)
    call.objective = call.model.objective("hasty")
    request = describe(call, 1_000)
    assert (request.tier, request.deadline_us) == ("hasty", 1_009)
    call.timeout_us = 7
    assert describe(call, 1_000).deadline_us == 1_007


async def test_a_tiers_slo_is_what_a_kept_answer_is_held_to() -> None:
    hasty = replace(MODEL, tiers=(Needs("hasty", slo_us=1, accuracy_min=0.9),))
    here = Ladder(hasty, "large")
    await here.ask(here.call(floor=0.9))
    late = here.call("hasty")
    late.arrived_us = here.cached.now_us() - 1_000
    before = here.tally.late
    assert facts(await here.ask(late))[0] == "hit"
    assert here.tally.late == before + 1


class Others(Scripted):
    """Other gateways: what they have is told, what they are given is noted, by its variant."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def put(self, key: bytes, entry: KeptAnswer) -> None:
        super().put(key, entry)
        self.written.append(entry.variant)


class Shared(Ladder):
    """A gateway that shares its answers with others."""

    def __init__(self, *variants: str) -> None:
        super().__init__(MODEL, *variants)
        self.tier = Others()
        self.cached.share(self.tier)

    async def find(self, call: Call, variant: str) -> Reply:
        """Ask, while another gateway has an answer of this variant."""
        told = self.start(call)
        outputs = [Tensor("Y", "FP32", (1, 4), bytes(16))]
        self.tier.tell(0, entry_of("m", variant, outputs, self.cached.now_us()))
        await turn()
        while self.bench.running:
            self.finish()
        (reply,) = told
        return reply


async def test_what_another_gateway_has_is_held_to_the_same() -> None:
    here = Shared("base")
    assert facts(await here.find(here.call(), "base")) == ("hit", "base", 0.9)
    here = Shared("base")
    assert facts(await here.find(here.call(), "large")) == ("hit", "large", 0.95)
    assert facts(await here.ask(here.call())) == ("hit", "large", 0.95), "it is in memory now"
    here = Shared("base")
    assert facts(await here.find(here.call(), "tiny")) == ("miss", "base", 0.9)
    assert facts(await here.ask(here.call())) == ("hit", "base", 0.9)


async def test_what_another_gateway_says_of_a_variant_that_may_not_answer_is_no_answer() -> None:
    for variant in ("tiny", "unheard-of"):
        here = Shared("large")
        assert facts(await here.find(here.call("gold"), variant)) == ("miss", "large", 0.95)
        assert facts(await here.ask(here.call("gold"))) == ("hit", "large", 0.95)


async def test_a_lesser_answer_of_this_gateway_takes_the_place_of_no_better_one_elsewhere() -> None:
    here = Shared("large", "tiny")
    here.start(here.call(variant="tiny", question=1))  # the slice is busy
    here.tier.tell(0, 0)
    told = here.start(here.call())  # large would answer
    outputs = [Tensor("Y", "FP32", (1, 4), bytes(16))]
    here.tier.tell(0, entry_of("m", "base", outputs, here.cached.now_us()))
    here.down("large")
    await turn()
    here.finish()
    here.finish()
    assert facts(told[0]) == ("miss", "tiny", 0.8)
    assert here.tier.written == ["tiny"], "that to the other question"
    assert facts(await here.ask(here.call())) == ("hit", "base", 0.9)


tenths = st.sampled_from([0.0, 0.5, 0.8, 0.85, 0.9, 0.95])
events = st.lists(
    st.tuples(st.just("ask"), st.sampled_from(["", "gold", "cheap"]), tenths, st.integers(0, 1))
    | st.tuples(st.sampled_from(["up", "down"]), st.sampled_from(list(SHARES)), st.just(0.0), st.just(0)),
    max_size=25,
)


@given(events)
@settings(deadline=None, max_examples=drawn(60))
async def test_whatever_comes_and_goes_an_answer_keeps_its_floor_and_is_no_worse_than_a_computed_one(
    happened: list[tuple[str, str, float, int]],
) -> None:
    here = Ladder(MODEL, "large", "base", "tiny")
    best: dict[tuple[tuple[str, ...], int], float] = {}
    for event, name, floor, question in happened:
        if event != "ask":
            (here.up if event == "up" else here.down)(name)
            continue
        call = here.call(name, floor, question=question)
        if not here.live.intersection(call.objective.variants):
            continue
        reply = await here.ask(call)
        accuracy = reply.accuracy
        assert accuracy == SHARES[reply.variant]
        assert accuracy is not None
        assert reply.variant in call.objective.variants
        assert accuracy >= max(floor, {"": 0.0, "gold": 0.94, "cheap": 0.85}[name])
        asked = call.objective.variants, question
        if call.objective.optimize == "most_accurate":
            assert accuracy >= max(SHARES[each] or -inf for each in here.live.intersection(asked[0]))
        if reply.cache == "hit":
            assert accuracy == best[asked], "the best that was ever computed of it"
        best[asked] = max(accuracy, best.get(asked, -inf))
