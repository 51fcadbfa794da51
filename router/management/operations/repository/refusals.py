"""How the repository API says no, over REST and over gRPC, as Triton does."""

from typing import Final, NamedTuple

import grpc

from router.tensors.parts.wording import quoted


class Refusal(NamedTuple):
    """The status of a refused request, over REST and over gRPC."""

    http_status: int
    grpc_code: grpc.StatusCode


_Code = grpc.StatusCode

# As Triton 2.51.0 answers, but that it calls malformed requests INTERNAL (500).
BAD_INPUT: Final = Refusal(400, _Code.INVALID_ARGUMENT)
TOO_LARGE: Final = Refusal(413, _Code.RESOURCE_EXHAUSTED)
NOT_FOUND: Final = Refusal(500, _Code.INTERNAL)
FAILED: Final = Refusal(400, _Code.INVALID_ARGUMENT)
UNSUPPORTED: Final = Refusal(501, _Code.UNIMPLEMENTED)
NOT_ALLOWED: Final = Refusal(503, _Code.UNAVAILABLE)

NO_CONTROL: Final = (
    "explicit model load / unload is not allowed: penstock.yaml says `repository: {control: false}`"
)
"""It begins as Triton's answer does where its models are not controlled by clients."""

DEALT: Final = (
    "explicit model load / unload is not allowed: models are dealt to cells, as penstock.yaml says `cells:`"
)

NO_REPOSITORY_NAME: Final = "'repository_name' specification is not supported"


SAID_BYTES_MAX: Final = 2_000
"""Of a message. Over gRPC it is metadata, percent-encoded, of which clients take 8 KB."""


class RepositoryError(Exception):
    """A request to the repository API that is refused; `message` is for the client, and bounded in length."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal
        said = message.encode("utf-8", "replace")
        whole = len(said) <= SAID_BYTES_MAX
        self.message = message if whole else said[:SAID_BYTES_MAX].decode("utf-8", "ignore") + "…"


def not_found(name: str, why: str) -> RepositoryError:
    """Return the error that no model of that name can be read: Triton's words, and then why."""
    return RepositoryError(
        NOT_FOUND, f"failed to load {quoted(name)}, failed to poll from model repository: {why}"
    )


def load_failed(name: str, version: str, why: str) -> RepositoryError:
    """Return the error that a model was read and could not be loaded: Triton's words, and then why."""
    return RepositoryError(
        FAILED, f"load failed for model {quoted(name)}: version {version} is at UNAVAILABLE state: {why}"
    )
