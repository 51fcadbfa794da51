"""How many replicas keep a model's latency promise: no threshold to tune, but what tables and chance say.

Each second: how much comes (`envelope.py`), how bursty it is (`burstiness.py`), where it leads to by the time
that a replica asked for now would be there; how many replicas carry that, by the table of what is answered in
time, as far as it has proved true (`trust.py`). Up at once; down when for a while (`hold.py`) even the most
that chance allows would have fitted; to none when nobody is likely to ask soon (`keepalive.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from statistics import NormalDist

from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.interface import PlannedBand, View, Wish
from serving.policy.scaling.load.budget import HEADROOM, LEVELS, PATIENCE, Budget
from serving.policy.scaling.load.burstiness import Burstiness
from serving.policy.scaling.load.busy_share import FULL, TOLERANCE, BusyShare
from serving.policy.scaling.load.envelope import Envelope, Estimate
from serving.policy.scaling.load.hold import STARTS, Hold, hold_us
from serving.policy.scaling.load.keepalive import KeepAlive
from serving.policy.scaling.load.trust import Claimed, Trust

STEADY_S = 16.0
"""A rate that has been one for so long is no transient: what is missed then tells of the table."""
IDLE = 0.25
"""Of their time: replicas that are busy for less are not what is missing where rows are missed all the same
(the gateway's own core is, or another's that the slices share)."""
SIGMAS = NormalDist().inv_cdf(STARTS / (STARTS + 1))
"""1.34. A replica that is missing is as bad as STARTS idle ones (`hold.py`), so where more are needed, enough
is that quantile of what the rate may be: the newsvendor's (Arrow, Harris and Marschak 1951). Soon after a
jump that is more than what was counted."""
STEPS = 4
"""Down, in the time that a count is held: one replica after the other would be one change after the other."""


@dataclass(frozen=True, slots=True)
class ReplicaNeed:
    """Numbers of replicas. `now`: for what will come by the time that another replica would be there.
    `likely`: beyond it, more would hardly pay. `calm`: for what comes, even if that is the most that chance
    allows. `surely`: for what comes, even if that is the least. `backlog`: for what waits already. `chance`:
    `now`, if all bursts were chance, while fewer have proved enough; else 0."""

    now: int
    likely: int
    calm: int
    surely: int
    backlog: int = 0
    chance: int = 0

    def at_most(self, enough: int) -> "ReplicaNeed":
        """Return the need with no more than `enough` replicas for what comes."""
        now, likely, calm = (min(count, enough) for count in (self.now, self.likely, self.calm))
        return replace(self, now=now, likely=likely, calm=calm, chance=self.now if self.now > now else 0)


class CarriedRates:
    """What replicas carry by a table as far as it is trusted, at one burstiness. Rates are rows a second."""

    def __init__(self, capacity: Capacity, cv: float, trusted: float) -> None:
        self._capacity, self.cv, self._trusted = capacity, cv, trusted

    def rate(self, count: float) -> float:
        """Return the rate that `count` replicas answer in time."""
        return self._capacity.rate(count, self.cv) * self._trusted

    def needed(self, rate: float, most: int) -> int:
        """Return the fewest that carry it; `most` where no fewer do."""
        return self._capacity.needed(rate / self._trusted, self.cv, most)

    def fraction(self, rate: float, most: int) -> float:
        """Return how many would just carry it, if there were parts of one; in proportion beyond `most`."""
        count = self.needed(rate, most)
        below, here = self.rate(count - 1), self.rate(count)
        if here <= below:
            return float(count)
        if rate > here:
            return count * rate / here
        return max(count - 1 + (rate - below) / (here - below), 0.0)

    @property
    def saturated(self) -> float:
        """What one works off while many others do too and rows wait, however late: the most of a replica
        that the table has anywhere. In large numbers chance evens out, and the promise costs next to
        nothing."""
        rates = self._capacity.rates[0]
        return (
            max(rate / count for rate, count in zip(rates, self._capacity.counts, strict=True))
            * self._trusted
        )


class SloReplicas:
    """The state of one model."""

    def __init__(self) -> None:
        self.period_us = 1_000_000
        self._envelope = Envelope()
        self._bursts = Burstiness()
        self._alive = KeepAlive()
        self._trust = Trust()
        self._budget = Budget()
        self._played: tuple[Capacity | None, float, float, Sequence[float]] = (None, 0.0, 0.0, ())
        self._hold = Hold()
        self._foreseen = Hold()
        self._load = BusyShare()
        # what was wished and planned before it was known how many are enough took all bursts for chance, so
        # from then on no more than are enough are held for it
        self._learnt = False
        self._stale: PlannedBand | None = None
        self._count = -1
        self._ready = 0
        self._since_us = 0  # the last that `ready` changed
        self._lowered_us = 0

    def decide(self, view: View) -> Wish:
        """Return the wish for this look, once a second."""
        estimate = self._learn(view)
        capacity = view.capacities.get(view.variant) or next(iter(view.capacities.values()), None)
        if capacity is None or capacity.rate(view.most) <= 0:
            return self._by_load(view, known=capacity is not None)
        carried = CarriedRates(capacity, self._bursts.cv, self._trust.factor)
        self._judge(view, estimate, capacity)
        within = CarriedRates(capacity, self._bursts.within, self._trust.factor)
        enough = self._enough(view, estimate, within, capacity)
        need = _need(view, estimate, carried, estimate.cautious(self._bursts.cv**2, SIGMAS))
        if enough is not None:
            need = need.at_most(enough)
        count = self._settle(view, need)
        shown = carried if enough is None else within
        return Wish(
            count,
            self._why(view, estimate, carried, need, count),
            f"above {shown.rate(count):.0f} rows/s" if count < view.most else "",
            self._down(view, shown, need, count),
            self._kept(view, enough),
            standby=_standby(view, count),
            pressure=_pressure(view, estimate, carried, enough),
            cv=self._bursts.cv if enough is None else within.cv,
            figures=self._figures(estimate, carried, need),
        )

    def _by_load(self, view: View, known: bool) -> Wish:
        """Return the wish by load, if no number of replicas keeps the SLO, or none is known to. It asks for
        as many as are busy for no more than FULL of the time."""
        share = self._load.share
        needed = min(ceil(share / FULL), view.most)
        calm = min(ceil(share / (FULL * (1 - TOLERANCE))), view.most)
        count = self._settle(view, ReplicaNeed(needed, needed, calm, needed))
        reason = "no number of replicas is known to keep" if known else "it is not known yet how many keep"
        of = f" by {view.variant}" if view.variant else ""
        return Wish(
            count,
            f"{reason} {view.slo_us / 1000:.0f} ms{of}; {share:.1f} are busy, {count} for at most {FULL:.0%}",
            f"busier than {FULL * count:.1f}" if count < view.most else "",
            f"busy below {FULL * (count - 1):.1f}" if count > max(view.least, 1) else "",
            standby=_standby(view, count),
            pressure=_thousandths(share / FULL / max(view.ready, 1)),
            figures={"busy": share, "needed": float(needed)},
        )

    def _learn(self, view: View) -> Estimate:
        seen, before, period_s = view.seen, view.before, view.period_us / 1e6
        rows = seen.offered - before.offered
        self._envelope.add(rows, view.period_us, view.now_us)
        requests = seen.requests - before.requests
        self._bursts.add(rows, requests, seen.gaps_s2 - before.gaps_s2, period_s)
        self._budget.add(rows, seen.missed - before.missed, period_s)
        self._load.add(seen.busy_us - before.busy_us, view.period_us)
        self._alive.look(rows > 0 or seen.waiting > 0 or seen.running > 0, period_s)
        # a replica asked for at the next look is there `start_us` after it
        return self._envelope.estimate(self._bursts.cv**2, (view.start_us + view.period_us) / 1e6)

    def _judge(self, view: View, estimate: Estimate, capacity: Capacity) -> None:
        """Judge by the misses whether the table promises too much.

        Only a steady rate counts, and only replicas that were there all the time. So a jump, a start or a
        death says nothing against the table.
        """
        period_s = view.period_us / 1e6
        self._trust.forget(period_s)
        if view.ready != self._ready:
            self._ready, self._since_us = view.ready, view.now_us
            self._trust.doubt()
        claimed = capacity.rate(view.ready, self._bursts.cv)
        steady = estimate.window_s >= STEADY_S and estimate.ahead <= claimed * self._trust.factor
        if not steady or self._load.share < IDLE * view.ready or claimed <= 0:
            self._trust.doubt()
        elif view.now_us - self._since_us > view.period_us + view.slo_us:  # what is missed now came since
            crowd = estimate.rate * view.slo_us / 1e6 * self._bursts.cv
            offered = view.seen.offered - view.before.offered
            missed = view.seen.missed - view.before.missed
            self._trust.look(offered, missed, period_s, Claimed(claimed, 1 - view.percentile / 100), crowd)

    def _enough(self, view: View, estimate: Estimate, within: CarriedRates, capacity: Capacity) -> int | None:
        """Return the replicas that keep the promise with the coming load, if it is of the kind that came.

        Returns None if it is not, or if that is not known yet.
        """
        period_s, patience_s = view.period_us / 1e6, PATIENCE * view.slo_us / 1e6
        rows = view.seen.offered - view.before.offered
        self._budget.play(rows, self._levels(capacity), period_s, patience_s, view.ready)
        enough = self._budget.enough(1 - view.percentile / 100)
        if enough is None or within.needed(estimate.low, view.most) > enough:
            return None
        if not self._learnt:
            self._learnt, self._stale = True, view.band
            self._hold, self._foreseen = Hold(), Hold()
            self._hold.most(min(self._count, enough), view.now_us, hold_us(view.start_us))
        return enough

    def _levels(self, capacity: Capacity) -> Sequence[float]:
        """Return what each of LEVELS carries for certain, made anew where that has changed."""
        within = ceil(10 * self._bursts.within) / 10
        if self._played[:3] != (capacity, within, self._trust.factor):
            carried = CarriedRates(capacity, within, HEADROOM * self._trust.factor)
            rates = [carried.rate(level) for level in LEVELS]
            self._played = (capacity, within, self._trust.factor, rates)
        return self._played[3]

    def _settle(self, view: View, need: ReplicaNeed) -> int:
        band = _valid(view)
        low = band.low if band and band != self._stale else 0
        wanted = max(need.now, need.backlog, low)
        # what was foreseen is held until it must have come; if it has, it is held as what came
        foreseen = self._foreseen.most(wanted, view.now_us, 2 * view.start_us)
        held = max(foreseen, self._hold.most(max(need.calm, low), view.now_us, hold_us(view.start_us)))
        before = self._count
        if before < 0:  # whoever had them before knew why
            before = view.ready + view.coming
            held = max(held, self._hold.most(before, view.now_us, hold_us(view.start_us)))
        count = wanted if wanted > before else min(before, held)
        if wanted > view.ready:  # some are to come, and they may be more
            count = max(count, need.likely)
        if count < before:
            if view.now_us - self._lowered_us < hold_us(view.start_us) // STEPS:
                count = before
            else:
                self._lowered_us = view.now_us
        if band and count > max(band.high, before) and not _overloaded(view):
            count = max(band.high, before, min(count, need.surely))
        if view.least == 0 and not need.backlog and not low and not self._alive.keeps(view.start_us / 1e6):
            count = 0
        else:
            count = max(count, 1)
        self._count = min(max(count, view.least), view.most)
        return self._count

    def _why(
        self, view: View, estimate: Estimate, carried: CarriedRates, need: ReplicaNeed, count: int
    ) -> str:
        if count == 0:
            return "nobody has asked for it for longer than usual"
        cv, trusted = self._bursts.cv, self._trust.factor
        needed = max(need.now, 1)
        parts = [f"{estimate.rate:.0f} rows/s over {estimate.counted_s:.0f} s"]
        if cv > 1.2:
            parts.append(f"in bursts (CV {cv:.1f})")
        if estimate.ahead > 1.01 * estimate.rate:
            parts.append(f"rising to {estimate.ahead:.0f} within {view.start_us / 1e6:.0f} s")
        if need.chance:
            parts.append(f"need {needed}, as what came of late did ({need.chance}, if all of it were chance)")
            return " ".join(parts) + _other(view, need, count)
        fewer = f"{needed - 1} {_carry(needed - 1)} {carried.rate(needed - 1):.0f}, " if needed > 1 else ""
        enough = f"{needed} {_carry(needed)} {carried.rate(needed):.0f}"
        parts.append(f"need{'s' if needed == 1 else ''} {needed} ({fewer}{enough})")
        text = " ".join(parts)
        if trusted < 0.99:
            text += f"; what was missed says that they carry {trusted:.0%} of what the table says"
        return text + _other(view, need, count)

    def _kept(self, view: View, enough: int | None) -> str:
        """Return in words what the promise leaves to miss, and what follows from that."""
        allowed = 1 - view.percentile / 100
        known = "how many would be enough for that is not known for what comes"
        if enough is not None:
            known = f"{enough} at all times would be enough for that"
        held_s = hold_us(view.start_us) // 1_000_000
        return (
            f"{allowed:.2%} may be missed, {self._budget.missed:.2%} were in the last hour; {known}; a count "
            f"is held for {held_s} s, and what it rises to is enough {STARTS} times of {STARTS + 1}"
        )

    def _down(self, view: View, carried: CarriedRates, need: ReplicaNeed, count: int) -> str:
        if count <= view.least:
            return ""
        if count == 1:
            return "nobody asks for it for longer than usual" if view.least == 0 else ""
        held_s = hold_us(view.start_us) // 1_000_000
        if need.chance and count <= need.now:
            return f"when {count - 1} would have kept the promise too"
        return f"surely below {carried.rate(count - 1):.0f} rows/s for {held_s} s"

    def _figures(self, estimate: Estimate, carried: CarriedRates, need: ReplicaNeed) -> Mapping[str, float]:
        return {
            "rate": estimate.rate,
            "rate_low": estimate.low,
            "rate_high": estimate.high,
            "rate_ahead": estimate.ahead,
            "window_s": estimate.window_s,
            "cv": self._bursts.cv,
            "trusted": self._trust.factor,
            "needed": float(need.now),
            "needed_calm": float(need.calm),
            "missed": self._budget.missed,
            "saturated": carried.saturated,
        }


def _need(view: View, estimate: Estimate, carried: CarriedRates, cautious: float) -> ReplicaNeed:
    return ReplicaNeed(
        carried.needed(estimate.ahead, view.most),
        carried.needed(cautious, view.most),
        carried.needed(estimate.high, view.most),
        carried.needed(estimate.low, view.most),
        _backlog(view, estimate, carried),
    )


def _backlog(view: View, estimate: Estimate, carried: CarriedRates) -> int:
    """Return the replicas with which what waits is answered in time, if replicas that are asked for now can
    help. Return 0 if they come too late, or none are needed. `ReplicaNeed.now` is for what comes, so where
    nothing waits an estimated rate alone does not bring back a model that is let go."""
    if not view.seen.waiting:
        return 0
    left_s = (view.slo_us - view.seen.oldest_us) / 1e6
    help_s = left_s - view.start_us / 1e6
    there = view.ready + view.coming
    excess = view.seen.waiting + (estimate.rate - carried.saturated * there) * left_s
    if excess <= 0 or help_s <= 0:
        return 0
    return min(there + ceil(excess / (carried.saturated * help_s)), view.most)


def _standby(view: View, count: int) -> int:
    """Return 1 if one more should be loaded because growth could need it before it can start; else 0."""
    return int(count < view.most and (count == 0 or view.start_us > view.slo_us))


def _overloaded(view: View) -> bool:
    """Return whether the present replicas are too few, whatever was planned."""
    return view.seen.missed > view.before.missed or view.seen.oldest_us > view.slo_us


def _valid(view: View) -> PlannedBand | None:
    return view.band if view.band is not None and view.now_us < view.band.until_us else None


def _pressure(view: View, estimate: Estimate, carried: CarriedRates, enough: int | None) -> float:
    """Return the pressure: 1.0 if the ready replicas are just enough."""
    ready = max(view.ready, 1)
    needed = carried.fraction(estimate.ahead, view.most) / ready
    if enough is not None:
        needed = min(needed, enough / ready)
    queued = view.seen.oldest_us / view.slo_us if view.seen.waiting else 0.0
    return _thousandths(max(needed, queued))


def _thousandths(pressure: float) -> float:
    """Return the pressure rounded down to thousandths, as Kubernetes counts in these. Its autoscaler takes
    ceil(ready * pressure), and must not ask for one more because of rounding."""
    return floor(1000 * pressure + 1e-6) / 1000


def _other(view: View, need: ReplicaNeed, count: int) -> str:
    """Return why it is another count than that which is needed."""
    needed, band = max(need.now, 1), _valid(view)
    if count == needed:
        return ""
    if count == view.most and needed > count:
        return f"; {count} is the most"
    if need.backlog == count:
        return f"; {view.seen.waiting} rows wait already, so it is {count}"
    if band and band.low == count:
        return f"; the plan foresees {count}"
    if count < needed:
        return f"; the plan holds it at {count}, until that is surely too few"
    if count == view.least:
        return f"; {count} is the least"
    return f"; {count} are held, as so many were needed of late, or may be as far as chance allows"


def _carry(count: int) -> str:
    return "carries" if count == 1 else "carry"
