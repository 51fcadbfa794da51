"""What slices of one device know of each other: they slow each other down."""

from serving.policy.estimates.latency import EITHER


class SharedDevice:
    """A device that slices share. `busy`: its slices with something to do, batches or a measurement; `turns`:
    how often a slice became busy. `expected`: the case for which latencies are asked at the moment (ALONE,
    BESIDE; EITHER outside of a plan)."""

    __slots__ = ("busy", "expected", "turns")

    def __init__(self) -> None:
        self.busy = 0
        self.turns = 0
        self.expected = EITHER
