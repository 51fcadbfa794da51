"""`profile`, `place`, `simulate` and `explain` name one profiled capacity of a model, to the digit."""

from collections.abc import Sequence
from math import inf
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from router.observing.telemetry import Telemetry
from router.settings import Settings, load_settings
from router.verbs.explain.body import describe
from router.verbs.explain.words import sentences
from router.verbs.place.question.demands import demands
from router.verbs.profiling.figures import scalings
from router.verbs.profiling.show import ShowOptions, show
from router.verbs.report.capacity import capacity
from router.verbs.simulate.cases import SimulatedDeployment, cases
from router.verbs.simulate.traffic import DrawnTraffic, OfferedLoad, Shape
from serving.planning.task import AskedRate
from serving.policy.placement.terms.problem import Parts, PlacementDevice, Pool
from serving.profile.curve import Point, Profile
from serving.profile.derived.carrying import ProfiledCapacity, carried
from serving.profile.derived.latency import Latency
from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.profile.profiles import ProfileSet
from serving.scheduler.models.variant_reasons import variant_reasons_of
from serving.scheduler.scheduler import Scheduler
from serving.scheduler.slices.replicas import Replica
from serving.values.slice_specs import SliceSpec
from tests.router.settings.samples import write_deployment
from tests.seeds import drawn

GATEWAY = """\
slices: [{name: cpu-a, cores: 1}]
cache: false
models:
  - {path: models/digits, slo_ms: 25, variants: [linear], default_variant: linear}
"""
KIND = device_kind(SliceSpec("any", (0,)))
ROWS = (1, 2, 4, 8, 16, 32, 64)
SLO_US = 25_000

times_us = st.lists(st.integers(50, 30_000), min_size=1, max_size=len(ROWS))
"""Of batches of 1, 2, 4, ... rows, in any order: a measurement may say anything."""


def profile(took_us: Sequence[int]) -> Profile:
    points = tuple(Point(0, rows, float(us), 1.2 * us, 30) for rows, us in zip(ROWS, took_us, strict=False))
    return Profile("digits", "linear", KIND, points)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_deployment(tmp_path, GATEWAY)
    return tmp_path


def profiled(made: Profile) -> tuple[int, float] | None:
    (scaling,) = scalings([ProfileSet("digits", "linear", KIND, (made,))], SLO_US)
    best = scaling.shares[0].within
    return (best.rows, best.throughput) if best else None


def placed(found: Settings) -> tuple[int, float] | None:
    pool = Pool("cpu", KIND, Parts("cores", 1.0), (PlacementDevice("cpu-0"),))
    (demand,), _ = demands(found, {"digits": AskedRate(0.0)}, [pool], 0.0)
    return told(demand.options[0].profiled)


def simulated(found: Settings) -> tuple[int, float] | None:
    (case,) = cases(
        [found.path], [], SimulatedDeployment(), DrawnTraffic([OfferedLoad("digits", "5")], Shape())
    )
    return told(case.profiled(found.models[0]).get("cpu-a"))


def standing(found: Settings, made: Profile, factor: float = 1.0) -> Scheduler:
    """The scheduler that explains, whose batches take `factor` times as long as the profile says."""
    model = found.models[0]
    scheduler = Scheduler([model], found.limits)
    replica = Replica(1, "linear", Latency(made), model)
    for _ in range(100 if factor != 1 else 0):
        replica.residuals.add(1000.0, round(1000 * factor), None)
    scheduler.replica_up("cpu-a", "digits", replica, 0)
    return scheduler


def explained(found: Settings, made: Profile) -> tuple[int, float] | None:
    (ladder,) = variant_reasons_of(standing(found, made).models["digits"], 1).ladders[""]
    return told(ladder.rungs[0].profiled)


def told(found: ProfiledCapacity | None) -> tuple[int, float] | None:
    return (found.rows, found.rate) if found else None


@pytest.mark.slow
@settings(max_examples=drawn(60), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(took_us=times_us)
def test_all_four_name_the_same_for_any_profile(home: Path, took_us: Sequence[int]) -> None:
    made = profile(took_us)
    ProfileStore(home / "profiles").write_local(made)
    found = load_settings(home / "penstock.yaml")
    latency = Latency(made)
    within = [rows for rows in range(1, made.points[-1].rows + 1) if 2 * latency.predict_us(rows) <= SLO_US]
    best = max((rows * 1e6 / latency.predict_us(rows) for rows in within), default=None)
    first = profiled(made)
    assert (first and first[1]) == (best and pytest.approx(best))
    if latency.predict_us(1) <= 0.45 * SLO_US:  # what is slower `penstock place` refuses by name
        assert placed(found) == first
    assert simulated(found) == first
    assert explained(found, made) == first


def test_their_words_are_the_same(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The largest batch within half the SLO carries half as much as the best."""
    made = profile([1000, 1500, 2000, 3000, 12_000])
    store = ProfileStore(home / "profiles")
    store.write_local(made)
    found = load_settings(home / "penstock.yaml")
    words = capacity(8e6 / 3000, 8)
    assert words == "2,667 rows/s in batches of 8"
    console = Console(width=160)
    show(found.models[0].spec, store, ShowOptions(None, None, SLO_US, None, None), console)
    shown = capsys.readouterr().out
    assert "1 core has a profiled capacity of 2,667 rows/s within 25 ms in batches of 8" in shown
    scheduler = standing(found, made, factor=1.25)
    now = describe(
        found.models[0],
        variant_reasons_of(scheduler.models["digits"], 1),
        [],
        Telemetry(found.models).counters("digits", 1),
        1.0,
    )
    lines = sentences(now, now["promises"][0])
    today = capacity(8e6 / 3750, 8)
    assert f"  linear: profiled capacity {words}; at what batches take today {today}" in lines
    assert any("above about 2,100 rows/s" in line for line in lines)


def test_a_slice_that_fits_no_two_batches_has_none() -> None:
    assert carried(Latency(profile([20_000])), SLO_US, 64) is None
    assert carried(Latency(profile([20_000])), inf, 64) is not None
    assert carried(Latency(profile([10_000, 11_000])), SLO_US, 1) == ProfiledCapacity(1, 10_000.0, 100.0)
