"""What is counted since the start, by model, by tenant of a model (a flow), by variant, by slice."""

from typing import Final, TypedDict

from router.observing.telemetry.counting.histogram import (
    BATCH,
    CONFIDENCE,
    DURATION,
    LAG,
    PARSE,
    RATIO,
    Histogram,
)
from router.observing.telemetry.counting.spending import Spending
from router.observing.telemetry.counting.streamed import StreamedCounts
from router.observing.telemetry.counting.windows import WINDOWS_S, Windows, burn_rate
from serving.ports import Reply
from serving.values.objectives import PERCENTILE
from serving.values.vocabulary import (
    BAD_INPUT,
    CLIENT_GONE,
    COMPLETED,
    FORBIDDEN,
    RATE_LIMITED,
    TOO_LARGE,
    UNAUTHENTICATED,
    UNKNOWN_MODEL,
    Kind,
    Outcome,
)

UNKNOWN: Final = "unknown"
"""The label of every model that is not served, so that clients cannot invent label values."""

OWN_DOING: Final = frozenset((BAD_INPUT, TOO_LARGE, UNKNOWN_MODEL, UNAUTHENTICATED, FORBIDDEN, RATE_LIMITED))
"""Endings that are their client's own doing; no promise was made to such a request."""

OTHER: Final = "other"
VARIANTS_MAX: Final = 32
TIERS_MAX: Final = 32
"""Of a model so many variants and tiers are told apart, those that answered first; all more are OTHER. An
ensemble of ten has a name for each of a thousand selections of its members."""


class Counters(TypedDict):
    """What happened to one model since the start; `penstock status` takes its rates from it.

    `offered` requests were promised an answer in time, `good` of them had one, `missed` says why the others
    had not, by reason ("late": completed too late). `rejected`, `shed`, `failed`: all requests, by reason.
    `rows`: of completed requests; `goodput_rows`: of requests in time. `burn`: error budget burn by window,
    if anything was offered in it. `batches` of `batch_rows` rows together took `compute_us`. `answers`:
    completed requests by tier ("" for none) and variant. `accuracy_rows`: the sum of accuracies over the
    `measured_rows` that a variant with known accuracy answered. `downgrades`: requests that another variant
    answered than without pressure, by reason. `latency_counts`: completed requests by `latency_bounds_us`,
    the last count above all.
    """

    requests: int
    completed: int
    rejected: dict[str, int]
    shed: dict[str, int]
    failed: dict[str, int]
    cancelled: int
    offered: int
    good: int
    missed: dict[str, int]
    rows: int
    goodput_rows: int
    burn: dict[str, float]
    batches: int
    batch_rows: int
    compute_us: int
    answers: dict[str, dict[str, int]]
    accuracy_rows: float
    measured_rows: int
    downgrades: dict[str, int]
    latency_bounds_us: list[int]
    latency_counts: list[int]


class FlowCounts:
    """The requests of one tenant for one model."""

    __slots__ = (
        "completed", "duration", "gone_late", "good", "good_rows", "labels", "missed", "missed_rows",
        "others", "rows", "windows",
    )  # fmt: skip

    def __init__(self, labels: str, duration: Histogram) -> None:
        self.labels = labels
        self.completed = 0
        self.rows = 0  # of completed requests
        self.good = 0  # completed in time
        self.good_rows = 0
        self.others: dict[Outcome, int] = {}  # all but completed
        self.missed = 0  # of the others those that were promised an answer in time
        self.missed_rows = 0
        self.gone_late = 0  # misses of clients that left after their deadline
        self.duration = duration
        self.windows = Windows()

    @property
    def offered(self) -> int:
        """Requests that were promised an answer in time."""
        return self.completed + self.missed

    @property
    def offered_rows(self) -> int:
        """Their rows."""
        return self.rows + self.missed_rows

    @property
    def violations(self) -> int:
        """Those that were not completed in time."""
        return self.offered - self.good

    def window_counts(self, now_us: int) -> list[tuple[int, int]]:
        """Return (offered, good) within each window."""
        return self.windows.counts(self.offered, self.good, now_us)

    def miss(self, outcome: Outcome, rows: int, late: bool) -> None:
        """Count a request that was not completed, if it was promised to be. `late`: it ended after its
        deadline."""
        if outcome in OWN_DOING or (outcome is CLIENT_GONE and not late):
            return
        self.missed += 1
        self.missed_rows += rows
        self.gone_late += outcome is CLIENT_GONE


