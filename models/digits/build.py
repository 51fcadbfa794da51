"""Builds the digits variants: `python models/digits/build.py [--force]`.

Writes `build/<variant>.safetensors`, `build/accuracy.json`, `build/validation.json` (of the held-out rows,
the labels and by variant what it predicted) and `build/heldout.safetensors` (their pixels FP32 `[597, 64]`,
labels INT64 `[597]`); does nothing where they are there and their sources have not changed.
"""

import argparse
import hashlib
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
STATE = BUILD / "state.txt"


def _state() -> str:
    """Return a digest of what decides the outputs (the code here and the library that computes)
    and the outputs' names."""
    digest = hashlib.sha256(version("torch").encode())
    for name in ("build.py", "model.py", "training.py"):
        digest.update((HERE / name).read_bytes())
    outputs = sorted(path.name for path in BUILD.glob("*") if path != STATE)
    return "\n".join([digest.hexdigest(), *outputs, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--force", action="store_true", help="train again even where nothing changed")
    if not parser.parse_args().force and STATE.is_file() and STATE.read_text() == _state():
        print("digits: up to date", flush=True)
        return
    from training import train_all  # heavy (torch, scikit-learn): only where there is work to do

    BUILD.mkdir(exist_ok=True)
    STATE.unlink(missing_ok=True)  # written last: an interrupted build is not taken for a finished one
    train_all(BUILD)
    STATE.write_text(_state())


if __name__ == "__main__":
    main()
