"""The fewest replicas that carry what comes, by a policy that knows all arrivals.

A bound for simulations, to tell what is lost for want of foresight from what no scaling could have saved. It
knows the rate of each second, not the arrivals within: queues and noise below that are the capacity table's.
"""

from collections.abc import Callable

from serving.policy.scaling.interface import View, Wish

PERIOD_US = 1_000_000
SPAN_US = 1_000_000  # over which rates are taken


class Oracle:
    """`future`: rows a second that come between two instants. `target`: the share of what replicas carry that
    is made use of, 1 by default; `cv` of the gaps within a second."""

    period_us = PERIOD_US

    __slots__ = ("_cv", "_future", "_target")

    def __init__(
        self, future: Callable[[int, int], float], target: float | None = None, cv: float = 1.0
    ) -> None:
        self._future, self._cv = future, cv
        self._target = 1.0 if target is None else target

    def decide(self, view: View) -> Wish:
        """Return each second: up as early as a start takes, down at once."""
        start_us, end_us = view.now_us, view.now_us + view.start_us + PERIOD_US
        peak = max(self._future(at_us, at_us + SPAN_US) for at_us in range(start_us, end_us + 1, PERIOD_US))
        capacity = view.capacities.get(view.variant)
        if capacity is None:
            count = view.ready + view.coming
        else:
            count = capacity.needed(peak / self._target, self._cv, max(view.most, 1))
        carried = capacity.rate(view.ready, self._cv) if capacity is not None else 0.0
        return Wish(
            min(max(count, view.least), view.most),
            f"{peak:.0f} rows a second will come within {(end_us - start_us) / 1e6:g} s",
            pressure=peak / (self._target * carried) if carried else 0.0,
            figures={"peak": peak},
        )
