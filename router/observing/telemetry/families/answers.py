"""Which variants answered, how accurate they were, why not better ones; as Prometheus text."""

from collections.abc import Iterator, Sequence
from typing import Final

from router.observing.telemetry.counting import streamed
from router.observing.telemetry.counting.counts import AnswerCounts, ModelCounts, escape
from router.observing.telemetry.counting.heading import head

# name, help, attribute of an AnswerCounts
_COUNTERS: Final = (
    ("penstock_answers_total", "Completed requests by the variant that answered.", "requests"),
    ("penstock_answer_rows_total", "Rows of completed requests by the variant that answered.", "rows"),
)


def blocks(models: Sequence[ModelCounts]) -> Iterator[str]:
    """Yield the blocks for the models that have anything to say."""
    tiers = [
        (f'{model.labels},tier="{escape(tier)}"', by_variant)
        for model in models
        for tier, by_variant in model.answers.items()
    ]
    for name, text, attribute in _COUNTERS:
        yield head(name, "counter", text)
        for _, by_variant in tiers:
            samples = (
                f"{name}{{{each.labels}}} {getattr(each, attribute)}\n" for each in by_variant.values()
            )
            yield "".join(samples)
    yield from _accuracy([(labels, list(by_variant.values())) for labels, by_variant in tiers])
    yield from _downgrades(models)
    yield from _selected(models)
    yield from streamed.blocks([each.streamed for each in models if each.streamed is not None])


def _accuracy(tiers: Sequence[tuple[str, list[AnswerCounts]]]) -> Iterator[str]:
    name = "penstock_answer_accuracy_total"
    yield head(name, "counter", "Measured accuracy of the answering variant, summed over rows.")
    for labels, answers in tiers:
        yield f"{name}{{{labels}}} {sum(each.accuracy_rows for each in answers):.12g}\n"
    name = "penstock_answer_measured_rows_total"
    yield head(name, "counter", "Rows answered by a variant with a measured accuracy.")
    for labels, answers in tiers:
        yield f"{name}{{{labels}}} {sum(each.measured_rows for each in answers)}\n"


def _downgrades(models: Sequence[ModelCounts]) -> Iterator[str]:
    for place, name, text in (
        (
            0,
            "penstock_downgraded_requests_total",
            "Requests that a less accurate variant answered than would have without pressure, by reason.",
        ),
        (
            1,
            "penstock_downgraded_rows_total",
            "Rows that a less accurate variant answered than would have without pressure, by reason.",
        ),
    ):
        yield head(name, "counter", text)
        for model in models:
            for reason, counts in model.downgrades.items():
                yield f'{name}{{{model.labels},reason="{escape(reason)}"}} {counts[place]}\n'


def _selected(models: Sequence[ModelCounts]) -> Iterator[str]:
    found = [(model.labels, model.selected) for model in models if model.selected is not None]
    if not found:
        return
    name = "penstock_selected_requests_total"
    yield head(name, "counter", "Requests of a model with a selection, by outcome and reason.")
    for labels, counts in found:
        for outcome, count in counts.outcomes.items():
            ended = f'outcome="{outcome.kind}",reason="{outcome.reason}"'
            yield f"{name}{{{labels},{ended}}} {count}\n"
    name = "penstock_selected_answers_total"
    yield head(
        name,
        "counter",
        "Completed requests of a model with a selection, by the variant or ensemble that answered.",
    )
    for labels, counts in found:
        for variant, count in counts.answers.items():
            yield f'{name}{{{labels},variant="{escape(variant)}"}} {count}\n'
    for name, text, attribute in (
        (
            "penstock_selected_goodput_requests_total",
            "Requests of a model with a selection completed by their deadline.",
            "good",
        ),
        ("penstock_votes_total", "Votes that completed requests asked of members.", "asked"),
        ("penstock_votes_missing_total", "Votes asked for that came too late or not at all.", "missing"),
    ):
        yield head(name, "counter", text)
        for labels, counts in found:
            yield f"{name}{{{labels}}} {getattr(counts, attribute)}\n"
    name = "penstock_answer_confidence_ratio"
    yield head(name, "histogram", "Share of the voters' weight that agreed on the answer.")
    for labels, counts in found:
        yield counts.confidence.block(name, labels)
