"""A process that prints in every way there is: `python -m tests.router.printing FLOOD ENDED`.

FLOOD: how many lines of 100 bytes C code prints while it holds the interpreter. ENDED: a descriptor, to which
the number of dropped lines is written at the end, so that whoever reads nothing else learns of it.
"""

import ctypes
import logging
import os
import subprocess
import sys

from router.logs.logs import lines_dropped, logging_to_output, say
from router.settings.door.logs import LogSettings

LINE = b"x" * 99 + b"\n"


def main(flood: int, ended: int) -> None:
    """Print."""
    libc = ctypes.PyDLL(None)  # its calls hold the interpreter
    with logging_to_output(LogSettings()):
        say("on stdout")
        logging.getLogger("router.x").info("a log line")
        os.write(2, b"from C\n2026-11-22 20:00:00,000 ERROR forged\x1b[31m\n")
        os.write(1, b"C too\n")
        sys.stderr.write("from Python\n")
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
        for _ in range(flood):
            libc.write(2, LINE, len(LINE))
        for number in range(flood):
            logging.getLogger("router.x").info("line %d", number)
        dropped = lines_dropped()
    os.write(ended, b"%d" % dropped)
    sys.stderr.write("the end\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
