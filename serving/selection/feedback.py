"""What clients say of answers they got: which answers it is taken of, and for how long."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from serving.values.specs import DEFAULT_TENANT

ANSWERS_MAX = 65_536
"""Of a model, on which feedback is taken at a time; the oldest go first."""
ROWS_MAX = 1 << 22
"""Votes on rows that are kept for them, of 4 bytes."""

Named = npt.NDArray[np.int32]


class FeedbackError(Exception):
    """`conflict`: it fits what was asked, but not the answer it is about (or there is none); else it is not
    well formed. The message is one sentence for the client."""

    def __init__(self, message: str, conflict: bool = False) -> None:
        super().__init__(message)
        self.conflict = conflict


@dataclass(frozen=True, slots=True)
class Feedback:
    """On one answer: the right class of each row, or what the answer cost on each, 0..1; one of the two."""

    query: str
    labels: tuple[int, ...] = ()
    losses: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class AnsweredPoll:
    """The members that answered (by their place) and the classes that they `named`, `[members, rows]`.
    `probability`: the probability of drawing a single member among the `allowed` members (all if it is
    empty)."""

    members: tuple[int, ...]
    named: Named
    probability: float = 1.0
    allowed: tuple[bool, ...] = ()

    def losses(self, said: Feedback, classes: int) -> list[float]:
        """Return what it cost with each of the members, the mean over its rows. FeedbackError where that does
        not follow."""
        rows = self.named.shape[1]
        given: Sequence[float] = said.labels or said.losses
        if len(given) != rows:
            what = "label" if said.labels else "loss"
            message = f"the answer has {rows} rows: expected as many {what} values, got {len(given)}"
            raise FeedbackError(message, conflict=True)
        if said.labels:
            if not 0 <= min(said.labels) <= max(said.labels) < classes:
                raise FeedbackError(f"labels are classes from 0 to {classes - 1}, got {[*said.labels]}")
            return [float(each) for each in (self.named != np.array(said.labels)).mean(1)]
        if len(self.members) > 1:
            what = "a loss says nothing of the single members; expected the right class as a label"
            raise FeedbackError(what, conflict=True)
        return [sum(said.losses) / rows]


class Queries:
    """Answers by the names that clients know them by, each by chance and for the tenant that asked: no other
    client guesses it, or one from before a restart. `keep_us`: for how long; `name_answer` makes the names.
    """

    __slots__ = ("_answers", "_name_answer", "_rows", "keep_us")

    def __init__(self, keep_us: int, name_answer: Callable[[], str]) -> None:
        self.keep_us = keep_us
        self._name_answer = name_answer
        self._answers: OrderedDict[str, tuple[int, str, AnsweredPoll | None]] = OrderedDict()
        self._rows = 0

    def __len__(self) -> int:
        """Return the number of kept answers, including those that already took feedback."""
        return len(self._answers)

    def keep(self, answered: AnsweredPoll, now_us: int, tenant: str = DEFAULT_TENANT) -> str:
        """Return the name of an answer to that tenant from now on."""
        query = self._name_answer()
        self._answers[query] = now_us, tenant, answered
        self._rows += answered.named.size
        while len(self._answers) > ANSWERS_MAX or self._rows > ROWS_MAX or self._expired(now_us):
            _, (_, _, oldest) = self._answers.popitem(last=False)
            self._forget(oldest)
        return query

    def find(self, query: str, now_us: int, tenant: str = DEFAULT_TENANT) -> AnsweredPoll:
        """Return the answer of that name to that tenant. Raises FeedbackError if there is no such answer that
        takes feedback. Another tenant's answer gives the same error as no answer."""
        kept_us, asked, answered = self._answers.get(query, (now_us - self.keep_us - 1, "", None))
        if now_us - kept_us > self.keep_us or asked != tenant:
            known = f"is kept for {self.keep_us / 1e6:g} s (keep_s) and at most {ANSWERS_MAX} answers"
            raise FeedbackError(f"query '{query}' is unknown, or too long ago: it {known}", conflict=True)
        if answered is None:
            raise FeedbackError(f"feedback on query '{query}' was taken before", conflict=True)
        return answered

    def amend(self, query: str, change: Callable[[AnsweredPoll], AnsweredPoll]) -> None:
        """Change what is known of an answer that is still kept and took no feedback."""
        kept_us, tenant, answered = self._answers.get(query, (0, "", None))
        if answered is not None:
            changed = change(answered)
            self._rows += changed.named.size - answered.named.size
            self._answers[query] = kept_us, tenant, changed

    def take(self, query: str) -> None:
        """Note that an answer took feedback, so that it takes no more."""
        kept_us, tenant, answered = self._answers[query]
        self._answers[query] = kept_us, tenant, None
        self._forget(answered)

    def _forget(self, answered: AnsweredPoll | None) -> None:
        if answered is not None:
            self._rows -= answered.named.size

    def _expired(self, now_us: int) -> bool:
        kept_us = next((kept_us for kept_us, _, _ in self._answers.values()), now_us)
        return now_us - kept_us > self.keep_us
