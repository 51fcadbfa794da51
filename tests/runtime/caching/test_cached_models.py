"""The result cache follows its models: as they come, go, and are built anew."""

from dataclasses import replace

import pytest

from serving.cache.benefit import ASKS
from serving.cache.spec import CacheSpec
from serving.runtime.caching.caching import CachedServing
from serving.values.specs import BatchingSpec, ServedModel
from serving.values.vocabulary import COMPLETED, NO_REPLICA
from tests.builders import model_spec, served
from tests.runtime.ground import MODEL, Ground, turn

KEPT = replace(MODEL, cache=True)


class Cached(Ground):
    """All its models are asked the same question, which the batch answers."""

    def __init__(self, *models: ServedModel) -> None:
        super().__init__(*models)
        self.cached = CachedServing(self.gateway, CacheSpec(), self.tally)
        self.serving = self.cached

    async def ask(self, model: ServedModel = KEPT, variant: str = "") -> str:
        """What the cache did."""
        self.submit(model, variant)
        await turn()
        if self.bench.running:
            self.finish(compute_us=500)  # far more than to ask the cache takes
        assert self.replies[-1].outcome is COMPLETED
        return self.replies[-1].cache


def rebuilt(model: ServedModel, build: str) -> ServedModel:
    variants = tuple(replace(variant, build=build) for variant in model.spec.variants)
    return replace(model, spec=replace(model.spec, variants=variants))


@pytest.fixture
async def here() -> Cached:
    here = Cached(KEPT)
    here.route()
    return here


async def test_of_a_model_that_comes_later_answers_are_kept(here: Cached) -> None:
    other = replace(served(model_spec("n", slo_ms=60_000), batching=BatchingSpec("static")), cache=True)
    here.gateway.serve(other)
    here.route("n", replica=2)
    assert [await here.ask(other), await here.ask(other)] == ["miss", "hit"]
    assert set(here.cached.worth) == {"m", "n"}


async def test_the_present_setting_says_whether_answers_are_kept(here: Cached) -> None:
    off = replace(KEPT, cache=False)
    assert [await here.ask(), await here.ask()] == ["miss", "hit"]
    here.gateway.serve(off)
    assert (await here.ask(off), set(here.cached.worth)) == ("", set())
    again = replace(KEPT)
    here.gateway.serve(again)
    assert await here.ask(again) == "hit", "the same build's"


async def test_another_build_is_not_answered_with_what_the_old_one_said(here: Cached) -> None:
    assert [await here.ask(), await here.ask()] == ["miss", "hit"]
    new = rebuilt(KEPT, "new")
    here.gateway.serve(new)
    assert await here.ask(new) == "", "the replica that answers is the old build's"
    here.route(replica=2)
    assert [await here.ask(new), await here.ask(new)] == ["miss", "hit"]


async def test_what_was_asked_before_a_change_is_not_kept_under_the_key_of_either(here: Cached) -> None:
    here.submit(KEPT)
    await turn()
    new = rebuilt(KEPT, "new")
    here.gateway.serve(new)
    here.route(replica=2)
    here.finish()
    assert here.outcomes() == [COMPLETED]
    assert await here.ask(new) == "miss"
    assert await here.ask(KEPT) == "", "a call that was read before the change asks no cache"


async def test_an_answer_of_another_variant_than_was_asked_for_is_not_kept() -> None:
    two = replace(served(model_spec(variants=("a", "b"), slo_ms=60_000), batching=KEPT.batching), cache=True)
    here = Cached(two)
    here.route()
    here.route(variant="b", replica=2)
    assert await here.ask(two) == "miss"
    other = replace(two, default_variant="b")
    here.gateway.serve(other)
    assert [await here.ask(other), await here.ask(other, "b")] == ["miss", "hit"]
    assert here.replies[-1].variant == "b"
    assert (await here.ask(other, "a"), here.replies[-1].variant) == ("hit", "a")


async def test_who_waits_for_one_answer_has_it_when_its_model_was_retired_meanwhile(here: Cached) -> None:
    for _ in range(3):
        here.submit()
    await turn()
    here.gateway.retire("m")
    assert here.submit() == 0
    here.finish()
    assert [reply.outcome for reply in here.replies] == [NO_REPLICA, COMPLETED, COMPLETED, COMPLETED]
    await turn()
    assert ("retired", "m") in here.told
    assert here.cached.worth == {}
    assert here.cached.open_requests == 0


async def test_who_joined_a_request_that_was_lost_with_a_model_that_is_forgotten_is_answered(
    here: Cached,
) -> None:
    here.submit()
    here.submit()
    await turn()
    here.gateway.retire("m")
    here.gateway.slice_down("s", "died")
    await turn()
    here.gateway.forget("m")
    assert len(here.replies) == 2
    assert here.cached.open_requests == 0


async def test_what_asking_gained_holds_for_the_same_build_and_for_no_other(here: Cached) -> None:
    for _ in range(ASKS):
        await here.ask()
    gain_us = here.cached.worth["m"].gain_us
    here.gateway.serve(slower := replace(KEPT, slo_us=1_000_000))
    await here.ask(slower)
    assert here.cached.worth["m"].gain_us == pytest.approx(gain_us, rel=0.5)
    here.gateway.serve(new := rebuilt(KEPT, "new"))
    here.route(replica=2)
    await here.ask(new)
    assert here.cached.worth["m"].bypassed == 0


async def test_what_differs_each_time_is_kept_no_more_and_asked_no_more(here: Cached) -> None:
    assert [await here.ask(), await here.ask()] == ["miss", "hit"]
    here.gateway.doubts.add(("m", "a", KEPT.revision), "its output differed")
    assert [await here.ask(), await here.ask()] == ["", ""]
    assert not here.cached.worth
    here.gateway.serve(mended := replace(rebuilt(KEPT, "new"), revision="new"))
    here.route(replica=2)
    assert [await here.ask(mended), await here.ask(mended)] == ["miss", "hit"]


async def test_requests_that_name_the_version_share_what_is_kept() -> None:
    model = replace(KEPT, spec=replace(KEPT.spec, version=2))
    here = Cached(model)
    here.route()
    assert [await here.ask(each) for each in (model.pinned, model, model.pinned)] == ["miss", "hit", "hit"]
    here.gateway.serve(replace(model, revision="3", spec=replace(model.spec, version=3)))
    assert await here.ask(model.pinned) == "", "it may not be what has the name now"
