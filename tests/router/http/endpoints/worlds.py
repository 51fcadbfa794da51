"""A gateway's application over small models that compute at once: texts to letters, words and moods."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from serving.ports import Call, Reply
from serving.values.applications import CLASSIFY, EMBED, RERANK, Application
from serving.values.specs import Labels, ServedModel, SizeHint, TensorSpec
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED
from tests.router.fakes import SIMPLE, FakeServing, served

TEXT = TensorSpec("TEXT", "BYTES", (-1, 1))
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "far", "away", "from", "it"]
WIDTH = 4


def tokenizer(path: Path) -> Path:
    """Writes a tokenizer of WORDS: each word is a token, others are [UNK]; two tokens stand around a text."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    vocabulary = {name: place for place, name in enumerate(["[UNK]", "[CLS]", "[SEP]", *WORDS])}
    unknown = {"unk_token": "[UNK]"}
    made = Tokenizer(WordLevel(vocabulary, **unknown))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    made.add_special_tokens(["[CLS]", "[SEP]"])
    made.enable_truncation(3)  # as published files have it: the gateway must not count by it
    made.save(str(path))
    return path


def world(home: Path) -> dict[str, ServedModel]:
    """By name: `letters` embeds a text, `guess` does so without a tokenizer, `cross` scores pairs, `mood` and
    `pixels` classify a text and four numbers."""
    counted = tokenizer(home / "tokenizer.json")
    vector = TensorSpec("VECTOR", "FP32", (-1, WIDTH))
    scores = TensorSpec("SCORES", "FP32", (-1, 3), labels=Labels(("sad", "calm", "glad")))
    letters = Application(EMBED, ("TEXT",), "VECTOR", tokenizer=counted, tokens_max=8, dimensions=(2,))
    cross = Application(RERANK, ("QUERY", "DOC"), "SCORE", "sigmoid", counted, tokens_max=12)
    models = (
        _model("letters", (TEXT,), vector, letters),
        _model("guess", (TEXT,), vector, Application(EMBED, ("TEXT",), "VECTOR")),
        _model(
            "cross",
            (replace(TEXT, name="QUERY"), replace(TEXT, name="DOC")),
            TensorSpec("SCORE", "FP32", (-1, 1)),
            cross,
        ),
        _model("mood", (TEXT,), scores, Application(CLASSIFY, ("TEXT",), "SCORES", "softmax")),
        _model(
            "pixels",
            (TensorSpec("X", "FP32", (-1, 4)),),
            TensorSpec("SCORES", "FP32", (-1, 4)),
            Application(CLASSIFY, ("X",), "SCORES"),
        ),
        SIMPLE,
    )
    return {model.name: model for model in models}


def _model(
    name: str, inputs: tuple[TensorSpec, ...], output: TensorSpec, application: Application
) -> ServedModel:
    made = served(name, inputs, (output,))
    hint = SizeHint("TEXT", (16, 64), "text") if inputs[0] is TEXT else None
    return replace(made, spec=replace(made.spec, application=application, size_hint=hint))


class TextServing(FakeServing):
    """A core that serves the models of `world`."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.models = world(home)
        for model in self.models.values():
            self.telemetry.serve(model)

    def _reply(self, call: Call) -> Reply:
        reply = super()._reply(call)
        if self.outcome is COMPLETED and call.model.name in COMPUTE:
            values = np.array(COMPUTE[call.model.name](call.inputs), np.float32)
            output = call.model.spec.outputs[0]
            shape = (call.rows, *output.shape[1:])
            reply.outputs = [Tensor(output.name, "FP32", shape, values.tobytes())]
        return reply


def strings(tensor: Tensor) -> list[str]:
    """The texts of a BYTES tensor."""
    data, found, at = bytes(tensor.data), [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        found.append(data[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return found


def embedding(text: str) -> list[float]:
    """How often a text has each of four letters, and one in each place so that no vector is zero."""
    return [1.0 + text.count(letter) for letter in "catd"]


def cosine(left: str, right: str) -> float:
    """The cosine of two embeddings, by its definition."""
    a, b = np.array(embedding(left)), np.array(embedding(right))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def logit(query: str, document: str) -> float:
    """How many words two texts share, less one."""
    return len(set(query.split()) & set(document.split())) - 1.0


def _letters(inputs: Sequence[Tensor]) -> list[list[float]]:
    return [embedding(text) for text in strings(inputs[0])]


def _cross(inputs: Sequence[Tensor]) -> list[float]:
    return [logit(*pair) for pair in zip(strings(inputs[0]), strings(inputs[1]), strict=True)]


def _mood(inputs: Sequence[Tensor]) -> list[list[float]]:
    return [[text.count("sad"), 0.5, text.count("glad")] for text in strings(inputs[0])]


def _same(inputs: Sequence[Tensor]) -> Any:
    return np.frombuffer(inputs[0].data, "<f4")


COMPUTE: Mapping[str, Any] = {
    "letters": _letters,
    "guess": _letters,
    "cross": _cross,
    "mood": _mood,
    "pixels": _same,
}
