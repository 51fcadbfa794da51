"""`python -m serving.worker.rehearsed`: the process behind all rehearsed slices. The gateway starts it."""

import argparse
import resource
import signal
from contextlib import suppress
from pathlib import Path

from serving.worker.rehearsed.host import host_on

_SLACK = Path("/proc/self/timerslack_ns")


def main() -> None:
    """Serve until the gateway closes the control socket."""
    parser = argparse.ArgumentParser(prog="serving.worker.rehearsed", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="control socket to the gateway")
    parser.add_argument("--profiles", type=Path, required=True, help="folder of profiles")
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the gateway decides when it ends
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # three for each slice
    with suppress(OSError):  # the kernel's own slack of 50 us would lengthen each batch
        _SLACK.write_text("1000")
    host_on(asked.fd, asked.profiles)


if __name__ == "__main__":
    main()
