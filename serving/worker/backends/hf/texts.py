"""Networks of texts, with their tokenizers: they embed, classify, rank or tag."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import orjson

from serving.values.applications import EMBED
from serving.values.specs import ParameterValue
from serving.worker.backends.hf.folder import TEXT, Folder
from serving.worker.frames.arrays import Arrays

SENTENCE: Final = "the tide turned and the boats came home before the light was gone "


class TextModel:
    """A network with its tokenizer. `padded_size`: tokens of each row in the last run, padding included."""

    def __init__(self, folder: Folder, torch: Any, tokenizer: Any, network: Any) -> None:
        self.padded_size = 0
        self._folder = folder
        self._torch = torch
        self._tokenizer = tokenizer
        self._network = network

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:  # noqa: ARG002  such models take none
        """Return the embedding of unit length, the scores of all labels, or the score of a pair, row by
        row."""
        rows: list[Any] = [inputs[name].ravel() for name in self._folder.inputs]
        texts = [[each.decode("utf-8", "replace") for each in row] for row in rows]
        tokens = self._tokenizer(
            *texts, padding=True, truncation=True, max_length=self._folder.tokens_max, return_tensors="pt"
        ).to(self._network.device)
        self.padded_size = int(tokens["input_ids"].shape[1])
        found = self._network(**tokens)
        if self._folder.task == EMBED:
            values = self._pooled(found.last_hidden_state, tokens["attention_mask"])
        else:
            values = found.logits
        return {self._folder.output: values.float().cpu().numpy()}

    def _pooled(self, states: Any, present: Any) -> Any:
        if self._folder.pooling == "cls":
            pooled = states[:, 0]
        else:
            weights = present[:, :, None].to(states.dtype)
            pooled = (states * weights).sum(1) / weights.sum(1)
        if not self._folder.normalized:
            return pooled
        return self._torch.nn.functional.normalize(pooled.float(), dim=-1)

    def sample(self, rows: int, size: int) -> Arrays:
        """Return rows of English of `size` bytes each."""
        return english(self._folder, rows, size)


class TaggingModel:
    """A network that names parts of texts. transformers' own pipeline joins the tokens of a part."""

    def __init__(self, folder: Folder, pipeline: Any) -> None:
        self._folder = folder
        self._pipeline = pipeline

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:  # noqa: ARG002  such models take none
        """Return the parts of each text as JSON: `entity_group`, `score`, `word`, `start` and `end`."""
        rows_of_bytes: list[Any] = list(inputs[TEXT].ravel())
        texts = [each.decode("utf-8", "replace") for each in rows_of_bytes]
        found = self._pipeline(texts, batch_size=len(texts))
        rows = np.empty((len(texts), 1), object)
        rows[:, 0] = [orjson.dumps(each, option=orjson.OPT_SERIALIZE_NUMPY) for each in found]
        return {self._folder.output: rows}

    def sample(self, rows: int, size: int) -> Arrays:
        """Return rows of English of `size` bytes each."""
        return english(self._folder, rows, size)


def english(folder: Folder, rows: int, size: int) -> Arrays:
    """Return rows of English of `size` bytes each."""
    text = (SENTENCE * (size // len(SENTENCE) + 1))[: max(size, 1)].encode()
    return {name: np.full((rows, 1), text, object) for name in folder.inputs}
