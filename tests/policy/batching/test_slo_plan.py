"""Plans of a slice: they go by what batches take now, also where they keep what they aimed at before."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from serving.policy.batching.slo_plan import SCALE_STEPS, SHARES, PlannedLoad, dare, search_scale
from tests.policy.views import ReplicaSeen

SLO_US = 50_000
SCALES = (0.0, 0.1, 0.3, 0.5, 0.9, 1.0)


@dataclass
class Machine:
    """How many times their curves batches take at present."""

    slow: float = 1.0


class Slowed(ReplicaSeen):
    """A replica on a machine whose speed changes; plans for smaller shares expect shorter batches."""

    machine = Machine()
    share = SHARES[0]

    def predict_us(self, rows: int, size: int) -> float:
        return self.machine.slow * (1 + self.share) * super().predict_us(rows, size)

    def typical_us(self, rows: int, size: int) -> float:
        return self.machine.slow * super().predict_us(rows, size)

    def planning(self, share: float) -> "Slowed":
        found = Slowed(self.limits, self.row_us, self.base_us)
        object.__setattr__(found, "share", share)
        object.__setattr__(found, "machine", self.machine)
        return found


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Machine, list[PlannedLoad]]:
    machine = Machine()
    loads = []
    for _ in range(draw(st.integers(1, 6))):
        replica = Slowed({0: draw(st.integers(1, 64))}, draw(st.floats(10, 3000)), draw(st.floats(0, 20_000)))
        object.__setattr__(replica, "machine", machine)
        rate = draw(st.floats(1e-6, 1e-2))
        loads.append(PlannedLoad(rate, (replica, replica), 0, 0, SLO_US, rate * replica.typical_us(1, 0)))
    return machine, loads


def needed(load: PlannedLoad, scale: float) -> float:
    rows = max(1, int(scale * load.target))
    return load.rate * (load.replica.typical_us(rows, 0) + load.replica.lost_us) / rows


@given(worlds(), st.floats(0.1, 4), st.floats(0.2, 5))
def test_a_plan_goes_by_what_batches_take_now(
    world: tuple[Machine, list[PlannedLoad]], room: float, slow: float
) -> None:
    machine, loads = world
    for machine.slow in (1.0, slow, 1.0):
        share, found = dare(loads, room)
        assert share in SHARES
        for load in found:
            assert [load.need(scale) for scale in SCALES] == [needed(load, scale) for scale in SCALES]


@given(worlds(), st.floats(0.1, 4))
def test_the_scale_is_the_least_that_carries_the_loads(
    world: tuple[Machine, list[PlannedLoad]], room: float
) -> None:
    _, found = dare(world[1], room)
    scale = search_scale(found, room)
    carried = [sum(needed(load, each) for load in found) <= room for each in (scale, scale - 2**-SCALE_STEPS)]
    if scale < 1.0:
        assert carried[0]
    if scale > 0.0 and carried[0]:
        assert not carried[1]


def test_what_is_aimed_at_for_a_share_is_kept_as_long_as_the_load() -> None:
    replica = Slowed({0: 64}, 1000, 5000)
    load = PlannedLoad(1e-3, (replica, replica), 0, 0, SLO_US, 0.1)
    assert load.planning(0.8) is load.planning(0.8)
    assert load.planning(0.7).target >= load.planning(0.9).target >= load.target
