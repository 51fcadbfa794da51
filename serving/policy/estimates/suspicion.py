"""When a batch is late enough to doubt its slice, and when such a slice may be free again."""

from math import ceil

LAG_US = 10_000  # a batch may be this late, or LAG_SHARE of its predicted time, before its slice is doubted
LAG_SHARE = 0.2


def suspect_us(started_us: int, predicted_us: float) -> int:
    """Return the instant from which a batch that is still out makes its slice suspect."""
    return started_us + ceil(predicted_us + max(LAG_US, LAG_SHARE * predicted_us))


def believed_us(due_us: int, now_us: int) -> int:
    """Return when a batch that was due at `due_us` will be back; a late one, after as long again as it is
    late.

    A stall that has lasted a time t is expected to last about as long again (Lindy's law: stalls are
    heavy-tailed), so hiccups are waited for and a dead worker is believed in less and less.
    """
    return due_us if due_us > now_us else now_us + (now_us - due_us)
