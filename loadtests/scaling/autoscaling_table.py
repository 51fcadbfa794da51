"""What scaling policies came to, as tables, and what ours promises of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan

from loadtests.virtual.scaled_world import Score

OURS, ORACLE, PEER = "slo", "oracle", "hpa"
BURSTY = ("flash", "cv4", "cv8")
HALF, HOURS = 0.5, 1.1
"""On bursty loads ours has at most half of the violations of PEER, for at most 1.1 times its hours."""
CHANGES_TEN_MINUTES = 1.0  # on a constant load
DOMINATED = " †"
HEADER = ("load", "policy", "violations", "replica_hours", "changes", "worst_minute", "accuracy", "cost")


@dataclass(frozen=True, slots=True)
class Row:
    """One policy on one load; it took `seconds` of a core."""

    load: str
    policy: str
    score: Score
    seconds: float

    @property
    def cells(self) -> tuple[str | float, ...]:
        """As HEADER says."""
        score = self.score
        return (
            self.load, self.policy, round(score.violations, 6), round(score.replica_hours, 4), score.changes,
            round(score.worst, 4), "" if isnan(score.accuracy) else round(score.accuracy, 4),
            round(score.cost, 4),
        )  # fmt: skip

    def dominates(self, other: "Row") -> bool:
        """Return whether this row has no more violations and replica-hours, less of one of them, and no less
        accuracy."""
        ours, theirs = self.score, other.score
        if not isnan(ours.accuracy) and ours.accuracy < theirs.accuracy:
            return False
        mine = (ours.violations, ours.replica_hours)
        its = (theirs.violations, theirs.replica_hours)
        return mine != its and all(a <= b for a, b in zip(mine, its, strict=True))


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield Markdown, policies by loads: violations and replica-hours, then changes and the worst minute.
    DOMINATED marks a policy if another one has less of both; the oracle does not count."""
    by = {(row.load, row.policy): row for row in rows}
    loads, policies = (list(dict.fromkeys(names)) for names in zip(*by, strict=True))

    def cell(row: Row) -> str:
        score = row.score
        mark = DOMINATED if any(dominating(row, rows)) else ""
        accuracy = "" if isnan(score.accuracy) else f", {score.accuracy:.3f}"
        return f"{score.violations:.2%} {score.replica_hours:.2f}{accuracy}{mark}"

    def course(row: Row) -> str:
        return f"{row.score.changes}, {row.score.worst:.1%}"

    for written in (cell, course):
        yield f"| policy | {' | '.join(loads)} |"
        yield "|---" + "|---:" * len(loads) + "|"
        for policy in policies:
            cells = (written(by[load, policy]) if (load, policy) in by else "" for load in loads)
            yield f"| {policy} | {' | '.join(cells)} |"
        yield ""


def dominating(row: Row, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the policies that dominate the row."""
    for each in rows:
        if each.load == row.load and each.policy != ORACLE and each.dominates(row):
            yield each.policy


def promises(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the promises that our policy does not keep."""
    for ours in rows:
        if ours.policy != OURS:
            continue
        score = ours.score
        others = [each for each in rows if each.load == ours.load and each.policy not in (OURS, ORACLE)]
        for each in others:
            if each.dominates(ours):
                yield f"{ours.load}: {each.policy} has {_said(each)}, ours {_said(ours)}"
        peers = [each.score for each in others if each.policy == PEER]
        if peers and ours.load.partition(",")[0] in BURSTY:
            peer = peers[0]
            if score.violations > HALF * peer.violations:
                yield f"{ours.load}: {score.violations:.2%} violations, {PEER} has {peer.violations:.2%}"
            if score.replica_hours > HOURS * peer.replica_hours:
                yield f"{ours.load}: {score.replica_hours:.2f} hours, {PEER} has {peer.replica_hours:.2f}"
        if ours.load == "constant" and score.changes > CHANGES_TEN_MINUTES * len(score.minutes) / 10:
            yield f"constant: {score.changes} changes in {len(score.minutes)} minutes"


def _said(row: Row) -> str:
    return f"{row.score.violations:.2%} violations in {row.score.replica_hours:.2f} hours"