class VariantCounts:
    """The batches of one variant of a model."""

    __slots__ = ("compute", "labels", "ratio", "requests", "rows", "transport", "typical")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.rows = Histogram(BATCH)
        self.requests = Histogram(BATCH)
        self.compute = Histogram(DURATION)
        self.transport = Histogram(PARSE)
        self.ratio = Histogram(RATIO)
        self.typical = Histogram(RATIO)


class AnswerCounts:
    """What a variant answered to requests of a tier: requests, rows, those rows again where its accuracy is
    known, and the sum of that over them."""

    __slots__ = ("accuracy_rows", "labels", "measured_rows", "requests", "rows")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.requests = 0
        self.rows = 0
        self.measured_rows = 0
        self.accuracy_rows = 0.0


class SelectedCounts:
    """Requests that were answered by several variants together, or by one that was learnt. Their members'
    own requests are counted as all are; here each is one.

    `answers`: those completed, by the name of what answered; of their votes those `asked` for, and those
    `missing` that came too late or not at all; how sure they were together."""

    __slots__ = ("answers", "asked", "confidence", "good", "missing", "outcomes")

    def __init__(self) -> None:
        self.outcomes: dict[Outcome, int] = {}
        self.good = 0  # completed in time
        self.answers: dict[str, int] = {}
        self.asked = 0
        self.missing = 0
        self.confidence = Histogram(CONFIDENCE)

    def add(self, reply: Reply, in_time: bool) -> None:
        """Count an answered request."""
        outcome = reply.outcome
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if outcome is not COMPLETED:
            return
        self.good += in_time
        name = reply.variant
        if name not in self.answers and len(self.answers) >= VARIANTS_MAX:
            name = OTHER
        self.answers[name] = self.answers.get(name, 0) + 1
        if reply.votes:
            came, _, asked = reply.votes.partition("/")
            self.asked += int(asked)
            self.missing += int(asked) - int(came)
        if reply.confidence is not None:
            self.confidence.observe(round(reply.confidence * 1000))


class KeptCounts:
    """Completed requests that were not computed: they had a kept answer, or joined another request.

    `waited_us`: for that other request's answer; `took_us`: all the rest of their time, edges included.
    """

    __slots__ = ("requests", "took_us", "waited_us")

    def __init__(self) -> None:
        self.requests = self.took_us = self.waited_us = 0


