"""A gateway whose models come, change and go; the workers compute nothing."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from serving.ports import Call
from serving.profile.derived.latency import Latency
from serving.scheduler.cold import MISS_EVERY_US
from serving.values.objectives import ReplicaSpec
from serving.values.specs import BatchingSpec, TensorSpec
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED, MODEL_ERROR, NEVER_US, NO_REPLICA, NOT_LOADED
from tests.builders import model_spec, profile, served
from tests.runtime.ground import MODEL, Bench, Ground, turn


@pytest.fixture
async def ground() -> Ground:
    return Ground(MODEL)


async def test_a_model_that_comes_is_in_the_one_mapping_that_all_hold(ground: Ground) -> None:
    held = ground.gateway.models
    other = served(model_spec("n"))
    ground.gateway.serve(other)
    assert ground.gateway.models is held
    assert dict(held) == {"m": MODEL, "n": other}
    assert ground.told == [("models", "m", "n")]
    ground.gateway.retire("m")
    assert list(held) == ["n"]


async def test_a_model_that_comes_while_others_serve_does_not_take_the_gateway_off_its_balancer(
    ground: Ground,
) -> None:
    ground.route()
    assert ground.gateway.ready
    ground.gateway.serve(served(model_spec("n")))
    assert ground.gateway.ready
    assert not ground.gateway.model_ready("n")
    ground.gateway.serve(replace(served(model_spec("n")), slo_us=1))
    assert ground.gateway.ready, "it is the same, that still comes"
    ground.gateway.replica_up(Bench(), "n", "a", 7, Latency(profile("n")))
    ground.gateway.replica_down("s", "n", "a", "it is gone")
    assert not ground.gateway.ready, "from then on it counts"


async def test_every_change_of_readiness_is_told(ground: Ground) -> None:
    gateway = ground.gateway

    def look() -> tuple[bool, dict[str, bool]]:
        return gateway.ready, {name: gateway.model_ready(name) for name in gateway.models}

    told = [look()]

    def tell() -> None:
        told.append(look())

    gateway.on_readiness = tell
    other = served(model_spec("n"))
    changes: tuple[Callable[[], object], ...] = (
        ground.route,
        lambda: gateway.serve(other),
        lambda: gateway.replica_up(Bench(), "n", "a", 7, Latency(profile("n"))),
        lambda: gateway.replica_down("s", "n", "a", "it is gone"),
        lambda: gateway.retire("n"),
        lambda: gateway.slice_down("s", "it is gone"),
        lambda: gateway.cold("m", "a", 1000),
        lambda: gateway.cold("m", "a", NEVER_US, "too large"),
        lambda: gateway.expect("m", "a", gateway.now_us()),
        gateway.stop_ready,
    )
    for change in changes:
        before = told[-1]
        change()
        assert look() != before
        assert look() == told[-1]


async def test_a_model_that_never_came_up_does_not_take_the_others_off_their_balancer(ground: Ground) -> None:
    ground.gateway.serve(served(model_spec("broken")))
    ground.gateway._lanes["broken"].coming = False  # as one that was there at the start
    assert not ground.gateway.ready, "nothing has ever been"
    ground.route()
    assert ground.gateway.ready
    ground.gateway.serve(replace(served(model_spec("broken")), required=True))
    ground.gateway._lanes["broken"].coming = False
    assert not ground.gateway.ready
    ground.gateway.replica_up(Bench(), "broken", "a", 7, Latency(profile("broken")))
    assert ground.gateway.ready
    ground.gateway.serve(served(model_spec("broken")))
    ground.gateway.replica_down("s", "broken", "a", "its worker died")
    assert not ground.gateway.ready, "it was there"
    ground.gateway.retire("broken")
    assert ground.gateway.ready


async def test_a_model_that_turns_out_too_large_leaves_the_gateway_ready(ground: Ground) -> None:
    ground.route()
    ground.gateway.serve(served(model_spec("large")))
    ground.gateway._lanes["large"].coming = False
    ground.gateway.cold("large", "a", 1000)
    ground.gateway.cold("large", "a", NEVER_US, "it takes 198 MB, and its slice has 150")
    assert not ground.gateway.model_ready("large")
    assert ground.gateway.ready


async def test_a_model_that_may_have_no_replica_does_not_take_the_gateway_off_its_balancer(
    ground: Ground,
) -> None:
    ground.route()
    least = replace(served(model_spec("n")), replicas=ReplicaSpec(0, 1))
    ground.gateway.serve(least)
    ground.gateway.replica_up(Bench(), "n", "a", 7, Latency(profile("n")))
    ground.gateway.replica_down("s", "n", "a", "no slice is left")
    assert not ground.gateway.model_ready("n")
    assert ground.gateway.ready
    ground.gateway.serve(replace(least, replicas=ReplicaSpec(1, 1)))
    assert not ground.gateway.ready


async def test_a_cold_model_is_ready_and_its_miss_is_told_after_the_call(ground: Ground) -> None:
    assert not ground.gateway.ready
    ground.gateway.cold("m", "a", 1000)
    assert ground.gateway.ready
    start_us = ground.gateway.now_us()
    request_id = ground.submit()
    assert request_id
    assert ground.told == [], "not within submit"
    await turn()
    assert set(ground.told) == {("missed", "m", "a")}
    assert len(ground.told) <= 1 + (ground.gateway.now_us() - start_us) // MISS_EVERY_US
    ground.route()
    await turn()
    ground.finish()
    assert ground.outcomes() == [COMPLETED]


async def test_a_request_that_cannot_wait_for_a_load_is_answered_within_submit(ground: Ground) -> None:
    ground.gateway.cold("m", "a", 5_000_000)
    assert ground.submit(timeout_us=10_000) == 0
    (reply,) = ground.replies
    assert (reply.outcome, ground.tally.outcomes) == (NOT_LOADED, [NOT_LOADED])
    assert 4_900_000 <= reply.retry_us <= 5_000_000
    await turn()
    assert ground.told == [("missed", "m", "a")]
    ground.gateway.cold("m", "a", NEVER_US)
    assert ground.submit() == 0
    assert ground.outcomes() == [NOT_LOADED, NO_REPLICA]


async def test_a_retired_model_is_told_when_its_last_request_is_answered(ground: Ground) -> None:
    ground.route()
    ground.submit()
    await turn()
    ground.gateway.retire("m")
    await turn()
    assert ground.told == [("models",)]
    ground.finish()
    assert ground.outcomes() == [COMPLETED]
    await turn()
    assert ground.told == [("models",), ("retired", "m")]


async def test_a_retired_model_without_requests_is_told_so_at_once_but_not_within(ground: Ground) -> None:
    ground.gateway.retire("m")
    assert ground.told == [("models",)]
    await turn()
    assert ground.told[1:] == [("retired", "m")]
    await turn()
    assert len(ground.told) == 2


async def test_a_model_that_is_served_again_in_time_was_never_retired(ground: Ground) -> None:
    ground.route()
    ground.gateway.retire("m")
    ground.gateway.serve(MODEL)
    ground.submit()
    await turn()
    ground.finish()
    await turn()
    assert ground.outcomes() == [COMPLETED]
    assert ("retired", "m") not in ground.told


async def test_a_call_that_was_read_before_its_model_went_is_turned_away(ground: Ground) -> None:
    ground.route()
    ground.gateway.retire("m")
    assert ground.submit() == 0
    with pytest.raises(ValueError, match="m cannot be forgotten"):
        ground.gateway.forget("m")
    ground.gateway.replica_down("s", "m", "a", "unloaded")
    ground.gateway.forget("m")
    assert ground.submit() == 0
    assert ground.outcomes() == ground.tally.outcomes == [NO_REPLICA, NO_REPLICA]
    assert "was changed or unloaded" in ground.replies[1].detail
    with pytest.raises(KeyError):
        ground.gateway.forget("m")


async def test_a_model_that_is_served_cannot_be_forgotten(ground: Ground) -> None:
    with pytest.raises(ValueError, match="m is served: retire it first"):
        ground.gateway.forget("m")


async def test_a_batch_that_comes_back_after_its_model_was_forgotten_harms_nobody(ground: Ground) -> None:
    ground.route()
    request_id = ground.submit()
    await turn()
    ground.gateway.cancel(request_id)
    ground.gateway.retire("m")
    ground.gateway.replica_down("s", "m", "a", "unloaded")
    ground.gateway.forget("m")
    ground.finish()
    assert len(ground.replies) == 1


async def test_a_call_of_before_is_answered_by_the_model_as_it_is_now(ground: Ground) -> None:
    ground.route()
    ground.gateway.serve(replace(MODEL, slo_us=30_000_000))
    ground.submit(MODEL)
    await turn()
    ground.finish()
    assert ground.outcomes() == [COMPLETED]


@pytest.mark.parametrize("other", ["inputs", "outputs", "variants"])
async def test_a_call_of_before_that_the_model_could_not_be_asked_now_is_turned_away(
    ground: Ground, other: str
) -> None:
    ground.route()
    spec, tensors = model_spec(slo_ms=60_000), (TensorSpec("X", "FP32", (-1, 5)),)
    if other == "variants":
        spec = model_spec(slo_ms=60_000, variants=("b",))
    else:
        spec = replace(spec, inputs=tensors) if other == "inputs" else replace(spec, outputs=tensors)
    ground.gateway.serve(served(spec, batching=BatchingSpec("static")))
    assert ground.submit(MODEL, variant="a") == 0
    assert ground.outcomes() == [NO_REPLICA]


async def test_rows_of_a_model_before_and_after_its_inputs_changed_never_share_a_batch(
    ground: Ground,
) -> None:
    ground.route()
    ground.gateway.hold("s")
    ground.submit()
    spec = replace(model_spec(slo_ms=60_000), inputs=(TensorSpec("X", "FP32", (-1, 5)),))
    changed = served(spec, batching=BatchingSpec("static"))
    ground.gateway.serve(changed)
    call = Call(changed, [Tensor("X", "FP32", (1, 5), bytes(20))], 1)
    ground.gateway.submit(call, ground.replies.append)
    ground.gateway.release("s")
    await turn()
    assert [rows for _, _, rows in ground.bench.running] == [1]
    ground.finish()
    assert [rows for _, _, rows in ground.bench.running] == [1]


async def test_an_answer_with_other_outputs_than_its_call_knows_is_an_error_of_the_model(
    ground: Ground,
) -> None:
    ground.route()
    ground.submit()
    await turn()
    ground.finish(outputs=2)
    assert ground.outcomes() == [MODEL_ERROR]


async def test_replicas_of_two_builds_are_known_until_the_last_old_one_has_gone(ground: Ground) -> None:
    builds, other = ground.gateway.builds, Bench("t")
    ground.route()
    ground.gateway.replica_up(other, "m", "a", 2, Latency(profile()))
    rebuilt = replace(MODEL.spec, variants=(replace(MODEL.spec.variants[0], build="new"),))
    ground.gateway.serve(replace(MODEL, slo_us=1))
    assert builds.mixed == frozenset()
    ground.gateway.serve(replace(MODEL, spec=rebuilt))
    ground.route(replica=1)
    assert builds.mixed == {"m"}, "the same replica, with what is known of it now"
    ground.route(replica=3)
    assert builds.mixed == {"m"}
    ground.gateway.slice_down("t", "died")
    assert builds.mixed == frozenset()
    ground.gateway.replica_up(other, "m", "a", 4, Latency(profile()))
    ground.gateway.replica_down("t", "m", "a", "unloaded")
    assert builds.mixed == frozenset()
