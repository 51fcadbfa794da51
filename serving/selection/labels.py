"""Feedback on the answers of a model that has a candidate: which of the two was right."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from serving.policy.rollouts.evidence import NONE, Trials
from serving.policy.rollouts.labelled import LabelBlock, Pairs, block_size
from serving.ports import Reply
from serving.selection.ballots import Ballot
from serving.selection.feedback import AnsweredPoll, Feedback, FeedbackError, Named, Queries
from serving.values.specs import ServedModel

KEEP_US: Final = 3_600_000_000
"""For how long an answer takes a label, as that of a selection does by default."""
RIGHT_BELOW: Final = 0.5
"""An answer is right where its loss is below."""
PRESENT, CANDIDATE = 0, 1


class LabelBook:
    """Answers that wait for labels, of both models, and what labels said since `drain`.

    An answer names classes where an output of the model is FP32 or FP64 `[rows, classes]`, the first that is.
    Without one it takes a loss only. `name_answer`: see Queries.
    """

    __slots__ = ("_ballot", "_blocks", "_model", "_queries", "_seen")

    def __init__(self, model: ServedModel, name_answer: Callable[[], str]) -> None:
        self._model = model.name
        self._ballot = next(_ballots(model), None)
        self._queries = Queries(KEEP_US, name_answer)
        self._blocks: list[LabelBlock] = []
        self._seen = 0  # labels in all

    def answered(self, member: int, reply: Reply, rows: int, asked: tuple[str, int]) -> str:
        """Return the name of an answer of PRESENT or CANDIDATE; "" where it names no classes, though the
        model's answers do. `asked`: the tenant, and the time."""
        named = self._read(reply, rows)
        if named is None:
            return ""
        tenant, now_us = asked
        return self._queries.keep(AnsweredPoll((member,), named), now_us, tenant)

    def copied(self, query: str, reply: Reply) -> None:
        """Take the candidate's answer to the copy of a request that the present model answered."""

        def both(known: AnsweredPoll) -> AnsweredPoll:
            named = self._read(reply, known.named.shape[1])
            if named is None or known.members != (PRESENT,):
                return known
            return replace(known, members=(PRESENT, CANDIDATE), named=np.concatenate((known.named, named)))

        self._queries.amend(query, both)

    def learn(self, given: Sequence[Feedback], now_us: int, tenant: str) -> None:
        """Take a tenant's feedback on its answers: all, or none with FeedbackError where any cannot be."""
        found: dict[str, dict[int, bool]] = {}
        for said in given:
            answered = self._queries.find(said.query, now_us, tenant)
            if said.query in found:
                raise FeedbackError(f"query '{said.query}' occurs twice", conflict=True)
            found[said.query] = self._judged(said, answered)
        for query, right in found.items():
            self._queries.take(query)
            self._count(right)

    def drain(self) -> list[LabelBlock]:
        """Return the labels since the last time, in blocks by their order. Labels on one model alone wait for
        one on the other."""
        found, self._blocks = self._blocks, []
        if found and not found[-1].compares:
            self._blocks = [found.pop()]
        return found

    def _count(self, right: dict[int, bool]) -> None:
        if len(right) > 1:
            old, new = right[PRESENT], right[CANDIDATE]
            pair = Pairs(old and not new, new and not old, old and new, not (old or new))
            added = LabelBlock(pairs=pair)
        else:
            one = {member: Trials(int(was), 1) for member, was in right.items()}
            added = LabelBlock(one.get(PRESENT, NONE), one.get(CANDIDATE, NONE))
        last = self._blocks[-1] if self._blocks else None
        if last is None or (last.compares and last.count >= block_size(self._seen)):
            self._blocks.append(LabelBlock())
        self._blocks[-1] += added
        self._seen += 1

    def _judged(self, said: Feedback, answered: AnsweredPoll) -> dict[int, bool]:
        """Return whether each member was right, of those that the feedback says something of: on all rows by
        labels, by a loss below RIGHT_BELOW. A loss is of the answer that the client had."""
        if said.labels:
            if self._ballot is None:
                message = f"no output of {self._model} names a class: expected loss or losses"
                raise FeedbackError(message, conflict=True)
            losses = answered.losses(said, self._ballot.classes)
            return {each: loss == 0 for each, loss in zip(answered.members, losses, strict=True)}
        first = answered.members[0]
        alone = replace(answered, members=(first,), named=answered.named[:1])
        return {first: alone.losses(said, 0)[0] < RIGHT_BELOW}

    def _read(self, reply: Reply, rows: int) -> Named | None:
        if self._ballot is None:
            return np.zeros((1, rows), np.int32)
        named = self._ballot.read(reply, rows)
        return None if named is None else named[None].astype(np.int32)


def _ballots(model: ServedModel) -> Iterator[Ballot]:
    """Yield where the model's answers name a class."""
    for output in model.spec.outputs:
        try:
            ballot = Ballot(model, output.name)
        except ValueError:
            continue
        if ballot.classes > 1:
            yield ballot
