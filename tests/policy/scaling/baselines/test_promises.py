"""What all baselines promise, whatever they are told."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.virtual.baselines.scaling_oracle import Oracle
from serving.policy.scaling.baselines.aiad import Aiad
from serving.policy.scaling.baselines.hpa import Hpa
from serving.policy.scaling.baselines.infaas import Infaas
from serving.policy.scaling.baselines.inferline import InferLine
from serving.policy.scaling.baselines.keda import Keda
from serving.policy.scaling.baselines.mark import MarkReplicas
from serving.policy.scaling.baselines.ray_serve import RayServe
from serving.policy.scaling.interface import LoadReport, ReplicaPolicy
from tests.policy.scaling.baselines.fleets import TABLE, Fleet, shown
from tests.seeds import drawn

Creation = Callable[[], ReplicaPolicy]

POLICIES: list[Creation] = [
    Hpa, Keda, RayServe, Aiad, MarkReplicas, InferLine, Infaas, lambda: Oracle(lambda start_us, end_us: 700.0)
]  # fmt: skip
NAMES = ["hpa", "keda", "ray_serve", "aiad", "mark", "inferline", "infaas", "oracle"]
all_policies = pytest.mark.parametrize("create", POLICIES, ids=NAMES)
GROWING = (
    "offered", "requests", "completed", "missed", "answered", "took_us", "busy_us"
)  # fmt: skip


@all_policies
@given(st.data())
@settings(max_examples=drawn(30))
def test_the_count_is_within_its_bounds_whatever_is_seen(create: Creation, data: st.DataObject) -> None:
    policy, seen, now_us = create(), LoadReport("m"), 0
    for _ in range(data.draw(st.integers(1, 12))):
        grown = {each: getattr(seen, each) + data.draw(st.integers(0, 20_000_000)) for each in GROWING}
        gauges = {each: data.draw(st.integers(0, 500)) for each in ("waiting", "oldest_us", "running")}
        before, seen = seen, LoadReport("m", **grown, **gauges)
        period_us = data.draw(st.integers(policy.period_us // 2, 3 * policy.period_us))
        now_us += period_us
        least = data.draw(st.integers(0, 3))
        view = shown(
            now_us / 1e6,
            now_us=now_us,
            period_us=period_us,
            seen=seen,
            before=before,
            ready=data.draw(st.integers(0, 9)),
            coming=data.draw(st.integers(0, 9)),
            least=least,
            most=data.draw(st.integers(least, 20)),
            variant=data.draw(st.sampled_from(["", "v"])),
            capacities=data.draw(st.sampled_from([{}, {"v": TABLE}])),
        )
        wish = policy.decide(view)
        assert view.least <= wish.count <= view.most
        assert wish.pressure >= 0
        assert wish.why


@pytest.mark.parametrize("create", POLICIES[:7], ids=NAMES[:7])
@given(st.integers(1, 40), st.integers(0, 40))
@settings(max_examples=10)
def test_more_load_never_ends_with_fewer_replicas(create: Creation, hundreds: int, more: int) -> None:
    ends = []
    for rate in (100.0 * hundreds, 100.0 * (hundreds + more)):
        fleet = Fleet(create(), lambda second, rate=rate: rate)  # type: ignore[misc]
        ends.append(max(fleet.run(240)[-60:]))
    assert ends[0] <= ends[1]


@pytest.mark.parametrize("create", POLICIES[:7], ids=NAMES[:7])
def test_what_is_said_is_a_sentence_with_the_figures_that_it_goes_by(create: Creation) -> None:
    fleet = Fleet(create(), lambda second: 500.0)
    fleet.run(120)
    for text in (fleet.wish.why, fleet.wish.up, fleet.wish.down):
        assert any(each.isdigit() for each in text)
        assert "nan" not in text
    assert fleet.wish.figures


@pytest.mark.parametrize("create", [MarkReplicas, InferLine, Infaas], ids=["mark", "inferline", "infaas"])
def test_while_no_capacity_is_known_the_count_stays(create: Creation) -> None:
    policy = create()
    for second in range(5, 300, 5):
        seen, before = (
            LoadReport("m", offered=1000 * each, requests=1000 * each) for each in (second, second - 5)
        )
        view = shown(second, seen=seen, before=before, period_us=5_000_000, ready=3)
        wish = policy.decide(shown(second, seen=seen, before=before, ready=3, variant="", capacities={}))
        assert wish.count == 3
        assert "not known" in wish.why
    assert policy.decide(view).count > 3
