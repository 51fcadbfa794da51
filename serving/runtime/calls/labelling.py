"""Names for the answers of models that have a candidate, so that clients can say which were right."""

from collections.abc import Callable, Mapping
from functools import partial

from serving.ports import Call, Reply
from serving.runtime.calls.pending_calls import Deliver
from serving.runtime.clocks.clock import now_us
from serving.selection.labels import CANDIDATE, PRESENT, LabelBook
from serving.values.specs import ServedModel
from serving.values.vocabulary import COMPLETED


class Labels:
    """Books of labels, by model. `name_answer`: makes a name that no client can guess."""

    def __init__(self, name_answer: Callable[[], str]) -> None:
        self.books: dict[str, LabelBook] = {}
        self._pairs: dict[str, tuple[tuple[str, str], ...]] = {}
        self._name_answer = name_answer

    def follow(self, wanted: Mapping[str, tuple[ServedModel, ServedModel]]) -> None:
        """Keep a book for each of these models, which comes with its candidate, and no other. A book goes on
        as long as both have the same files."""
        for name in self.books.keys() - wanted.keys():
            del self.books[name]
        for name, both in wanted.items():
            pair = tuple((each.name, each.revision) for each in both)
            if name not in self.books or self._pairs[name] != pair:
                self.books[name] = LabelBook(both[0], self._name_answer)
                self._pairs[name] = pair

    def beside(self, asked: Call, call: Call, deliver: Deliver) -> Deliver:
        """Return what delivers the answer with its name; `call`: as it was routed."""
        book = self.books.get(asked.model.name)
        if book is None:
            return deliver
        member = PRESENT if call is asked else CANDIDATE
        return partial(_named, book, member, call, deliver)


def _named(book: LabelBook, member: int, call: Call, deliver: Deliver, reply: Reply) -> None:
    if reply.outcome is COMPLETED and not reply.query:
        reply.query = book.answered(member, reply, call.rows, (call.tenant, now_us()))
    deliver(reply)
