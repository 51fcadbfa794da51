"""What a folder of Hugging Face says of itself: its task follows from the architecture in its config.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from serving.values.applications import CLASSIFY, EMBED, RERANK
from serving.worker.backends.signature import SignatureError

TAG: Final = "tag"
"""Names the parts of a text that are people, places and so on (token classification)."""
PICTURES: Final = "pictures"
"""Classifies pictures."""
SPEECH: Final = "speech"
"""Writes down what is said in a sound."""
TOKENS: Final = "tokens"
"""The size that bounds the tokens of a row: `--dim tokens=128`."""
TOKENS_MAX: Final = 512
"""Of a row, where the folder states no bound, or a larger one."""
TEXT, QUERY, DOCUMENT, IMAGE, AUDIO = "TEXT", "QUERY", "DOCUMENT", "IMAGE", "AUDIO"
_INPUTS: Final[Mapping[str, tuple[str, ...]]] = {
    PICTURES: (IMAGE,), SPEECH: (AUDIO,), RERANK: (QUERY, DOCUMENT),
}  # fmt: skip
_OUTPUTS: Final[Mapping[str, str]] = {EMBED: "EMBEDDING", RERANK: "SCORE", TAG: "ENTITIES", SPEECH: "TEXT"}
SERVED: Final = (
    "...Model embeds texts, ...ForSequenceClassification classifies or ranks them, "
    "...ForTokenClassification tags them, ...ForImageClassification classifies pictures, "
    "...ForCTC and WhisperForConditionalGeneration write down speech"
)


@dataclass(frozen=True, slots=True)
class Folder:
    """Its task, how long a row may be, and what its values stand for."""

    path: Path
    task: str
    tokens_max: int
    width: int
    labels: tuple[str, ...] = ()
    pooling: str = "mean"
    normalized: bool = True
    generates: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the model's inputs."""
        return _INPUTS.get(self.task, (TEXT,))

    @property
    def output(self) -> str:
        """The name of the model's output."""
        return _OUTPUTS.get(self.task, "SCORES")


def read_folder(path: Path, sizes: Mapping[str, int]) -> Folder:
    """Return what a folder says of itself. Raises SignatureError if it has no config.json, or another
    task."""
    config = read_json(path / "config.json")
    if not config:
        raise SignatureError(f"{path} has no config.json; expected a folder of save_pretrained")
    architecture = str((config.get("architectures") or ["none"])[0])
    if architecture.endswith("ForImageClassification"):
        names = _labels(config)
        return Folder(path, PICTURES, 0, len(names), names)
    if architecture.endswith("ForCTC") or architecture == "WhisperForConditionalGeneration":
        return Folder(path, SPEECH, 0, 1, generates=not architecture.endswith("ForCTC"))
    tokens_max = _tokens_max(path, config, architecture, sizes)
    if architecture.endswith("ForTokenClassification"):
        return Folder(path, TAG, tokens_max, 1)
    if architecture.endswith("ForSequenceClassification"):
        names = _labels(config)
        task = RERANK if len(names) == 1 else CLASSIFY
        return Folder(path, task, tokens_max, len(names), names if task == CLASSIFY else ())
    if not architecture.endswith("Model") or "hidden_size" not in config:
        raise SignatureError(f"{path} is a {architecture}; expected one of these: {SERVED}")
    pooling = read_json(path / "1_Pooling" / "config.json")
    modules = read_json(path / "modules.json")
    normalized = not modules or any(str(each.get("type", "")).endswith("Normalize") for each in modules)
    how = "cls" if pooling.get("pooling_mode_cls_token") else "mean"
    return Folder(path, EMBED, tokens_max, int(config["hidden_size"]), (), how, normalized)


def read_json(file: Path) -> Any:
    """Return what the file holds; an empty mapping where there is none."""
    return json.loads(file.read_text("utf-8")) if file.is_file() else {}


def _tokens_max(path: Path, config: Mapping[str, Any], architecture: str, sizes: Mapping[str, int]) -> int:
    states = int(config.get("max_position_embeddings") or TOKENS_MAX)
    # RoBERTa counts positions from behind the padding's
    usable = states - int(config.get("pad_token_id") or 0) - 1 if "oberta" in architecture else states
    stated = read_json(path / "sentence_bert_config.json").get("max_seq_length") or TOKENS_MAX
    return min(sizes.get(TOKENS, TOKENS_MAX), usable, int(stated))


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    labels = config.get("id2label") or {str(number): f"LABEL_{number}" for number in range(2)}
    return tuple(str(labels[key]) for key in sorted(labels, key=int))
