"""Measures the minilm variants: `python models/minilm/build.py [--force]`.

The weights come with their package; what is built is `build/pairs.json`, `[[summary, body], ...]`, and
`build/accuracy.json`. Does nothing where they are there and their sources have not changed.

With `--light FOLDER` it writes there instead what a machine without the package needs for the bf16 variants.
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
    """Return a digest of what decides the outputs (the code here, the library that computes, the docstrings'
    Python) and the outputs' names."""
    digest = hashlib.sha256(f"{version('torch')} {platform.python_version()}".encode())
    for name in ("build.py", "model.py", "model.yaml", "retrieval.py"):
        digest.update((HERE / name).read_bytes())
    outputs = sorted(path.name for path in BUILD.glob("*") if path.is_file() and path != STATE)
    return "\n".join([digest.hexdigest(), *outputs, ""])


def write_light(folder: Path) -> None:
    """Write the weights that an encoder uses in bf16, the vocabulary, and the digests of both (45 MB in
    all)."""
    import model  # heavy (torch)
    import torch
    from safetensors.torch import save_file

    package = model.package_folder()
    if package is None:
        raise SystemExit(f"minilm: package {model.PACKAGE} is not installed; run `make setup`")
    weights = {
        name: tensor.to(torch.bfloat16)
        for name, tensor in model.package_weights(package).items()
        if tensor.is_floating_point() and not name.startswith("pooler.")
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors")
    (folder / "tokenizer.json").write_bytes((package / "tokenizer.json").read_bytes())
    contents = {name: (folder / name).read_bytes() for name in model.LIGHT_FILES}
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in contents.items()]
    (folder / model.SUMS).write_text("\n".join([*lines, ""]), encoding="utf-8")
    size = sum(map(len, contents.values())) / 1e6
    print(f"minilm: {size:.1f} MB of light weights in {folder}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--force", action="store_true", help="measure again even where nothing changed")
    parser.add_argument("--light", type=Path, metavar="FOLDER", help="instead, write bf16 weights to carry")
    asked = parser.parse_args()
    if asked.light is not None:
        write_light(asked.light)
        return
    if not asked.force and STATE.is_file() and STATE.read_text() == _state():
        print("minilm: up to date", flush=True)
        return
    from retrieval import measure_all  # heavy (torch): only where there is work to do

    BUILD.mkdir(exist_ok=True)
    STATE.unlink(missing_ok=True)  # written last: an interrupted build is not taken for a finished one
    measure_all(BUILD)
    STATE.write_text(_state())


if __name__ == "__main__":
    main()
