"""Models in Hugging Face's folders. The variant's artifact is the folder.

Torch and transformers are imported with the first such model, and Pillow with the first model of pictures.
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from serving.values.applications import EMBED, RERANK
from serving.values.specs import ParameterValue
from serving.worker.backends.checking import artifact_of
from serving.worker.backends.contract import LoadedModel
from serving.worker.backends.hf.folder import IMAGE, PICTURES, SPEECH, TAG, Folder, read_folder
from serving.worker.backends.hf.pictures import PictureModel
from serving.worker.backends.hf.sounds import BOUNDS as SOUND_BOUNDS
from serving.worker.backends.hf.sounds import SpeechModel
from serving.worker.backends.hf.texts import TaggingModel, TextModel
from serving.worker.backends.signature import Signature, SignatureError, Tensor, sizes_of
from serving.worker.backends.torch_settings import TorchSettings
from serving.worker.frames.orders import LoadOrder

MISSING: Final = "transformers is not installed here; try `pip install torch transformers`"
NO_PILLOW: Final = "Pillow is not installed here; try `pip install pillow`"
PRECISION: Final = "precision"
PRECISIONS: Final[Mapping[str, str]] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
BYTES_PER_TOKEN: Final = 4
"""Of English: bounds of size buckets are bytes, and a model's are tokens."""
BOUNDS: Final = (128, 512, 2048)
"""Of size buckets, in bytes: a batch of unlike lengths is padded to its longest row."""
_KINDS: Final[Mapping[str, str]] = {
    EMBED: "AutoModel", TAG: "AutoModelForTokenClassification", PICTURES: "AutoModelForImageClassification",
}  # fmt: skip
_OTHERWISE: Final = "AutoModelForSequenceClassification"


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
        path = artifact_of(order, "a folder")
        self.prepare(order)
        torch, transformers = _libraries()
        folder = read_folder(path, sizes_of(order.options))
        named = str(dict(order.options).get(PRECISION, "fp32"))
        if named not in PRECISIONS:
            raise ValueError(f"unknown precision; got {named!r}, expected {', '.join(PRECISIONS)}")
        kind = getattr(transformers, _class_of(folder))
        network = kind.from_pretrained(
            folder.path, dtype=getattr(torch, PRECISIONS[named]), local_files_only=True
        )
        network = network.eval().to(self._device)
        if folder.task == PICTURES:
            processor = transformers.AutoImageProcessor.from_pretrained(folder.path, local_files_only=True)
            return PictureModel(folder, _pillow(), processor, network)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder.path, local_files_only=True)
        if folder.task == SPEECH:
            extractor = transformers.AutoFeatureExtractor.from_pretrained(folder.path, local_files_only=True)
            return SpeechModel(folder, extractor, tokenizer, network)
        if folder.task == TAG:
            tokenizer.model_max_length = folder.tokens_max
            pipeline = transformers.pipeline(
                "token-classification", model=network, tokenizer=tokenizer, aggregation_strategy="simple",
                device=network.device,
            )  # fmt: skip
            return TaggingModel(folder, pipeline)
        return TextModel(folder, torch, tokenizer, network)


def signature_of(artifact: str, options: Mapping[str, ParameterValue]) -> Signature:
    """Return what a folder, or a model of the hub, takes and answers.

    Raises SignatureError if its task is not served, or if the hub does not give it.
    """
    folder = read_folder(_local(artifact), sizes_of(tuple(options.items())))
    inputs = tuple(Tensor(name, "BYTES", ("batch", 1)) for name in folder.inputs)
    datatype = "BYTES" if folder.task in (TAG, SPEECH) else "FP32"
    outputs = (Tensor(folder.output, datatype, ("batch", folder.width), folder.labels),)
    if folder.task == PICTURES:
        return Signature(inputs, outputs, artifact=str(folder.path))
    if folder.task == SPEECH:
        sound = {"size_hint": {"input": folder.inputs[0], "unit": "bytes", "buckets": [*SOUND_BOUNDS]}}
        return Signature(inputs, outputs, artifact=str(folder.path), sample_size=SOUND_BOUNDS[0], keys=sound)
    longest = BYTES_PER_TOKEN * folder.tokens_max
    bounds = [*(bound for bound in BOUNDS if bound < longest), longest]
    keys: dict[str, object] = {"size_hint": {"input": folder.inputs[-1], "unit": "text", "buckets": bounds}}
    if folder.task != TAG:
        keys["endpoints"] = _endpoints(folder)
    return Signature(
        inputs, outputs, artifact=str(folder.path), sample_size=bounds[min(1, len(bounds) - 1)], keys=keys
    )


def _class_of(folder: Folder) -> str:
    """Return the name of transformers' class that loads the folder's network."""
    if folder.task != SPEECH:
        return _KINDS.get(folder.task, _OTHERWISE)
    return "AutoModelForSpeechSeq2Seq" if folder.generates else "AutoModelForCTC"


def _endpoints(folder: Folder) -> dict[str, object]:
    found: dict[str, object] = {"task": folder.task, "tokens_max": folder.tokens_max}
    if (folder.path / "tokenizer.json").exists():
        found["tokenizer"] = str(folder.path / "tokenizer.json")
    if folder.task != EMBED:
        found["activation"] = "sigmoid" if folder.task == RERANK else "softmax"
    return found


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


def _pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{NO_PILLOW}: input {IMAGE!r} holds pictures") from error
    return Image


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
