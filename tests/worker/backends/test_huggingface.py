"""Hugging Face's folders: texts in, embeddings, classes or scores out, as transformers computes them."""

import io
import json
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from serving.worker.backends.contract import BadInputError
from serving.worker.backends.hf import pictures
from serving.worker.backends.hf.backend import TransformersBackend, signature_of
from serving.worker.backends.hf.folder import read_folder
from serving.worker.backends.signature import SignatureError, Tensor
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


@pytest.mark.slow
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
    with pytest.raises(SignatureError, match="is a LlamaForCausalLM; expected one of these"):
        signature_of(str(tmp_path), {})
    folder = write_folder(tmp_path / "m", "BertModel")
    order = order_of("transformers", folder, signature_of(str(folder), {}), {"precision": "int3"})
    with pytest.raises(ValueError, match="unknown precision; got 'int3', expected fp32, bf16, fp16"):
        TransformersBackend(1).load(order)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r"try `pip install torch transformers`"):
        TransformersBackend(1).prepare(order)


def test_parts_of_a_text_are_named(tmp_path: Path) -> None:
    labels = {0: "O", 1: "B-SEA", 2: "I-SEA"}
    folder = write_folder(tmp_path / "m", "BertForTokenClassification", id2label=labels)
    found = signature_of(str(folder), {})
    assert found.outputs == (Tensor("ENTITIES", "BYTES", ("batch", 1)),)
    assert "endpoints" not in found.keys
    model = loaded(order_of("transformers", folder, found))
    answer = np.asarray(model.predict({"TEXT": TEXTS}, {})["ENTITIES"])
    pipe = transformers.pipeline("token-classification", model=str(folder), aggregation_strategy="simple")
    for row, text in zip(answer[:, 0], TEXTS[:, 0], strict=True):
        alone = pipe(text.decode())
        parts = json.loads(row)
        assert [(each["entity_group"], each["start"], each["end"]) for each in parts] == [
            (each["entity_group"], each["start"], each["end"]) for each in alone
        ]
        assert np.allclose([each["score"] for each in parts], [each["score"] for each in alone], atol=1e-4)
    assert sum(len(json.loads(each)) for each in answer[:, 0]) > 0


def write_pictures(folder: Path) -> Path:
    """Write a network of pictures with random weights, and its processor."""
    torch.manual_seed(3)
    made = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32,
        patch_size=8, id2label={0: "cat", 1: "dog", 2: "tide"}, initializer_range=0.5,
    )  # fmt: skip
    transformers.ViTForImageClassification(made).save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def picture(form: str, size: tuple[int, int] = (50, 40), mode: str = "RGB") -> bytes:
    pixels = np.random.default_rng(4).integers(0, 256, (*size[::-1], 3), np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(content, form)
    return content.getvalue()


def test_pictures_of_any_form_and_size_are_classified_in_one_batch(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "m")
    found = signature_of(str(folder), {})
    assert found.inputs == (Tensor("IMAGE", "BYTES", ("batch", 1)),)
    assert found.outputs == (Tensor("SCORES", "FP32", ("batch", 3), ("cat", "dog", "tide")),)
    files = [picture("PNG"), picture("JPEG", (33, 90)), picture("PNG", mode="L"), picture("PNG", mode="RGBA")]
    model: Any = loaded(order_of("transformers", folder, found))
    answer = np.asarray(model.predict({"IMAGE": np.array(files, object)[:, None]}, {})["SCORES"])
    pipe = transformers.pipeline("image-classification", model=str(folder), device="cpu", top_k=3)
    for row, file in zip(answer, files, strict=True):
        shares = {each["label"]: each["score"] for each in pipe(Image.open(io.BytesIO(file)).convert("RGB"))}
        scores = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        assert np.allclose(scores, [shares[name] for name in ("cat", "dog", "tide")], atol=1e-4)
    assert model.sample(2, 0)["IMAGE"].shape == (2, 1)


@pytest.mark.parametrize("content", [b"", b"no picture", picture("JPEG")[:100], picture("PNG")[:60]])
def test_what_is_no_picture_is_named(tmp_path: Path, content: bytes) -> None:
    folder = write_pictures(tmp_path / "m")
    model = loaded(order_of("transformers", folder, signature_of(str(folder), {})))
    said = r"input 'IMAGE' holds no picture: .*; expected a JPEG or PNG file"
    with pytest.raises(BadInputError, match=said):
        model.predict({"IMAGE": np.array([[content]], object)}, {})


def test_a_picture_that_unfolds_too_far_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "PIXELS_MAX", 1_000)
    folder = write_pictures(tmp_path / "m")
    model = loaded(order_of("transformers", folder, signature_of(str(folder), {})))
    with pytest.raises(ValueError, match="has 50 x 40 pixels; expected at most 1,000 in all"):
        model.predict({"IMAGE": np.array([[picture("PNG")]], object)}, {})


