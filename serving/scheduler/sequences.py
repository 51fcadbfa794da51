"""What requests of sequences wait for: a slot, and the requests before them.

Only one request of a sequence is in its model's queue, for the one slice that has its slot.

A request that ends before it ran leaves a hole. So its sequence ends there: what is behind it is not
computed. A request that runs is never run again on another replica.
"""

from collections.abc import Mapping, Sequence
from math import inf

from serving.scheduler.models.models import ScheduledModel
from serving.scheduler.slices.slices import Slice
from serving.scheduler.waiting.requests import Piece, Request
from serving.scheduler.waiting.sequence_book import Place, SequenceBook
from serving.scheduler.waiting.sequence_book import Sequence as Live
from serving.values.objectives import MOST_ACCURATE
from serving.values.vocabulary import BAD_INPUT, DEADLINE_UNMET, NEVER_US, SEQUENCE_LOST, Outcome

ASK_AGAIN_US = 100_000
"""How often a sequence that waits for a variant on no slice asks for it."""

Doomed = tuple[Request, Outcome, str]


class Sequences:
    """The sequences of all models of a scheduler. `doomed`: requests that the scheduler is to end, as what
    they build on is gone."""

    __slots__ = ("_books", "_models", "_over", "doomed")

    def __init__(self, models: Mapping[str, ScheduledModel]) -> None:
        self._models = models
        self._books: dict[str, SequenceBook] = {}
        self.doomed: list[Doomed] = []
        self._over: list[tuple[SequenceBook, Live]] = []
        for model in models.values():
            self.serve(model)

    def serve(self, model: ScheduledModel) -> None:
        """Follow what a model says of sequences from now on; replicas that are there keep their slots."""
        spec, book = model.served.spec.sequence, model.book
        if spec is not None and book is None:
            model.book = SequenceBook(model.served.name, spec)
            self._books[model.served.name] = model.book
        elif spec is not None and book is not None:
            book.spec = spec

    def forget(self, model: str) -> None:
        """Forget a model without open requests."""
        self._books.pop(model, None)

    @property
    def look_us(self) -> int:
        """When `look` is due."""
        look_us = NEVER_US
        for book in self._books.values():
            if book.due_us < look_us:
                look_us = book.due_us
        return look_us

    def is_due(self, now_us: int) -> bool:
        """Return whether sequences have ended, or are to be looked at."""
        return self.stirred or now_us >= self.look_us

    def may_repeat(self, model: str, request: Request) -> bool:
        """Return whether a batch with the request may run again, because the model raised in it."""
        book = self._books.get(model)
        return not request.sequence or book is None or book.spec.repeatable

    @property
    def stirred(self) -> bool:
        """Whether `take_doomed` has something to do."""
        return bool(self.doomed or self._over)

    def on(self, slice_name: str) -> list[str]:
        """Return the models with sequences on a slice."""
        return [
            name
            for name, book in self._books.items()
            if any(place.live for place in book.places.values() if place.slice == slice_name)
        ]

    # requests

    def accept(self, model: ScheduledModel, request: Request, now_us: int) -> bool:
        """Let an accepted request wait for its turn: it has one row, and is not split. Return False if the
        model has no sequences."""
        book = model.book
        if book is None:
            return False
        request.pieces = [Piece(request, 0, 1)]
        request.open_pieces = request.waiting = 1
        sequence, fresh = book.join(request, now_us)
        if fresh:
            place = self._choose(model, book, sequence.variants, now_us)
            if place is None:
                book.wait(sequence)
                book.watch(sequence, request.deadline_us + 1)
                if model.absent:
                    book.watch(sequence, now_us + ASK_AGAIN_US)
            else:
                book.seat(sequence, place)
                book.watch(sequence, now_us + book.spec.idle_us)
        self._feed(model, sequence)
        return True

    def back(self, request: Request, now_us: int) -> None:
        """Note that a request ran, well or not: the next of its sequence may."""
        model = self._models.get(request.model)
        found = self._find(request)
        if model is None or found is None:
            return
        book, sequence = found
        if sequence.head is not request:
            return
        sequence.head = None
        sequence.begun = True
        sequence.heard_us = now_us
        if request.step is not None and request.step.end:
            book.counts.ended += 1
            self._finish(model, book, sequence, now_us)
        elif sequence.waiting:
            self._feed(model, sequence)
        elif sequence.over:
            self._finish(model, book, sequence, now_us)

    def ended(self, request: Request) -> None:
        """Note that a request ends without an answer. If it never ran, what is behind it is not computed."""
        found = self._find(request)
        if found is None or not request.waiting:
            return  # it runs: `back` follows
        book, sequence = found
        first = 0
        if sequence.head is request:
            sequence.head = None
        elif request in sequence.waiting:
            first = sequence.waiting.index(request)
            del sequence.waiting[first]
        else:
            return
        why = "a request of it ended before it ran"
        if not sequence.over:
            book.counts.lost += 1
            book.close(sequence)
            book.tell(sequence, SEQUENCE_LOST, book.lost_text(sequence, why))
        self._doom(book, sequence, first, why)
        if sequence.idle and sequence.place is None:
            book.forget(sequence)
        elif sequence.idle:
            self._over.append((book, sequence))

    def take_doomed(self, now_us: int) -> list[Doomed]:
        """Return what the scheduler is to end now. Give the slots of sequences that are over to others."""
        for book, sequence in self._over:
            self._finish(self._models[book.model], book, sequence, now_us)
        self._over.clear()
        doomed, self.doomed = self.doomed, []
        return doomed

    # replicas

    def up(self, model: ScheduledModel, slice_name: str, variant: str, replica: int, now_us: int) -> None:
        """Note a replica: its slots are free. Where it takes another's place, what the other kept is gone."""
        book = model.book
        if book is None:
            return
        key = slice_name, variant
        before = book.places.get(key)
        if before is not None and before.replica == replica:
            if before.closing:
                before.closing = False
                self._fill(model, book, before, now_us)
            return
        if before is not None:
            self.down(model, slice_name, variant, "its replica was replaced", now_us)
        book.places[key] = place = Place(slice_name, variant, replica, book.spec.slots)
        self._fill(model, book, place, now_us)

    def down(
        self, model: ScheduledModel, slice_name: str, variant: str, why: str, now_us: int, dead: bool = False
    ) -> None:
        """Note that a replica is gone, with what it kept. `dead`: what runs there does not come back."""
        book = model.book
        place = book.places.pop((slice_name, variant), None) if book is not None else None
        if book is None or place is None:
            return
        place.closing = True
        for sequence in sorted(place.live.values(), key=_newest):
            head = sequence.head
            sent = head is not None and (head.started_us > 0 or not head.waiting)
            if head is not None and head.waiting:
                sequence.head = None
                sequence.waiting.appendleft(head)
                head.variants = sequence.variants
                model.queue.remove(head.pieces[0])
            book.unseat(sequence)
            if not sequence.begun and not sent and sequence.waiting:
                book.wait(sequence, first=True)
                book.watch(sequence, sequence.waiting[0].deadline_us + 1)
                continue
            if dead:
                sequence.head = None
            last = sequence.closing and sequence.head is not None and not sequence.waiting
            if not sequence.over and not last:
                book.counts.lost += 1
                book.close(sequence)
                book.tell(sequence, SEQUENCE_LOST, book.lost_text(sequence, why))
            self._doom(book, sequence, 0, why)
            if sequence.idle:
                book.forget(sequence)
        for other in [*book.places.values()]:
            self._fill(model, book, other, now_us)

    def close(self, model: ScheduledModel, slice_name: str, variant: str) -> int:
        """Let a replica take no new sequence, as it is to go. Return how many it has that may go on."""
        book = model.book
        place = book.places.get((slice_name, variant)) if book is not None else None
        if place is None:
            return 0
        place.closing = True
        return 0 if model.retired else len(place.live)

    # times

    def look(self, now_us: int) -> list[tuple[ScheduledModel, tuple[str, ...]]]:
        """End what has been idle, or has waited for a slot in vain. Return the models that are asked for, and
        which variants would do."""
        wanted = []
        for name, book in self._books.items():
            model = self._models[name]
            while (sequence := book.due(now_us)) is not None:
                if sequence.place is None:
                    if self._await(model, book, sequence, now_us):
                        wanted.append((model, sequence.variants))
                elif not sequence.idle:
                    book.watch(sequence, now_us + book.spec.idle_us)
                elif now_us < sequence.heard_us + book.spec.idle_us:
                    book.watch(sequence, sequence.heard_us + book.spec.idle_us)
                else:
                    book.counts.idle += 1
                    book.close(sequence)
                    said = f"the gateway ended it after {book.spec.idle_us / 1e6:g} s without a request"
                    book.tell(sequence, BAD_INPUT, said)
                    self._finish(model, book, sequence, now_us)
        return wanted

    # steps

    def _await(self, model: ScheduledModel, book: SequenceBook, sequence: Live, now_us: int) -> bool:
        """Give up a sequence that has waited for a slot as long as it can. Return whether it waits for a
        variant that is on no slice."""
        if not sequence.waiting:
            return False
        first = sequence.waiting[0]
        if first.deadline_us < now_us:
            places = len(book.places)
            why = f"{book.model} has {book.spec.slots} slots for sequences on each of {places} replicas"
            self.doomed.append((first, DEADLINE_UNMET, f"no slot was free in time: {why}"))
            return False
        absent = bool(model.absent) and not model.resides(sequence.variants)
        book.watch(sequence, min(first.deadline_us + 1, now_us + ASK_AGAIN_US if absent else NEVER_US))
        return absent

    def _find(self, request: Request) -> tuple[SequenceBook, Live] | None:
        book = self._books.get(request.model) if request.sequence else None
        sequence = book.by_number.get(request.sequence) if book is not None else None
        return None if book is None or sequence is None else (book, sequence)

    def _choose(
        self, model: ScheduledModel, book: SequenceBook, variants: Sequence[str], now_us: int
    ) -> Place | None:
        """Return where a new sequence goes: the first of its variants with a free slot, and of that one's
        replicas the one with the fewest sequences, which is free soonest."""
        for variant in variants:
            best: Place | None = None
            least = (inf, inf, inf)
            for live in model.slices:
                place = book.places.get((live.name, variant))
                if place is not None and place.free and not place.closing:
                    rank = _rank(live, place, now_us)
                    if best is None or rank < least:
                        best, least = place, rank
            if best is not None:
                return best
        return None

    def _feed(self, model: ScheduledModel, sequence: Live) -> None:
        """Put the next request of a sequence into the queue, if none is there."""
        place = sequence.place
        if place is None or sequence.head is not None or not sequence.waiting:
            return
        request = sequence.head = sequence.waiting.popleft()
        request.home, request.slot = place.slice, sequence.slot
        request.variants = (place.variant,)
        request.optimize, request.cost_max = MOST_ACCURATE, inf
        request.lane_key = (request.variants, request.kin, place.slice)
        model.queue.insert(request.pieces[0])

    def _fill(self, model: ScheduledModel, book: SequenceBook, place: Place, now_us: int) -> None:
        """Give free slots to the sequences that wait for them."""
        while place.free and not place.closing:
            sequence = book.next_for(place)
            if sequence is None:
                return
            book.seat(sequence, place)
            book.watch(sequence, now_us + book.spec.idle_us)
            self._feed(model, sequence)

    def _finish(self, model: ScheduledModel, book: SequenceBook, sequence: Live, now_us: int) -> None:
        """Forget a sequence that is over, and give its slot to the next."""
        place = sequence.place
        book.close(sequence)
        book.forget(sequence)
        if place is not None and book.places.get((place.slice, place.variant)) is place:
            self._fill(model, book, place, now_us)

    def _doom(self, book: SequenceBook, sequence: Live, first: int, why: str) -> None:
        """Have the requests of a sequence that wait, from the `first` on, ended."""
        text = book.lost_text(sequence, why)
        behind = list(sequence.waiting)[first:]
        for request in behind:
            sequence.waiting.remove(request)
            self.doomed.append((request, SEQUENCE_LOST, text))


def _rank(live: Slice, place: Place, now_us: int) -> tuple[float, float, float]:
    return (float(live.suspect), float(len(place.live)), float(live.free_us(now_us)))


def _newest(sequence: Live) -> int:
    return -sequence.number


def replica_at(model: ScheduledModel | None, slice_name: str, variant: str) -> int:
    """Return the replica of a variant that takes a model's sequences on a slice; 0 for none."""
    place = None if model is None or model.book is None else model.book.places.get((slice_name, variant))
    return 0 if place is None else place.replica
