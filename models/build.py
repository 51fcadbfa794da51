"""Builds the sample models that need it: `python models/build.py [--force] [NAME ...]`; all by default.

Each model's own `build.py` does the work, in a process of its own, and does none where nothing changed.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def _built_models() -> list[str]:
    return sorted(script.parent.name for script in HERE.glob("*/build.py"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to build (default: all)")
    parser.add_argument("--force", action="store_true", help="build again even where nothing changed")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(_built_models()))
    if unknown:
        parser.error(f"nothing is built for {', '.join(unknown)}, only for {', '.join(_built_models())}")
    return arguments


def main() -> int:
    arguments = _arguments()
    names = arguments.names or _built_models()
    started = time.perf_counter()
    for place, name in enumerate(names, 1):
        print(f"[{place}/{len(names)}] {name}", flush=True)
        command = [sys.executable, str(HERE / name / "build.py"), *(["--force"] if arguments.force else [])]
        status = subprocess.run(command, check=False).returncode  # noqa: S603  (only scripts beside this one)
        if status != 0:
            print(f"building {name} failed (exit {status}): see above", file=sys.stderr)
            return 1
    print(f"built {', '.join(names)} in {time.perf_counter() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
