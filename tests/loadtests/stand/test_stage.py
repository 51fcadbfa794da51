"""One slice for several models and tenants: what it can do for them, and what is promised to each."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.harness.gateway import ROOT, model_entry, started
from loadtests.harness.payloads import Target
from loadtests.openloop import Ask, Course
from loadtests.scheduling import two_slos
from loadtests.scheduling.tenant_flood import Run, Treated, promises
from loadtests.stand import observed
from loadtests.stand.stage import Place, Stage, capacity
from router.settings import load_model
from serving.ports import Call
from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.values.specs import BatchingSpec, Limits, ServedModel
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED

pytestmark = pytest.mark.live


def latency(beta_us: float, alpha_us: float, size: int = 0, rows: int = 32) -> Latency:
    """A batch of b rows takes beta + alpha b."""
    points = tuple(Point(size, each, beta_us + alpha_us * each, 1.0, 3) for each in (1, rows))
    return Latency(Profile("m", "v", "cpu", points))


class Known(Stage):
    """A stage whose latencies are known."""

    def __init__(self, found: dict[str, Latency]) -> None:
        self._found = found

    def latency(self, model: str, variant: str) -> Latency:
        return self._found[model]


@given(st.floats(10, 12_000), st.floats(1, 1000), st.floats(10, 6000), st.floats(1, 500))
def test_in_a_cycle_of_the_joint_capacity_no_tight_request_is_late(
    loose_beta: float, loose_alpha: float, tight_beta: float, tight_alpha: float
) -> None:
    loose, tight = latency(loose_beta, loose_alpha, two_slos.LOOSE.size), latency(tight_beta, tight_alpha)
    rates = two_slos.joint_capacity(Known({"digits": tight, "minilm": loose}))
    # One batch each a cycle: the cycle's length follows from either rate.
    for rows in range(1, 33):
        cycle_us = rows / rates[0] * 1e6
        loose_rows = cycle_us * rates[1] / 1e6
        if abs(loose_rows - round(loose_rows)) < 1e-6 and 1 <= round(loose_rows) <= 32:
            taken_us = loose.predict_us(round(loose_rows), two_slos.LOOSE.size) + tight.predict_us(rows)
            if abs(taken_us - cycle_us) < 1e-3:
                alone_us = loose.predict_us(1, two_slos.LOOSE.size) + 2 * tight.predict_us(1)
                assert cycle_us + tight.predict_us(rows) <= max(25_000, alone_us) + 1e-3
                return
    raise AssertionError("no cycle of whole batches has these rates")


def test_capacity_is_taken_at_the_largest_batch_that_fits_the_slo_twice() -> None:
    assert capacity(latency(5000, 1000, rows=40), 50_000) == pytest.approx(20 / 25_000 * 1e6)


def treated(tenant: str, offered: float, goodput: float, weight: float = 1.0) -> Treated:
    return Treated(tenant, weight, offered, goodput, goodput / offered, 1.0, ())


def test_a_tenant_within_its_share_must_be_answered_and_only_a_sound_run_counts() -> None:
    good = Run("flood", 1000, (treated("a", 3000, 700), treated("b", 300, 299)), ())
    assert promises([good]) == {"flood: 99% of what b asks is answered in time": True}
    bad = replace(good, tenants=(treated("a", 3000, 700), treated("b", 300, 290)))
    assert list(promises([bad]).values()) == [False]
    assert promises([replace(bad, voids=("others took a core",))]) == {}


@pytest.mark.parametrize(("a", "kept"), [(750.0, True), (680.0, True), (600.0, False), (900.0, False)])
def test_where_all_flood_goodput_follows_the_weights(a: float, kept: bool) -> None:
    run = Run("both", 1000, (treated("a", 3000, a, 3.0), treated("b", 3000, 1000 - a)), ())
    assert promises([run])["both: a gets 75% of the goodput, within 10% of it"] == kept


@pytest.mark.slow
def test_loads_of_tenants_are_reported_apart_and_profiles_are_read_back(tmp_path: Path) -> None:
    tenants = [{"name": "a", "weight": 3}, {"name": "b"}]
    entry = model_entry("simple", slo_ms=20_000, batching={"policy": "slo"})
    with started([entry], (), tmp_path, tenants=tenants) as gateway:
        stage = Stage(gateway, Place(0, min(os.sched_getaffinity(0)), tmp_path))
        asks = [Ask(Target("simple", tenant=name), rate) for name, rate in (("a", "60"), ("b", "20"))]
        played = stage.play(asks, Course(1.0))
    both = played.report.loads
    assert [one.name for one in both] == ["a/simple", "b/simple"]
    assert [len(played.latency_ms(number)) for number in (0, 1)] == [one.offered for one in both]
    assert all(one.answered == one.offered and one.ok for one in both)  # a slow machine refuses some
    assert (tmp_path / "local").is_dir()


@pytest.mark.slow
async def test_every_batch_in_this_process_is_seen_with_its_requests(tmp_path: Path) -> None:
    spec = load_model(ROOT / "models" / "simple")
    model = ServedModel(spec, 20_000_000, ("default",), (observed.SLICE,), BatchingSpec("slo"))
    numbers = bytes(64)
    calls = [
        Call(model, [Tensor(one.name, "INT32", (1, 16), numbers) for one in spec.inputs], 1)
        for _ in range(40)
    ]
    async with observed.opened(model, (), tmp_path, Limits(sweep_s=0.2)) as bench:
        endings = await bench.play(calls, [number / 200 for number in range(40)])
        assert bench.profile.model == "simple"
    assert all(one.outcome is COMPLETED and 0 < one.latency_us < 20_000_000 for one in endings)
    seen = [number for one in bench.watch.batches for number in one.requests]
    assert sorted(seen) == list(range(1, 41))
    assert all(one.elapsed_us >= one.compute_us > 0 < one.predicted_us for one in bench.watch.batches)
