"""How long a call that another gateway computes may wait for that, instead of being computed here too."""

LEASE_MIN_US = 10_000
LEASE_MAX_US = 60_000_000

AGAIN_US = 2_000
"""The first pause between two looks for the answer; each is a part of another look-up's round trip."""


def patience_us(deadline_us: int, least_us: int, now_us: int) -> int:
    """How long it may wait: half of what a computation, of at least `least_us`, would leave until its
    deadline. So it can still be computed in time where nothing comes, as after a gateway's crash."""
    return max(0, (deadline_us - now_us - least_us) // 2)


def lease_us(deadline_us: int, now_us: int) -> int:
    """For how long others leave a question to who computes it: until its deadline, when it is answered or
    given up."""
    return min(max(deadline_us - now_us, LEASE_MIN_US), LEASE_MAX_US)


def again_us(since_us: int, now_us: int, until_us: int) -> int:
    """When to look again, after waiting since `since_us`: pauses grow with the wait, so that an answer is
    found at most a quarter later than it came, by few looks."""
    return min(now_us + max(AGAIN_US, (now_us - since_us) // 4), until_us)
