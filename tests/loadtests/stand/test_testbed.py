"""What is measured beside a gateway, and when it must not be believed; both scripts over real processes."""

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.harness.payloads import Contents
from loadtests.openloop import Course
from loadtests.scheduling import burst_fidelity
from loadtests.scheduling.burst_fidelity import in_virtual_time
from loadtests.scheduling.slo_capacity import run_point
from loadtests.stand import bare, testbed
from loadtests.stand.testbed import Setting, Testbed, Watch

pytestmark = [pytest.mark.live, pytest.mark.in_turn(3)]

CURVES = st.lists(st.integers(1, 30_000), min_size=1, max_size=20)


class Modelled(bare.BareModel):
    """A bare model whose latencies are known."""

    def __init__(self, curve_us: list[int]) -> None:
        self.batch_max = len(curve_us)
        self._curve_us = curve_us

    def median_us(self, rows: int, repeats: int = bare.REPEATS) -> float:
        return self._curve_us[rows - 1]


@given(CURVES.map(sorted), st.integers(2, 60_000))
def test_capacity_is_taken_at_the_largest_batch_that_fits_the_slo_twice(
    curve: list[int], slo_us: int
) -> None:
    fitting = [rows for rows, latency_us in enumerate(curve, 1) if 2 * latency_us <= slo_us]
    if not fitting:
        with pytest.raises(ValueError, match="no room for two batches of one row"):
            Modelled(curve).capacity(slo_us)
        return
    found = Modelled(curve).capacity(slo_us)
    assert (found.rows, found.latency_us) == (max(fitting), curve[max(fitting) - 1])
    assert found.rate == pytest.approx(found.rows / found.latency_us * 1e6)


@pytest.mark.parametrize(
    ("model", "said"), [("nosuch", "'nosuch' is no sample model"), ("minilm", "costs what its texts cost")]
)
def test_a_model_without_a_capacity_is_refused(model: str, said: str) -> None:
    with pytest.raises(ValueError, match=said), bare.loaded(model, 0):
        pass


def test_cores_that_are_not_there_or_the_same_are_refused() -> None:
    core = min(os.sched_getaffinity(0))
    for setting in (Setting(worker_core=core, core=core), Setting(worker_core=core, core=4000)):
        with pytest.raises(ValueError, match="a core each; got"), testbed.laid_out(setting):
            pass


@given(CURVES, st.integers(1, 50))
def test_in_virtual_time_arrivals_that_never_meet_are_answered_in_time_if_one_batch_is(
    curve: list[int], slo_ms: int
) -> None:
    due_s = np.asarray([0.0, 0.1, 0.2, 0.3])
    in_time = in_virtual_time(due_s, [float(us) for us in curve], slo_ms, "static")
    assert in_time == (curve[0] <= slo_ms * 1000)


def test_in_virtual_time_batches_take_what_was_measured_even_where_more_rows_take_less() -> None:
    together = np.asarray([0.0, 0.0])
    assert in_virtual_time(together, [10_000, 60_000, 20_000], 50, "static") == 0
    assert in_virtual_time(together, [10_000, 40_000, 20_000], 50, "static") == 1


@pytest.mark.slow
def test_a_core_that_others_use_voids_the_run() -> None:
    core = min(os.sched_getaffinity(0))
    spin = f"import os, time; os.sched_setaffinity(0, [{core}])"
    spin += "\nwhile time.process_time() < 0.5: pass"
    watch = Watch({core: []})
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert f"of core {core}, at most" in watch.intruders()[0]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs two cores")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testbed, "SETTLED_S", 0.0)
        patch.setattr(testbed, "WARM_UP_S", 0.5)
        with testbed.laid_out(Setting("mlp", 20_000, worker_core=cores[0], core=cores[1])) as found:
            yield found


@pytest.mark.slow
def test_a_point_lies_between_two_capacities_and_accounts_for_every_arrival(bed: Testbed) -> None:
    point = run_point(bed, 0.2, Course(1.0))
    assert min(point.capacities) > 0
    assert sum(point.counts.values()) == point.offered
    assert point.counts["in time"] == point.goodput > 0
    assert (point.client_late_ms > 1) <= bool(point.voids)


@pytest.mark.slow
def test_the_twin_of_a_run_has_the_arrivals_that_were_sent(
    bed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(burst_fidelity, "REPEATS", 3)
    twin = burst_fidelity.run_twin(bed, 0.2, Course(1.0, cv=4, contents=Contents(seed=3)))
    assert twin.offered > 0
    assert 0 < twin.real <= 1
    assert 0 < twin.virtual <= 1
