"""The batch that the SLO is best met with at a model's present rate, and what a larger one saves.

Symphony's estimator (arXiv 2308.07470): n = rate * l(b) / b slices carry the load, and the target is the
largest b with l(b) (1 + 1/n) <= SLO. As l(b) / n = b / rate, that is what a batch's first row waits for and
takes: l(b) + b / rate <= SLO, which is also Nexus's rule for less than one slice's worth of load.
"""

from serving.policy.batching.interface import ArrivalView, BatchReport, ReplicaView
from serving.policy.estimates.rates import SizeRates

MEMOS = 4096  # results of pure functions, before all are made anew: 400 slices may have ten each
REVIEW_US = 50_000  # how old derived sizes may grow
KEPT = 0.97  # of the rows a second that the largest batch carries
SPREAD = 1.1  # arrivals come unevenly: so many more fill batches nearly always
PROBE_EVERY_US, PROBE_US = 1_000_000, 250_000
"""So often and so long, in overload, the largest batches are tried: what they take may be known wrongly, and
then smaller ones would be formed for ever."""


TRY_ROWS_MAX, TRY_EVERY = 2, 4
"""Of batches of so few rows, one in so many is tried with a row more, until enough have shown what it takes.
Of larger ones it is known: a row of a larger batch is not dearer than of those that ran (`Drift`)."""


def tried_rows(replica: ReplicaView, size: int, rows: int, most: int, now_us: int) -> int:
    """Return how many rows to try in overload, where only `rows` seem to fit the SLO; mostly `rows`.

    An estimate may say wrongly that one more does not fit. Without a try no batch would ever show it, and it
    would hold for ever. `most`: what waits and is allowed.
    """
    larger = min(rows + 1, most)
    if larger <= rows or replica.is_tried(larger, size):
        return rows
    took_us = max(int(replica.typical_us(rows, size)), 1)
    return larger if now_us % (TRY_EVERY * took_us) < took_us else rows


def target_rows(replica: ReplicaView, bucket: int, slo_us: float, rate: float, size: int = 0) -> int:
    """Return the target at `rate` rows a microsecond, at least 1; 1 if nothing comes. `size`: the usual size
    of the bucket's batches, if known."""
    low, high = 1, replica.rows_max(bucket) if rate else 1
    size = size or bucket
    while low < high:
        rows = (low + high + 1) // 2
        if replica.predict_us(rows, size) + rows / rate <= slo_us:
            low = rows
        else:
            high = rows - 1
    return low


def worth_target(replica: ReplicaView, bucket: int, slo_us: float, rate: float, size: int = 0) -> int:
    """Return `target_rows`, as far as larger batches carry more."""
    return min(target_rows(replica, bucket, slo_us, rate, size), replica.rows_worth(bucket))


def filling_rate(
    replica: ReplicaView, size: int, slo_us: float, target: int, now_us: int = PROBE_US
) -> float:
    """Return the rows a microsecond that fill batches in overload, each before its rows have waited too long.

    A batch of b rows takes only rows that came in the last SLO - l(b): the others would be late. So it finds
    b rows where b / (SLO - l(b)) come, which in a tight SLO is far more than slices carry; the rest is given
    up as it waits. The smallest batch counts that carries KEPT of what one of `target` rows does: the longer
    batches gain little, and make many requests wait in vain.
    Where batches of `target` rows have not shown lately what they take, they are filled for a while of every
    second.
    """
    probes = now_us % PROBE_EVERY_US < PROBE_US and not replica.is_proven(target, size)
    least = KEPT * target / replica.typical_us(target, size)
    low, high = target if probes else 1, target
    while low < high:
        rows = (low + high) // 2
        if rows / replica.typical_us(rows, size) >= least:
            high = rows
        else:
            low = rows + 1
    for took_us in (replica.predict_us(low, size), replica.typical_us(low, size)):  # else run in hope
        if took_us < slo_us:
            return SPREAD * low / (slo_us - took_us)
    return 0.0


def mean_target(replica: ReplicaView, bucket: int, slo_us: float, rate: float, size: int = 0) -> float:
    """Return `worth_target` plus the part of a further row that still meets the SLO in the mean: some batches
    are larger by a row. If batches have few rows, a whole row more or less is half of what they carry."""
    rows = worth_target(replica, bucket, slo_us, rate, size)
    if not rate or rows >= replica.rows_worth(bucket):
        return float(rows)
    size = size or bucket
    here_us = replica.predict_us(rows, size) + rows / rate
    further_us = replica.predict_us(rows + 1, size) + (rows + 1) / rate
    return rows + max(0.0, (slo_us - here_us) / (further_us - here_us))


def row_us(replica: ReplicaView, rows: float, size: int) -> float:
    """Return a slice's time for a row in batches of `rows` rows in the mean; `rows` is at least 1."""
    whole = int(rows)
    took_us = replica.typical_us(whole, size)
    if rows > whole:
        took_us += (rows - whole) * (replica.typical_us(whole + 1, size) - took_us)
    return took_us / rows


def saving_us(replica: ReplicaView, size: int, rows: int, target: int) -> float:
    """Return beta: the part of a batch's latency that does not grow with its rows, between `rows` and
    `target`."""
    here_us = replica.typical_us(rows, size)
    slope_us = (replica.typical_us(target, size) - here_us) / (target - rows)
    return here_us - rows * slope_us


class Targets:
    """The targets of one model by size bucket, from the arrivals that it counts."""

    __slots__ = ("_known", "_rates", "_slo_us")

    def __init__(self, slo_us: int) -> None:
        self._slo_us = slo_us
        self._rates = SizeRates()
        self._known: dict[tuple[int, int], tuple[int, int, float]] = {}  # a memo of `at`

    def count(self, request: ArrivalView, now_us: int) -> None:
        """Count a request that joined the queue."""
        self._rates.count(request.bucket, request.rows, now_us)

    def ran(self, report: BatchReport) -> None:
        """Note that a batch is back, with the size of its largest row."""
        self._rates.ran(report.bucket, report.size)

    def at(self, replica: ReplicaView, bucket: int, now_us: int) -> tuple[int, float]:
        """Return the target in rows and the rate in rows a microsecond, at most REVIEW_US old.

        While no rate is known, a batch may take half the SLO, and its first row may wait for as long (Nexus).
        """
        key = (id(replica), bucket)
        known = self._known.get(key)
        if known is not None and now_us - known[0] < REVIEW_US:
            return known[1:]
        rate, size = self._rates.surge(bucket, now_us), self._rates.usual(bucket)
        if rate:
            target = target_rows(replica, bucket, self._slo_us, rate, size)
        else:
            target = max(1, min(replica.rows_max(bucket), replica.rows_in(self._slo_us / 2, size)))
        if len(self._known) > MEMOS:  # replicas come and go
            self._known.clear()
        self._known[key] = (now_us, target, rate)
        return target, rate
