"""The time that a call may wait for an answer that another gateway computes, before it is computed here."""

LEASE_MIN_US = 10_000
LEASE_MAX_US = 60_000_000

AGAIN_US = 2_000
"""The first pause between two looks for the answer; each look travels with other looks in one round trip."""


def patience_us(deadline_us: int, least_us: int, now_us: int) -> int:
    """Return how long a call may wait: half of the time that a computation would leave until its deadline.

    `least_us`: the least time of a computation. If no answer comes, as after another gateway's crash, the
    other half still suffices to compute it in time.
    """
    return max(0, (deadline_us - now_us - least_us) // 2)


def lease_us(deadline_us: int, now_us: int) -> int:
    """Return how long other gateways leave a key to the one that computes it.

    That is until the request's deadline: by then it is answered or given up.
    """
    return min(max(deadline_us - now_us, LEASE_MIN_US), LEASE_MAX_US)


def again_us(since_us: int, now_us: int, until_us: int) -> int:
    """Return when to look again, after waiting since `since_us`.

    The pauses grow with the wait. So few looks find an answer at most a quarter of the wait after it came.
    """
    return min(now_us + max(AGAIN_US, (now_us - since_us) // 4), until_us)