def wav(samples: Any, rate: int = 16_000, width: int = 2, channels: int = 1) -> bytes:
    written = io.BytesIO()
    with wave.open(written, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(width)
        sound.setframerate(rate)
        sound.writeframes(np.asarray(samples, {1: "u1", 2: "<i2", 4: "<i4"}[width]).tobytes())
    return written.getvalue()


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that writes down letters: random ones, for its weights are random."""
    folder = tmp_path_factory.mktemp("speech")
    torch.manual_seed(3)
    config = transformers.Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=8,
        conv_dim=(8, 8), conv_stride=(5, 4), conv_kernel=(10, 8), num_feat_extract_layers=2,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, initializer_range=0.9,
        feat_extract_norm="layer", do_stable_layer_norm=True,
    )  # fmt: skip
    transformers.Wav2Vec2ForCTC(config).save_pretrained(folder)
    words = {word: at for at, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", "A", "B", "C"])}
    (folder / "vocab.json").write_text(json.dumps(words))
    transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json")).save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_a_sound_is_written_down_as_it_is_alone(speech: Path) -> None:
    found = signature_of(str(speech), {})
    assert [(each.name, each.datatype) for each in (*found.inputs, *found.outputs)] == [
        ("AUDIO", "BYTES"), ("TEXT", "BYTES")
    ]  # fmt: skip
    assert found.keys["size_hint"] == {
        "input": "AUDIO", "unit": "bytes", "buckets": [160_000, 320_000, 640_000, 960_000]
    }  # fmt: skip
    model = loaded(order_of("transformers", speech, found))
    drawn = np.random.default_rng(2)
    sounds = [drawn.integers(-9000, 9000, 16_000 // part) for part in (1, 3, 2)]
    rows = np.empty((3, 1), object)
    rows[:, 0] = [wav(each) for each in sounds]
    together = np.asarray(model.predict({"AUDIO": rows}, {})["TEXT"])
    alone = [np.asarray(model.predict({"AUDIO": rows[at : at + 1]}, {})["TEXT"])[0, 0] for at in range(3)]
    assert together[:, 0].tolist() == alone
    assert any(alone)
    whole = np.repeat(sounds[0], 2)  # the same in two channels, and in 32 bits
    for other in (wav(whole, channels=2), wav(sounds[0] << 16, width=4)):
        assert np.asarray(model.predict({"AUDIO": np.array([[other]], object)}, {})["TEXT"])[0, 0] == alone[0]
    sample = getattr(model, "sample")(2, 160_000)["AUDIO"]  # noqa: B009
    assert [len(each) for each in sample[:, 0]] == [160_000, 160_000]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"junk", "'AUDIO' holds no sound: .*; expected a WAV file"),
        (
            wav([1, 2], rate=44_100),
            "has 44100 samples a second of 16 bits; expected 16000 of 16 bits: `ffmpeg",
        ),
        (wav([]), r"lasts 0\.0 s; expected more than 0 and at most 30 s"),
        (wav(np.zeros(31 * 16_000)), r"lasts 31\.0 s"),
    ],
)
def test_what_is_no_sound_for_it_is_refused(speech: Path, content: bytes, said: str) -> None:
    model = loaded(order_of("transformers", speech, signature_of(str(speech), {})))
    with pytest.raises(BadInputError, match=said):
        model.predict({"AUDIO": np.array([[content]], object)}, {})


@pytest.mark.slow
def test_whisper_writes_words(tmp_path: Path) -> None:
    torch.manual_seed(3)
    config = transformers.WhisperConfig(
        vocab_size=60, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, num_mel_bins=80, init_std=0.9,
        max_target_positions=12, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    made = transformers.WhisperForConditionalGeneration(config)
    made.generation_config = transformers.GenerationConfig(
        max_length=12, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1
    )
    made.save_pretrained(tmp_path)
    transformers.WhisperFeatureExtractor().save_pretrained(tmp_path)
    words = Tokenizer(models.WordLevel({f"w{at}": at for at in range(60)}, "w0"))
    marks = {"pad_token": "w0", "bos_token": "w1", "eos_token": "w2"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, **marks).save_pretrained(tmp_path)
    model = loaded(order_of("transformers", tmp_path, signature_of(str(tmp_path), {})))
    drawn = np.random.default_rng(2)
    rows = np.empty((2, 1), object)
    rows[:, 0] = [wav(drawn.integers(-9000, 9000, 16_000 // part)) for part in (1, 3)]
    together = np.asarray(model.predict({"AUDIO": rows}, {})["TEXT"])[:, 0].tolist()
    alone = [np.asarray(model.predict({"AUDIO": rows[at : at + 1]}, {})["TEXT"])[0, 0] for at in range(2)]
    assert together == alone
    assert all(each.startswith(b"w") for each in alone)
