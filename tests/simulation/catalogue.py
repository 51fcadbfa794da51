"""What the scheduler promises in virtual time, in figures: the catalogue that the tests here go through.

1 Oracle. Work-conserving batching is the queue with bulk service, whose latency has a closed form.
2 Safety. With exact latencies nothing is dispatched and late; every request ends exactly once.
3 Overload. Goodput does not fall when more is offered.
4 Capacity. That of the composite policy is near the best of the baselines, and of an idealised simulation.
5 Low load. A request does not wait; consolidated, slices are busy as the load asks.
6 Interleaving. Models of unlike SLOs share a slice; no tenant starves.
7 Estimator. It follows a device that becomes slower or faster, and no outlier.
8 Rates. A rate that is misread by four costs little.
"""

from dataclasses import replace

from loadtests.virtual.virtual_world import VirtualModel, World
from serving.values.specs import BatchingSpec

SLO = BatchingSpec("slo", guard_us=0)

# 1
LATENCY_OF_BOUND = (0.93, 1.0)  # mean latency over Inoue's bound (arXiv 1912.06322)
MEAN_BATCH_ERROR = 0.05
SAMPLING_ERROR = 0.01  # of a mean over 40,000 requests: the bound is met to .01 % at lambda * alpha = .7

# 2
REQUESTS = 100_000

# 3
OVERLOAD_SHARE = 0.95  # goodput at 2 and 4 times the capacity, of that at capacity

# 4
CAPACITY_SHARE = 0.97
TOLERATED_BAD = 0.01

# 5
LOW_LOAD = 0.05
WAIT_US = 1000  # median latency at LOW_LOAD, over that of a batch of one
BUSY_SHARE = 1.15  # consolidated: slices' time used, of what batches of the target size need

# 6
MIXED_CAPACITY = 406  # requests/s, SLOs of 25 and 300 ms on one slice; 360 where long batches are not capped
MIXED_SHARE = 0.95
TENANT_SHARE = 0.9  # of what its weight entitles a backlogged tenant to, over 10 s

# 7
SLOWER, FASTER = 1.5, 0.67
BATCHES_TO_SLOW, BATCHES_TO_FAST = 10, 200
LATE_AFTER_STEP = 0.01
OUTLIER, OUTLIER_MOVES = 10, 0

# 8
MISREAD = (0.25, 0.5, 2.0, 4.0)
MISREAD_SHARE = 0.88

GAMMA_CV = 0.3**-0.5  # gaps of gamma shape 0.3
SETTLE_US = 1_000_000  # rates are known in the idealised simulation; here they are by then

SETTLED = World(SLO, settle_us=SETTLE_US)
WORLDS = {  # models, slices, SLO; row and launch latency are a ResNet's unless said
    "A": SETTLED,
    "B": replace(SETTLED, slo_us=100_000),
    "C": replace(SETTLED, slo_us=50_000, gap_cv=GAMMA_CV),
    "D": replace(SETTLED, slices=8),
    "E": replace(SETTLED, models=4, slo_us=100_000),
    "F": replace(SETTLED, slices=8, models=10, slo_us=50_000),
    "G": replace(SETTLED, slices=8, models=10, slo_us=50_000, gap_cv=GAMMA_CV),
    "H": replace(SETTLED, slices=8, alpha_us=300, beta_us=8000),
}
MIXED = replace(SETTLED, unlike=(VirtualModel(25_000), VirtualModel(300_000)))

CAPACITIES = {  # requests/s of the composite in an idealised simulation that knows all rates
    "A": 392, "B": 809, "C": 551, "D": 5338, "E": 650, "F": 5443, "G": 5395, "H": 16_458,
}  # fmt: skip
