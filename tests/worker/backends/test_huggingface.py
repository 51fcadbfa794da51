"""Hugging Face's folders: texts in, embeddings, classes or scores out, as transformers computes them."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from serving.worker.backends.huggingface import TransformersBackend, read_folder, signature_of
from serving.worker.backends.signature import SignatureError
from tests.worker.backends.orders import loaded, order_of

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "tide", "turned", "boats", "came", "home"]
TEXTS = np.array([[b"the tide turned"], [b"home"], [b"the boats came home the tide turned"]], object)


def write_folder(folder: Path, kind: str, **config: Any) -> Path:
    """Write a network with random weights and a tokenizer of a few words."""
    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    made = transformers.BertConfig(
        vocab_size=len(WORDS), max_position_embeddings=40, initializer_range=0.5, **sizes, **config
    )
    getattr(transformers, kind)(made).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, "[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", [("[CLS]", 2), ("[SEP]", 3)]
    )
    marks = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP")}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **marks).save_pretrained(folder)
    return folder


def hidden(folder: Path, text: str) -> Any:
    """The states of a text by itself: without padding, so masks have nothing to hide."""
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.no_grad():
        return transformers.AutoModel.from_pretrained(folder)(**tokens).last_hidden_state[0]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_text_is_embedded_as_it_is_alone_whatever_the_padding(tmp_path: Path, pooling: str) -> None:
    folder = write_folder(tmp_path / "m", "BertModel")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"pooling_mode_cls_token": pooling == "cls"})
    )
    found = signature_of(str(folder), {})
    assert (found.outputs[0].name, found.outputs[0].dimensions) == ("EMBEDDING", ("batch", 16))
    endpoints = {"task": "embed", "tokens_max": 40, "tokenizer": str(folder / "tokenizer.json")}
    assert found.keys["endpoints"] == endpoints
    answer = loaded(order_of("transformers", folder, found)).predict({"TEXT": TEXTS}, {})["EMBEDDING"]
    for row, text in zip(np.asarray(answer), TEXTS[:, 0], strict=True):
        states = hidden(folder, text.decode())
        alone = states[0] if pooling == "cls" else states.mean(0)
        assert np.allclose(row, (alone / alone.norm()).numpy(), atol=1e-5)


def test_an_embedding_is_normalized_only_where_the_folder_says_so(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", "BertModel")
    assert read_folder(folder, {}).normalized
    modules = [{"type": "sentence_transformers.models.Transformer"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    assert not read_folder(folder, {}).normalized


def test_texts_are_classified_with_the_folders_labels(tmp_path: Path) -> None:
    labels = {0: "bad", 1: "good", 2: "odd"}
    folder = write_folder(tmp_path / "m", "BertForSequenceClassification", id2label=labels)
    found = signature_of(str(folder), {})
    assert (found.outputs[0].labels, found.outputs[0].dimensions) == (("bad", "good", "odd"), ("batch", 3))
    model = loaded(order_of("transformers", folder, found))
    scores = np.asarray(model.predict({"TEXT": TEXTS}, {})["SCORES"])
    pipe = transformers.pipeline("text-classification", model=str(folder), device="cpu")
    told = pipe([text.decode() for text in TEXTS[:, 0]])
    assert [labels[int(row.argmax())] for row in scores] == [each["label"] for each in told]
    assert getattr(model, "padded_size") == 9  # noqa: B009  the longest row: seven words and two marks


def test_one_label_scores_pairs(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", "BertForSequenceClassification", id2label={0: "score"})
    found = signature_of(str(folder), {})
    assert [each.name for each in (*found.inputs, *found.outputs)] == ["QUERY", "DOCUMENT", "SCORE"]
    model = loaded(order_of("transformers", folder, found))
    queries = np.full((3, 1), b"the tide", object)
    together = np.asarray(model.predict({"QUERY": queries, "DOCUMENT": TEXTS}, {})["SCORE"])
    alone = [
        np.asarray(model.predict({"QUERY": queries[:1], "DOCUMENT": TEXTS[at : at + 1]}, {})["SCORE"])[0]
        for at in range(3)
    ]
    assert np.allclose(together, alone, atol=1e-5)
    assert len({round(float(each), 6) for each in together[:, 0]}) == 3


def test_a_row_has_no_more_tokens_than_folder_and_operator_allow(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", "BertModel")
    assert read_folder(folder, {}).tokens_max == 40
    assert read_folder(folder, {"tokens": 16}).tokens_max == 16
    sizes = {"dim.tokens": 16}
    model = loaded(order_of("transformers", folder, signature_of(str(folder), sizes), sizes))
    model.predict({"TEXT": np.array([[b"the tide " * 100]], object)}, {})
    assert getattr(model, "padded_size") == 16  # noqa: B009


def test_what_is_no_model_of_texts_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SignatureError, match=r"has no config\.json; expected a folder of save_pretrained"):
        signature_of(str(tmp_path), {})
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(SignatureError, match="is a LlamaForCausalLM; expected a model of texts"):
        signature_of(str(tmp_path), {})
    folder = write_folder(tmp_path / "m", "BertModel")
    order = order_of("transformers", folder, signature_of(str(folder), {}), {"precision": "int3"})
    with pytest.raises(ValueError, match="unknown precision; got 'int3', expected fp32, bf16, fp16"):
        TransformersBackend(1).load(order)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r"try `pip install torch transformers`"):
        TransformersBackend(1).prepare(order)
