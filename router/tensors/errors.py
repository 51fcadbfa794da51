"""The one way in which a codec says no: an outcome and a sentence for the client."""

from serving.vocabulary import BAD_INPUT, TOO_LARGE, Outcome


class RequestError(Exception):
    """A request (or the form of answer that it asks for) which cannot be served as it stands.

    `outcome` is one of those that reject; `message` is one sentence that says what,
    where, what was expected and what was got.
    """

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.message = message


def bad_input(message: str) -> RequestError:
    """The request contradicts the protocol or the model's spec."""
    return RequestError(BAD_INPUT, message)


def too_large(message: str) -> RequestError:
    """The request is well formed but beyond a named limit."""
    return RequestError(TOO_LARGE, message)
