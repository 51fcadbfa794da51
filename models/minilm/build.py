"""Measures the minilm variants: `python models/minilm/build.py [--force]`.

The weights come with their package; what is built is `build/pairs.json`, `[[summary, body], ...]`, and
`build/accuracy.json`. Does nothing where they are there and their sources have not changed.
"""

import argparse
import hashlib
import platform
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
STATE = BUILD / "state.txt"


def _state() -> str:
    """A digest of what decides the outputs (the code here, the library that computes, the docstrings' Python)
    and the outputs' names."""
    digest = hashlib.sha256(f"{version('torch')} {platform.python_version()}".encode())
    for name in ("build.py", "model.py", "model.yaml", "retrieval.py"):
        digest.update((HERE / name).read_bytes())
    outputs = sorted(path.name for path in BUILD.glob("*") if path != STATE)
    return "\n".join([digest.hexdigest(), *outputs, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--force", action="store_true", help="measure again even where nothing changed")
    if not parser.parse_args().force and STATE.is_file() and STATE.read_text() == _state():
        print("minilm: up to date", flush=True)
        return
    from retrieval import measure_all  # heavy (torch): only where there is work to do

    BUILD.mkdir(exist_ok=True)
    STATE.unlink(missing_ok=True)  # written last: an interrupted build is not taken for a finished one
    measure_all(BUILD)
    STATE.write_text(_state())


if __name__ == "__main__":
    main()
