"""How requests end, and which are tried again instead."""

from collections.abc import Mapping, Sequence

from serving.scheduler.admission import Admission
from serving.scheduler.cold import ColdStarts
from serving.scheduler.commands import Answer, Command, RunBatch
from serving.scheduler.models.models import ScheduledModel, explain
from serving.scheduler.pieces import cut
from serving.scheduler.sequences import Sequences
from serving.scheduler.waiting.accepted import Accepted
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.vocabulary import (
    BAD_INPUT,
    COMPLETED,
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    MODEL_ERROR,
    WORKER_LOST,
    Outcome,
)

RETRIES = 1
"""Batches that a request may lose with their worker and still be dispatched again: a request that kills
workers takes at most two of them. One that is known to have ended its worker takes no other."""


class Endings:
    """Over all models of a scheduler."""

    __slots__ = ("_accepted", "_admission", "_models", "_sequences")

    def __init__(
        self,
        models: Mapping[str, ScheduledModel],
        accepted: Accepted,
        admission: Admission,
        sequences: Sequences,
    ) -> None:
        self._models = models
        self._sequences = sequences
        self._accepted = accepted
        self._admission = admission

    def refuse(self, model: ScheduledModel, request: Request, outcome: Outcome, now_us: int) -> Answer:
        """Turn a request away that has not been accepted."""
        model.intake.ended(request.rows, outcome)
        answer = Answer(request, outcome, None, explain(outcome, request, model, now_us))
        answer.retry_us = self._admission.retry_us(outcome, model, request, now_us)
        return answer

    def exclude(self, request: Request) -> Answer | None:
        """Turn away a request that cannot be of the sequence that it names; None if it can."""
        model = self._models[request.model]
        refusal = None if model.book is None else model.book.refusal(request)
        if refusal is None:
            return None
        model.intake.ended(request.rows, refusal[0])
        return Answer(request, refusal[0], None, refusal[1])

    def follow(self, cold: ColdStarts, now_us: int) -> list[Command]:
        """End the requests of sequences that are over, or have waited for a slot in vain. Ask for the
        variants that others wait for."""
        found: list[Command] = []
        if now_us >= self._sequences.look_us:
            for model, variants in self._sequences.look(now_us):
                found += cold.ask(model, variants, now_us)
        while self._sequences.stirred:
            for request, outcome, detail in self._sequences.take_doomed(now_us):
                if request.id in self._accepted:
                    found.append(self.end(request, outcome, detail))
        return found

    def complete(self, request: Request, batch: RunBatch, now_us: int) -> Answer:
        """Answer a request with a batch that computed the last of it; the request was accepted until now.

        Replicas follow what more of them might have spared, so a request that is late for its own number of
        rows does not count.
        """
        model = self._models[request.model]
        model.open -= 1
        late = now_us > request.latest_us  # its own, whoever else waited for it
        model.intake.done(request.rows, now_us - request.arrived_us, late)
        request.pieces = []  # they know it too: a cycle would wait for the garbage collector
        return Answer(request, COMPLETED, batch)

    def end(self, request: Request, outcome: Outcome, detail: str = "") -> Answer:
        """Take a request out of everything and answer it."""
        model = self._models[request.model]
        if self._accepted.remove(request):
            model.open -= 1
            model.intake.ended(request.rows, outcome)
        if model.unsettled:
            model.unsettled.pop(request.id, None)
        if request.sequence:
            self._sequences.ended(request)
        queue = model.queue
        for piece in request.pieces:
            if piece.lane is not None:
                queue.remove(piece)
        request.pieces = []
        if request.waiting:
            request.waiting = 0
            queue.backlog.requests -= 1
        return Answer(request, outcome, None, detail)

    def expire(self, now_us: int) -> list[Command]:
        """Answer the requests with a passed deadline of their own, waiting or running."""
        answers: list[Command] = []
        while (request := self._accepted.pop_expired(now_us)) is not None:
            outcome = DEADLINE_QUEUED if request.waiting else DEADLINE_RUNNING
            answers.append(self.shed(request, outcome, now_us))
        return answers

    def shed(self, request: Request, outcome: Outcome, now_us: int) -> Answer:
        """End a request that was too late, and say when another try may fare better."""
        model = self._models[request.model]
        detail = explain(outcome, request, model, now_us) if model.absent else ""
        answer = self.end(request, outcome, detail)
        answer.retry_us = self._admission.retry_us(outcome, model, request, now_us)
        return answer

    def retry(self, pieces: Sequence[Piece], outcome: Outcome, detail: str, now_us: int) -> list[Command]:
        """Queue pieces again that a replica can still answer in time; end the others' requests so."""
        answers: list[Command] = []
        for piece in pieces:
            request = piece.request
            if request.id not in self._accepted:
                continue
            model = self._models[request.model]
            in_time = model.answer_us(request, now_us) <= request.latest_us
            gone = request.sequence > 0 and outcome is WORKER_LOST  # with what it builds on
            if request.lost > RETRIES or not in_time or gone:
                answers.append(self.end(request, outcome, detail))
                continue
            if request.waiting == 0:
                model.queue.backlog.requests += 1
            for part in cut(piece, model.served.spec.batch_max):
                request.waiting += 1
                part.returned = True
                model.queue.insert(part)
        return answers

    def fail(
        self,
        batch_id: int,
        pieces: Sequence[Piece],
        parts: Sequence[Sequence[Piece]],
        why: tuple[str, bool],
        now_us: int,
    ) -> list[Command]:
        """Queue the parts of a batch that its model raised on, each to be tried apart; without parts, end the
        requests of its pieces. `why`: what the model said, and whether it blames the input."""
        answers: list[Command] = []
        detail, bad_input = why
        if not parts:
            here = dict.fromkeys(piece.request for piece in pieces if piece.request.id in self._accepted)
            outcome = BAD_INPUT if bad_input and len(here) == 1 else MODEL_ERROR
            answers += [self.end(request, outcome, detail) for request in here]
        for number, part in enumerate(parts, start=1):
            for piece in part:
                piece.apart = 2 * batch_id + number
            answers += self.retry(part, MODEL_ERROR, detail, now_us)
        return answers

    def abandon(self, model: ScheduledModel, detail: str) -> list[Command]:
        """End waiting requests that nothing can answer: it is unknown when a replica will be back."""
        return [self.end(request, WORKER_LOST, detail) for request in model.stranded()]
