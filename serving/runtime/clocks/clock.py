"""The one clock: every instant of the gateway is read here, and only here."""

import time


def now_us() -> int:
    """Return the microseconds of the system's monotonic clock."""
    return time.monotonic_ns() // 1000
