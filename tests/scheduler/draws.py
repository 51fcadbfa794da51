"""What a history of the scheduler is drawn from; small numbers, so that boundaries collide."""

from typing import NamedTuple

from hypothesis import strategies as st

from serving.policy.batching.catalogue import POLICIES
from serving.values.objectives import BALANCED, CHEAPEST, MOST_ACCURATE
from serving.values.specs import DEFAULT_TENANT, BatchingSpec, TenantSpec
from tests.scheduler.values import RUNGS

MODELS = ("m", "n", "o")
SLICES = ("s", "t", "u")
SIZES = (4, 16)
TENANTS = (TenantSpec("gold", weight=3.0), TenantSpec("late", priority=-1))
GRAINS_US = (1, 1000)
"""Microseconds of one unit of time in a history. In the fine grain no batch is sent ahead, and none is
suspected but after a long silence: both go by milliseconds."""

FLOORS = [("a", "b", "c"), ("a", "b"), ("a",), ("c",)]  # the most accurate come first; the last pins one
LANES = [
    *[("", 4, floor) for floor in (FLOORS[0], FLOORS[0], *FLOORS)],
    ("x", 4, ("a", "b")),
    ("", 16, ("a", "b", "c")),
    ("", 16, ("a", "b")),
]
AIMS = [MOST_ACCURATE, MOST_ACCURATE, CHEAPEST, BALANCED]

floors = st.lists(st.sampled_from(FLOORS), min_size=1, max_size=3)
pauses = st.integers(0, 4)
picks = st.integers(0, 99)
models = st.sampled_from((*MODELS, "m"))
slices = st.sampled_from(SLICES)
variants = st.sampled_from(RUNGS)
tenants = st.sampled_from([DEFAULT_TENANT, DEFAULT_TENANT, *(tenant.name for tenant in TENANTS)])
KINDS = [(name, mode) for name, entry in POLICIES.items() for mode in entry.modes or ("",)]
SLO, STATIC, AIMD = ("slo", "latency"), ("static", ""), ("aimd", "")
kinds = st.sampled_from(KINDS)
policies = (
    st.sampled_from([(SLO,) * 3, (STATIC,) * 3, (STATIC, SLO, AIMD), (SLO, STATIC, SLO)])
    | kinds.map(lambda kind: (kind,) * 3)
    | st.tuples(kinds, kinds, kinds)
)
sorts = st.tuples(
    st.sampled_from([8, 4, 8, 2, 8, 4, 8, 1]),  # the largest batch
    st.sampled_from([30, 15, 30, 9, 20, 30, 4]),  # the SLO
    st.sampled_from([None, 6, None, 3, None, 2, None]),  # the size of a policy that takes one
    st.just(0) | st.integers(1, 9),  # and the delay
)
steps = st.lists(st.sampled_from([0.0, 0.4, 1.0, 2.0, 5.0]), min_size=4, max_size=4)
latencies = st.tuples(steps, steps)


class Call(NamedTuple):
    """What a client sends, with the pause before it."""

    model: str
    rows: int
    lane: tuple[str, int, tuple[str, ...]]  # shape, size bucket, the variants it allows
    optimize: str
    part: int  # quarters of the bucket that it is large
    slack: int
    left: int | None  # what the client gives it
    pause: int
    tenant: str
    declared: int  # by which its batch takes longer


calls = st.builds(
    Call,
    model=models,
    rows=st.sampled_from([1, 1, 1, 1, 2, 1, 2, 3, 12]),
    lane=st.sampled_from(LANES),
    optimize=st.sampled_from(AIMS),
    part=st.sampled_from([4, 2, 4, 3, 1, 0]),
    slack=st.integers(0, 25),
    left=st.none() | st.none() | st.integers(-1, 12),
    pause=st.just(0) | pauses,
    tenant=tenants,
    declared=st.sampled_from([0, 0, 0, 0, 1, 6]),
)


def knobs(kind: tuple[str, str], size: int | None, delay_us: int, guard_us: int) -> BatchingSpec:
    """A policy with those of the knobs that it takes."""
    policy, mode = kind
    keys = POLICIES[policy].keys
    return BatchingSpec(
        policy,
        size=size if "size" in keys else None,
        delay_us=delay_us if "delay_ms" in keys else 0,
        guard_us=guard_us,
        mode=mode,
    )
