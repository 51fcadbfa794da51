"""What slices of one device know of each other: they slow each other down."""

from serving.policy.latency import EITHER


class SharedDevice:
    """`busy`: its slices with something to do, batches or a measurement; `turns`: how often one became so.
    `expected`: for whom latencies are asked for at the moment (ALONE, BESIDE; EITHER outside of a plan)."""

    __slots__ = ("busy", "expected", "turns")

    def __init__(self) -> None:
        self.busy = 0
        self.turns = 0
        self.expected = EITHER
