"""A target by coverage: atheris (libFuzzer) keeps inputs that reach new lines, and changes those further.

Needs `pip install -e .[fuzz]`; compiled parts are not seen: PENSTOCK_INTERPRETED=1 has all of it in Python.
Run: PENSTOCK_INTERPRETED=1 python -m loadtests.hostile.fuzz.guided json [--seconds 60] [--keep FOLDER]
"""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["router", "serving"], enable_loader_override=False):
    from loadtests.hostile.fuzz.playing import CORPUS, Fault, fault_of
    from loadtests.hostile.fuzz.targets import IN_PROCESS


def main() -> None:
    """Play until a fault, or for `--seconds`; libFuzzer writes down the input of a fault, and ends."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=list(IN_PROCESS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument(
        "--keep", type=Path, help="where inputs that reach new lines are kept, beside the corpus"
    )
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as scratch, IN_PROCESS[asked.target][1]() as target:

        def play(data: bytes) -> None:
            fault, _, _ = fault_of(target, data)
            if fault:
                raise Fault(fault)

        place = asked.keep or Path(scratch, "kept")
        place.mkdir(parents=True, exist_ok=True)
        words = Path(scratch, "words.dict")
        lines = ("".join(f"\\x{byte:02x}" for byte in word) for word in target.words if 0 < len(word) <= 128)
        words.write_text("".join(f'"{line}"\n' for line in lines))
        options = [
            f"-max_total_time={asked.seconds}",
            f"-dict={words}",
            "-max_len=65536",
            "-rss_limit_mb=2048",
        ]
        atheris.Setup([sys.argv[0], *options, str(place), str(CORPUS / asked.target)], play)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