class ModelCounts:
    """One model. With `by_tenant` each of its flows has a histogram of durations, else all share one.

    One that is `served` no longer keeps its counts, but has no gauges.
    """

    __slots__ = (
        "_named", "_shared", "answers", "asked", "compute_us", "downgrades", "durations", "edge_us",
        "filling", "flows", "input_us", "kept", "labels", "last_us", "looked", "looks", "name", "objective",
        "others", "others_us", "output_us", "parse", "queue", "selected", "served", "sizes", "slo_us",
        "streamed", "variants",
    )  # fmt: skip

    def __init__(self, name: str, slo_us: int, by_tenant: bool) -> None:
        self.name = name
        self.labels = f'model="{escape(name)}"'
        self.slo_us = slo_us
        self.objective = PERCENTILE / 100  # the share of its requests that is promised to be in time
        self.served = True
        self.flows: dict[str, FlowCounts] = {}  # by tenant
        self.others: dict[Outcome, int] = {}  # requests of all flows that were not completed
        self.others_us = 0  # arrival to end of those that had become calls
        self.variants: dict[str, VariantCounts] = {}
        self.answers: dict[str, dict[str, AnswerCounts]] = {}  # by tier and variant
        self._named: set[str] = set()  # variants that have answered
        self.downgrades: dict[str, list[int]] = {}  # by reason: requests, rows
        self.selected: SelectedCounts | None = None  # None until its variants have been selected from
        self.streamed: StreamedCounts | None = None  # None until it has given an answer of many
        self.asked: dict[str, list[int]] = {}  # what the cache did: how often, its look-ups in us
        self.looked: dict[str, int] = {}  # what other gateways' answers were asked, by result
        self.looks = Histogram(PARSE)
        self.sizes: dict[int, list[int]] = {}  # rows of a batch: how many, their input, compute, output in us
        self.last_us = 0  # when a batch last came back
        self.parse = Histogram(PARSE)
        self.queue = Histogram(DURATION)
        self.filling = Histogram(DURATION)
        self.durations: list[tuple[str, Histogram]] = []  # with their labels
        self.compute_us = 0  # each completed request's own, however many shared a batch
        self.input_us = self.output_us = 0  # of the same what went before that, but for waits, and after it
        self.kept = KeptCounts()
        self.edge_us = 0  # of completed requests what their edges took before arrival and after the core
        self._shared = None if by_tenant else Histogram(DURATION)
        if self._shared is not None:
            self.durations.append((self.labels, self._shared))

    def flow(self, tenant: str) -> FlowCounts:
        """Return the tenant's counts, made where there are none yet."""
        flow = self.flows.get(tenant)
        if flow is None:
            labels = f'{self.labels},tenant="{escape(tenant)}"'
            duration = self._shared
            if duration is None:
                duration = Histogram(DURATION)
                self.durations.append((labels, duration))
            flow = self.flows[tenant] = FlowCounts(labels, duration)
        return flow

    def end(self, flow: FlowCounts, outcome: Outcome) -> None:
        """Count a request of the flow that was not completed."""
        self.others[outcome] = self.others.get(outcome, 0) + 1
        flow.others[outcome] = flow.others.get(outcome, 0) + 1

    def variant(self, name: str) -> VariantCounts:
        """Return the variant's counts, made where there are none yet."""
        counts = self.variants.get(name)
        if counts is None:
            counts = self.variants[name] = VariantCounts(f'{self.labels},variant="{escape(name)}"')
        return counts

    def answered(self, tier: str, reply: Reply, rows: int) -> None:
        """Count a completed request of the tier ("" for none)."""
        by_variant = self.answers.get(tier)
        counts = by_variant.get(reply.variant) if by_variant is not None else None
        if counts is None:
            counts = self.answer(tier, reply.variant)
        counts.requests += 1
        counts.rows += rows
        accuracy = reply.accuracy
        if accuracy is not None:
            counts.measured_rows += rows
            counts.accuracy_rows += accuracy * rows
        if reply.downgrade:
            downgraded = self.downgrades.setdefault(reply.downgrade, [0, 0])
            downgraded[0] += 1
            downgraded[1] += rows

    def answer(self, tier: str, variant: str) -> AnswerCounts:
        """Return what the variant answered to the tier, made where there is nothing yet; within the
        bounds."""
        if tier not in self.answers and len(self.answers) >= TIERS_MAX:
            tier = OTHER
        if variant not in self._named and len(self._named) >= VARIANTS_MAX:
            variant = OTHER
        self._named.add(variant)
        by_variant = self.answers.setdefault(tier, {})
        counts = by_variant.get(variant)
        if counts is None:
            labels = f'{self.labels},variant="{escape(variant)}",tier="{escape(tier)}"'
            counts = by_variant[variant] = AnswerCounts(labels)
        return counts

    def ran(self, rows: int, took_us: tuple[int, int, int], now_us: int) -> None:
        """Count a batch that came back; `took_us`: the time to start, to run and to return."""
        counts = self.sizes.get(rows)
        if counts is None:
            counts = self.sizes[rows] = [0, 0, 0, 0]
        input_us, compute_us, output_us = took_us
        counts[0] += 1
        counts[1] += max(input_us, 0)
        counts[2] += compute_us
        counts[3] += output_us
        self.last_us = now_us

    def summary(self, now_us: int) -> Counters:
        """Return all its flows and variants together."""
        flows, variants = list(self.flows.values()), list(self.variants.values())
        rejected, shed, failed = map(self._by_reason, (Kind.REJECTED, Kind.SHED, Kind.FAILED))
        answers = [each for by_variant in self.answers.values() for each in by_variant.values()]
        completed = sum(flow.completed for flow in flows)
        good = sum(flow.good for flow in flows)
        missed = {**rejected, **shed, **failed, "late": completed - good}
        missed[CLIENT_GONE.reason.value] = sum(flow.gone_late for flow in flows)
        for outcome in OWN_DOING:
            missed.pop(outcome.reason.value, None)
        return {
            "requests": completed + sum(self.others.values()),
            "completed": completed,
            "rejected": rejected,
            "shed": shed,
            "failed": failed,
            "cancelled": self.others.get(CLIENT_GONE, 0),
            "offered": sum(flow.offered for flow in flows),
            "good": good,
            "missed": {reason: count for reason, count in missed.items() if count},
            "rows": sum(flow.rows for flow in flows),
            "goodput_rows": sum(flow.good_rows for flow in flows),
            "burn": _burn(flows, self.objective, now_us),
            "batches": sum(sum(each.rows.counts) for each in variants),
            "batch_rows": sum(each.rows.total for each in variants),
            "compute_us": sum(each.compute.total for each in variants),
            "answers": {
                tier: {variant: counts.requests for variant, counts in by_variant.items()}
                for tier, by_variant in self.answers.items()
            },
            "accuracy_rows": sum([each.accuracy_rows for each in answers], 0.0),
            "measured_rows": sum(each.measured_rows for each in answers),
            "downgrades": {reason: requests for reason, (requests, _) in self.downgrades.items()},
            "latency_bounds_us": list(DURATION.bounds),
            "latency_counts": self._latency_counts(),
        }

    def _by_reason(self, kind: Kind) -> dict[str, int]:
        return {each.reason.value: count for each, count in self.others.items() if each.kind is kind}

    def _latency_counts(self) -> list[int]:
        counts = [histogram.counts for _, histogram in self.durations]
        return [sum(column) for column in zip(*counts, strict=True)] or [0] * (len(DURATION.bounds) + 1)


