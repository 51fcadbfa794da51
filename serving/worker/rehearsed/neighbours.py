"""What neighbours cost a rehearsed batch, by the co-runs that were measured of its device kind."""

from collections.abc import Iterable, Sequence
from statistics import median

from serving.profile.files.corun import CoRun

Key = tuple[str, str]
"""Model, variant."""


class Neighbours:
    """Slowdowns by pairs of variants on shares of one kind, medians of the co-runs of two.

    Those of several neighbours add up, as pressures do in Bubble-Up (`serving.profile.derived.interference`).
    A pair that was not measured costs nothing. MIG instances share nothing but power, and have no such runs.
    """

    def __init__(self, runs: Sequence[CoRun], share_kind: str) -> None:
        found: dict[tuple[Key, Key], list[float]] = {}
        for run in runs:
            if len(run.others) == 1 and run.tenant.share.kind == share_kind:
                other = run.others[0]
                pair = (run.tenant.model, run.tenant.variant), (other.model, other.variant)
                found.setdefault(pair, []).append(run.slowdown)
        self._more = {pair: max(median(each) - 1, 0.0) for pair, each in found.items()}

    def __bool__(self) -> bool:
        """Return whether any neighbour costs anything."""
        return any(self._more.values())

    def factor(self, own: Key, others: Iterable[Key]) -> float:
        """Return how many times as long a batch takes beside batches of `others`."""
        return 1 + sum(self._more.get((own, other), 0.0) for other in others)
