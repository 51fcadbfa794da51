"""Requests at applications' endpoints, by endpoint and model; as Prometheus text."""

from collections.abc import Iterator

from router.observing.telemetry.counting.counts import escape
from router.observing.telemetry.counting.heading import head
from serving.values.vocabulary import Outcome


class EndpointCounts:
    """Requests by model, endpoint and how they ended, and the tokens of their texts. The counts of the models
    hold the same requests; these say which dialect they came in."""

    __slots__ = ("requests", "tokens")

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, Outcome], int] = {}
        self.tokens: dict[tuple[str, str], int] = {}

    def add(self, endpoint: str, model: str, outcome: Outcome, tokens: int) -> None:
        """Count a request that has ended. `model`: one of the settings, or that of unknown models."""
        key = (model, endpoint, outcome)
        self.requests[key] = self.requests.get(key, 0) + 1
        if tokens:
            self.tokens[model, endpoint] = self.tokens.get((model, endpoint), 0) + tokens


def blocks(counts: EndpointCounts) -> Iterator[str]:
    """Yield the blocks, where any application has asked."""
    if not counts.requests:
        return
    name = "penstock_application_requests_total"
    yield head(name, "counter", "Requests at applications' endpoints, by endpoint, outcome and reason.")
    for (model, endpoint, outcome), count in [*counts.requests.items()]:
        ended = f'outcome="{outcome.kind}",reason="{outcome.reason}"'
        yield f'{name}{{model="{escape(model)}",endpoint="{escape(endpoint)}",{ended}}} {count}\n'
    name = "penstock_application_tokens_total"
    yield head(name, "counter", "Tokens of texts at applications' endpoints, by endpoint.")
    for (model, endpoint), count in [*counts.tokens.items()]:
        yield f'{name}{{model="{escape(model)}",endpoint="{escape(endpoint)}"}} {count}\n'
