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
SOURCES = BUILD / "sources.sha256"


def _digest() -> str:
    """Of all that decides the outputs: the code here, the library that computes, the docstrings' Python."""
    digest = hashlib.sha256(f"{version('torch')} {platform.python_version()}".encode())
    for name in ("build.py", "model.py", "retrieval.py"):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--force", action="store_true", help="measure again even where nothing changed")
    if not parser.parse_args().force and SOURCES.is_file() and SOURCES.read_text() == _digest():
        print("minilm: up to date", flush=True)
        return
    from retrieval import measure_all  # heavy (torch): only where there is work to do

    BUILD.mkdir(exist_ok=True)
    SOURCES.unlink(missing_ok=True)  # written last: an interrupted build is not taken for a finished one
    measure_all(BUILD)
    SOURCES.write_text(_digest())


if __name__ == "__main__":
    main()
