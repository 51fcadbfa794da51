"""Measures the minilm variants: does a docstring's summary find its own body among all bodies?

The pairs are docstrings of the running Python's standard library: real English, there on every machine.
"""

import ast
import hashlib
import json
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import model
import numpy as np
import torch
import yaml

PAIRS = 300  # a standard error of 2.9 points where half are found
SUMMARY_BYTES_MIN, BODY_BYTES_MIN, BODY_BYTES_MAX = 30, 150, 2000
LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "ensurepip"}


def collect_pairs() -> list[tuple[str, str]]:
    """Return (summary, body) of the PAIRS docstrings with the smallest digests of their text. So the choice
    is arbitrary, spread over all modules, and the same on every machine with this Python."""
    found = {}
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if not LEFT_OUT.intersection(path.relative_to(library).parts):
            found.update(_pairs_of(path))
    chosen = sorted(found.items(), key=lambda pair: hashlib.sha256(repr(pair).encode()).digest())
    return sorted(chosen[:PAIRS])


def _pairs_of(path: Path) -> Iterator[tuple[str, str]]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(path.read_bytes())):
        text = ast.get_docstring(node) if isinstance(node, documented) else None
        summary, _, body = (text or "").partition("\n\n")
        summary, body = " ".join(summary.split()), " ".join(body.split())
        lengths = len(summary.encode()), len(body.encode())
        if lengths[0] >= SUMMARY_BYTES_MIN and BODY_BYTES_MIN <= lengths[1] <= BODY_BYTES_MAX:
            yield summary, body


def _embed(variant: model.Model, texts: Sequence[str]) -> np.ndarray:
    """Return FP32 `[texts, 384]`, from one text a call: the figure does not depend on how texts were
    batched."""
    rows = [np.array([[text.encode()]], object) for text in texts]
    return np.concatenate([variant.predict({"TEXT": row}, {})["EMBEDDING"] for row in rows])


def recall_at_1(variant: model.Model, pairs: Sequence[tuple[str, str]]) -> float:
    """Return the share of summaries with their own body as the nearest."""
    summaries = _embed(variant, [summary for summary, _ in pairs])
    bodies = _embed(variant, [body for _, body in pairs])
    nearest = (summaries @ bodies.T).argmax(1)
    return float((nearest == np.arange(len(pairs))).mean())


def measure_all(build: Path) -> None:
    """Write `pairs.json` and `accuracy.json` into `build`, which must be there."""
    torch.set_num_threads(1)  # sums in one order: the figures come out the same each time
    pairs = collect_pairs()
    (build / "pairs.json").write_text(json.dumps(pairs, indent=0) + "\n")
    accuracy = {}
    definition = yaml.safe_load(Path(__file__).with_name("model.yaml").read_text(encoding="utf-8"))
    for variant in definition["variants"]:
        name, started = variant["name"], time.perf_counter()
        accuracy[name] = recall_at_1(model.load(None, variant["options"]), pairs)
        seconds = time.perf_counter() - started
        print(f"minilm: {name} recall@1 {accuracy[name]:.4f} of {len(pairs)}, {seconds:.1f} s", flush=True)
    (build / "accuracy.json").write_text(json.dumps(accuracy, indent=2) + "\n")
