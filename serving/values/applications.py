"""What a model offers to applications that speak of texts, labels and scores, and not of tensors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

EMBED: Final = "embed"
RERANK: Final = "rerank"
CLASSIFY: Final = "classify"
TASKS: Final = (EMBED, RERANK, CLASSIFY)

ACTIVATIONS: Final = ("none", "sigmoid", "softmax")
"""What makes probabilities of an output's values; "none" if they are as they should be."""


@dataclass(frozen=True, slots=True)
class Application:
    """What `endpoints:` of a model.yaml says.

    `inputs`: the input that takes the text or the values of a row; for RERANK the input of the query and the
    input of the document. `output`: the embedding, the score, or one value for each class. `tokenizer`: the
    file that counts tokens, None if they are estimated; `tokenizers`: where it was looked for. `tokens_max`:
    the tokens of a text that the model reads, 0 if that is unknown. `dimensions`: shorter lengths of an
    embedding that the model was trained for.
    """

    task: str
    inputs: tuple[str, ...]
    output: str
    activation: str = "none"
    tokenizer: Path | None = None
    tokenizers: tuple[str, ...] = ()
    tokens_max: int = 0
    dimensions: tuple[int, ...] = ()
