"""Models in Hugging Face's folders: config.json, weights and a tokenizer. The variant's artifact is the
folder.

What a folder does follows from the architecture that its config.json names: it embeds texts, classifies
texts, or scores pairs of a query and a document. Torch and transformers are imported with the first such
model.
"""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from serving.values.applications import CLASSIFY, EMBED, RERANK
from serving.values.specs import ParameterValue
from serving.worker.backends.contract import LoadedModel
from serving.worker.backends.signature import Signature, SignatureError, Tensor, sizes_of
from serving.worker.backends.torch_settings import TorchSettings
from serving.worker.frames.arrays import Arrays
from serving.worker.frames.orders import LoadOrder

MISSING: Final = "transformers is not installed here; try `pip install torch transformers`"
TOKENS: Final = "tokens"
"""The size that bounds the tokens of a row: `--dim tokens=128`."""
TOKENS_MAX: Final = 512
"""Of a row, where the folder states no bound, or a larger one."""
PRECISION: Final = "precision"
PRECISIONS: Final[Mapping[str, str]] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
TEXT, QUERY, DOCUMENT = "TEXT", "QUERY", "DOCUMENT"
BYTES_PER_TOKEN: Final = 4
"""Of English: bounds of size buckets are bytes, and a model's are tokens."""
BOUNDS: Final = (128, 512, 2048)
"""Of size buckets, in bytes: a batch of unlike lengths is padded to its longest row."""
SENTENCE: Final = "the tide turned and the boats came home before the light was gone "


@dataclass(frozen=True, slots=True)
class Folder:
    """What a folder says of itself: its task, how long a row may be, and what its values stand for."""

    path: Path
    task: str
    tokens_max: int
    width: int
    labels: tuple[str, ...] = ()
    pooling: str = "mean"
    normalized: bool = True

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the model's inputs."""
        return (QUERY, DOCUMENT) if self.task == RERANK else (TEXT,)

    @property
    def output(self) -> str:
        """The name of the model's output."""
        return {EMBED: "EMBEDDING", RERANK: "SCORE"}.get(self.task, "SCORES")


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
        text = (SENTENCE * (size // len(SENTENCE) + 1))[: max(size, 1)].encode()
        return {name: np.full((rows, 1), text, object) for name in self._folder.inputs}


class TransformersBackend:
    """It executes no code of a folder, so there is nothing to forget. `device`: as torch names it."""

    def __init__(self, threads: int, device: str = "cpu") -> None:
        self._settings = TorchSettings(threads)
        self._device = device

    def prepare(self, order: LoadOrder) -> None:  # noqa: ARG002
        """Import torch and transformers. Raises ModuleNotFoundError if they are not installed."""
        self._settings.torch, _ = _libraries()
        self.settle()

    def settle(self) -> None:
        """Set what torch keeps by thread, once a model has imported it."""
        self._settings.settle()

    def keep(self, orders: Collection[LoadOrder]) -> None: ...

    def load(self, order: LoadOrder) -> LoadedModel:
        """Load a folder. Raises FileNotFoundError if the variant names none, SignatureError if its task is
        not served, ValueError for an unknown precision, and what transformers raises of broken files."""
        if order.artifact is None:
            raise FileNotFoundError(f"variant {order.variant} has no artifact; expected a folder")
        self.prepare(order)
        torch, transformers = _libraries()
        folder = read_folder(order.artifact, sizes_of(order.options))
        named = str(dict(order.options).get(PRECISION, "fp32"))
        if named not in PRECISIONS:
            raise ValueError(f"unknown precision; got {named!r}, expected {', '.join(PRECISIONS)}")
        embeds = folder.task == EMBED
        kind = transformers.AutoModel if embeds else transformers.AutoModelForSequenceClassification
        network = kind.from_pretrained(
            folder.path, dtype=getattr(torch, PRECISIONS[named]), local_files_only=True
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder.path, local_files_only=True)
        return TextModel(folder, torch, tokenizer, network.eval().to(self._device))


def signature_of(artifact: str, options: Mapping[str, ParameterValue]) -> Signature:
    """Return what a folder, or a model of the hub, takes and answers.

    Raises SignatureError if its task is not served, or if the hub does not give it.
    """
    folder = read_folder(_local(artifact), sizes_of(tuple(options.items())))
    longest = BYTES_PER_TOKEN * folder.tokens_max
    bounds = [*(bound for bound in BOUNDS if bound < longest), longest]
    endpoints: dict[str, object] = {"task": folder.task, "tokens_max": folder.tokens_max}
    if (folder.path / "tokenizer.json").exists():
        endpoints["tokenizer"] = str(folder.path / "tokenizer.json")
    if folder.task != EMBED:
        endpoints["activation"] = "sigmoid" if folder.task == RERANK else "softmax"
    return Signature(
        tuple(Tensor(name, "BYTES", ("batch", 1)) for name in folder.inputs),
        (Tensor(folder.output, "FP32", ("batch", folder.width), folder.labels),),
        artifact=str(folder.path),
        sample_size=bounds[min(1, len(bounds) - 1)],
        keys={
            "size_hint": {"input": folder.inputs[-1], "unit": "text", "buckets": bounds},
            "endpoints": endpoints,
        },
    )


def read_folder(path: Path, sizes: Mapping[str, int]) -> Folder:
    """Return what a folder says of itself. Raises SignatureError if it has no config.json, or another
    task."""
    config = _json(path / "config.json")
    if not config:
        raise SignatureError(f"{path} has no config.json; expected a folder of save_pretrained")
    architecture = str((config.get("architectures") or ["none"])[0])
    states = int(config.get("max_position_embeddings") or TOKENS_MAX)
    # RoBERTa counts positions from behind the padding's
    usable = states - int(config.get("pad_token_id") or 0) - 1 if "oberta" in architecture else states
    stated = _json(path / "sentence_bert_config.json").get("max_seq_length") or TOKENS_MAX
    tokens_max = min(sizes.get(TOKENS, TOKENS_MAX), usable, int(stated))
    if architecture.endswith("ForSequenceClassification"):
        labels = config.get("id2label") or {str(number): f"LABEL_{number}" for number in range(2)}
        names = tuple(str(labels[key]) for key in sorted(labels, key=int))
        task = RERANK if len(names) == 1 else CLASSIFY
        return Folder(path, task, tokens_max, len(names), names if task == CLASSIFY else ())
    if not architecture.endswith("Model") or "hidden_size" not in config:
        raise SignatureError(
            f"{path} is a {architecture}; expected a model of texts: ...Model embeds, "
            "...ForSequenceClassification classifies or ranks"
        )
    pooling = _json(path / "1_Pooling" / "config.json")
    modules = _json(path / "modules.json")
    normalized = not modules or any(str(each.get("type", "")).endswith("Normalize") for each in modules)
    how = "cls" if pooling.get("pooling_mode_cls_token") else "mean"
    return Folder(path, EMBED, tokens_max, int(config["hidden_size"]), (), how, normalized)


def _local(artifact: str) -> Path:
    if Path(artifact).is_dir():
        return Path(artifact).resolve()
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(artifact)).resolve()
    except Exception as error:  # of the network, the hub, or the name
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SignatureError(
            f"{artifact} is no folder here, and the hub does not give it: {reason}"
        ) from error


def _json(file: Path) -> Any:
    return json.loads(file.read_text("utf-8")) if file.is_file() else {}


def _libraries() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING) from error
    logs: Any = transformers.utils.logging
    logs.disable_progress_bar()
    # The tokenizer's threads would be more than the cores of a slice.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return torch, transformers
