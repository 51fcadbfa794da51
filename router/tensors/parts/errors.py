"""The one way in which a codec says no: an outcome and a sentence for the client."""

from typing import Final

from serving.values.vocabulary import BAD_INPUT, MEMORY_FULL, TOO_LARGE, Outcome

RETRY_US: Final = 1_000_000
"""When a request that found no room may come back: the least that REST's Retry-After can say."""


class RequestError(Exception):
    """A request (or the form of answer that it asks for) which cannot be served as it stands.

    `outcome` is one of those that reject; `message` is one sentence that says what,
    where, what was expected and what was got. `retry_us`: when another try may fare better, 0 where it will
    not.
    """

    def __init__(self, outcome: Outcome, message: str, retry_us: int = 0) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message
        self.retry_us = retry_us


def bad_input(message: str) -> RequestError:
    """Return the error that a request contradicts the protocol or the spec of its model."""
    return RequestError(BAD_INPUT, message)


def too_large(message: str) -> RequestError:
    """Return the error that a request is well formed but beyond a named limit."""
    return RequestError(TOO_LARGE, message)


def memory_full(message: str) -> RequestError:
    """Return the error that the gateway holds too much at this moment; the request itself is fine."""
    return RequestError(MEMORY_FULL, message, RETRY_US)
