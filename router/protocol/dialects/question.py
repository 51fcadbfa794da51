"""What an application asks, before the gateway knows which tensors of which model answer it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Row = tuple[str, str, tuple[int, ...], bytes]
"""A tensor as it travels to a bulk process and back: name, datatype, shape, raw data."""


@dataclass(slots=True)
class Question:
    """One request.

    `model`: "" if it names none. `texts`: one a row, or, with `pairs`, those that the pairs index. `ids`:
    token ids of each row in place of texts. `content`: values in place of texts, nested as JSON had them.
    `parameters`: of the request, as in the Open Inference Protocol. `truncate`: a text that is too long is
    cut; else it is refused. `tokens_most`: the longest text that the client wants, in tokens; 0 for the
    model's own. `form`: what the answer is to look like, in words of its dialect.
    """

    model: str = ""
    texts: Sequence[str] = ()
    pairs: Sequence[tuple[int, int]] = ()
    ids: Sequence[Sequence[int]] = ()
    content: object = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    truncate: bool = False
    tokens_most: int = 0
    form: dict[str, object] = field(default_factory=dict)


class Prepared(NamedTuple):
    """The input tensors of a question, and how many tokens its texts have."""

    tensors: Sequence[Row]
    tokens: int = 0


class Stamp(NamedTuple):
    """What an answer says of itself: an id, and the Unix time in seconds."""

    id: str
    created_s: int
