"""The answers of decoupled models, which are any number for a request: counts by their place among these.

Names and meanings of the statistics: `response_stats` of Triton's `extension_statistics`.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypedDict

from router.observing.telemetry.counting.heading import head
from router.observing.telemetry.counting.histogram import DURATION, Histogram
from serving.runtime.observer import RowAnswer

PLACES_MAX: Final = 256
"""Of a request so many answers are told apart; the last place counts all further ones too."""
SUCCESS: Final = "success"


class Duration(TypedDict):
    """How often, and how long together."""

    count: int
    ns: int


class StreamedCounts:
    """The answers of one model. `first`: how long after its arrival a request's first answer was there;
    `kinds`: answers by what they are; `_places`: by place and kind, how many, and what they took to compute
    and to bring here."""

    __slots__ = ("_places", "first", "kinds", "labels")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.first = Histogram(DURATION)
        self.kinds: dict[str, int] = {}
        self._places: list[dict[str, list[int]]] = []

    def add(self, answer: RowAnswer) -> None:
        """Count an answer."""
        place = min(answer.place, PLACES_MAX - 1)
        while len(self._places) <= place:
            self._places.append({})
        counts = self._places[place].setdefault(answer.kind, [0, 0, 0])
        counts[0] += 1
        counts[1] += answer.compute_us
        counts[2] += answer.output_us
        self.kinds[answer.kind] = self.kinds.get(answer.kind, 0) + 1
        if answer.place == 0 and answer.kind == SUCCESS:
            self.first.observe(answer.since_us)

    def statistics(self) -> dict[str, dict[str, Duration]]:
        """Return the counts by place, in the words of the statistics extension."""
        return {str(place): _described(counts) for place, counts in enumerate(self._places)}


def _described(kinds: dict[str, list[int]]) -> dict[str, Duration]:
    computed, compute_us, output_us = kinds.get(SUCCESS, (0, 0, 0))
    found: dict[str, Duration] = {
        "compute_infer": {"count": computed, "ns": compute_us * 1000},
        "compute_output": {"count": computed, "ns": output_us * 1000},
    }
    for kind in (SUCCESS, "fail", "empty_response", "cancel"):
        count, spent_us, back_us = kinds.get(kind, (0, 0, 0))
        found[kind] = {"count": count, "ns": (spent_us + back_us) * 1000}
    return found


def blocks(models: Sequence[StreamedCounts]) -> Iterator[str]:
    """Yield the lines of the models that have answered so."""
    if not models:
        return
    name = "penstock_streamed_answers_total"
    yield head(name, "counter", "Answers of decoupled models, by what they are.")
    for model in models:
        for kind, count in model.kinds.items():
            yield f'{name}{{{model.labels},kind="{kind}"}} {count}\n'
    name = "penstock_first_answer_seconds"
    yield head(name, "histogram", "Time from a request's arrival to the first of its answers.")
    for model in models:
        yield model.first.block(name, model.labels)