def _burn(flows: list[FlowCounts], objective: float, now_us: int) -> dict[str, float]:
    by_window = zip(*(flow.window_counts(now_us) for flow in flows), strict=True)
    sums = [[sum(part) for part in zip(*counts, strict=True)] for counts in by_window]
    found = zip(WINDOWS_S, sums, strict=False)  # without a flow there are no sums
    return {window: burn_rate(offered, good, objective) for window, (offered, good) in found if offered}


class Loads:
    """Of one model: replicas that were loaded, the time that took, loads that failed, replicas that went, and
    those that were taken over."""

    __slots__ = ("failed", "kept", "labels", "load_us", "loaded", "unloaded")

    def __init__(self, model: str) -> None:
        self.labels = f'model="{escape(model)}"'
        self.loaded = self.load_us = self.failed = self.unloaded = self.kept = 0


class Ledger:
    """Everything that is counted."""

    def __init__(self) -> None:
        self.models: dict[str, ModelCounts] = {}
        self.unknown = ModelCounts(UNKNOWN, 0, by_tenant=False)
        self.restarts: dict[str, int] = {}  # by slice
        self.suspicions: dict[str, int] = {}
        self.loads: dict[str, Loads] = {}  # by model
        self.overran: dict[str, int] = {}  # by model
        self.refused_outputs: dict[tuple[str, str], int] = {}  # by model and output
        self.lag = Histogram(LAG)
        self.stalls = 0  # of the event loop
        self.stall_max_us = 0
        self.spending = Spending()

    def busy_us(self) -> dict[str, int]:
        """Return the time in us that each slice has computed; 0 for a slice that has not computed yet."""
        return dict.fromkeys(self.restarts, 0) | self.spending.busy()


def outcome_counts(flow: FlowCounts) -> list[tuple[Outcome, int]]:
    """Return how often its requests ended in each way that has been seen; completed always."""
    return [(COMPLETED, flow.completed), *flow.others.items()]


def escape(value: str) -> str:
    """Return a label value as it stands between quotes."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
