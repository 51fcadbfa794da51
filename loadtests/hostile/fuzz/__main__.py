"""Fuzz what reads bytes of others: parsers in this process, or with --server the edges of a gateway.

  python -m loadtests.hostile.fuzz                               # 20,000 inputs, a minute
  python -m loadtests.hostile.fuzz --inputs 1000000              # shared out over the targets, half an hour
  python -m loadtests.hostile.fuzz --targets json,http --seconds 60 --seed 7
  python -m loadtests.hostile.fuzz --server --inputs 20000       # starts a gateway; --port for another
  python -m loadtests.hostile.fuzz --replay fuzz-findings/json/0123456789ab
  python -m loadtests.hostile.fuzz.guided json                   # by coverage, where atheris is installed

An input is a fault where it takes over 50 ms of processor time, or memory grows by over 64 MB, or an
exception comes out that is none of the expected ones, or an answer is missing or malformed. It is written
down, with the command that plays it again. Exit status 1 where there was one.
"""

import argparse
import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from loadtests.harness.gateway import Gateway, model_entry, started
from loadtests.hostile.fuzz.playing import Found, Target, fault_of, play
from loadtests.hostile.fuzz.targets import IN_PROCESS, SERVER

Chosen = list[tuple[float, AbstractContextManager[Target]]]


def main() -> int:
    """Return 0 if no input was a fault, else 1."""
    asked = _arguments()
    logging.disable(logging.CRITICAL)  # what clients do is logged, and clients do it a million times
    if asked.replay:
        return _replay(asked)
    with _gateway(asked) as gateway:
        found = [*_play_all(_chosen(asked, gateway), asked)]
    faults = sum(len(each.faults) for each in found)
    print(f"{sum(each.inputs for each in found):,} inputs, {faults} kinds of faults")
    return 1 if faults else 0


def _play_all(chosen: Chosen, asked: argparse.Namespace) -> Iterator[Found]:
    print(f"{'target':12} {'inputs':>9} {'accepted':>8} {'a second':>8} {'longest':>9} {'memory':>8} faults")
    whole = sum(share for share, _ in chosen)
    for share, opened in chosen:
        until_s = time.monotonic() + asked.seconds * share / whole if asked.seconds else float("inf")
        inputs = sys.maxsize if asked.seconds else max(1, round(asked.inputs * share / whole))
        with opened as target:
            found = play(target, inputs, asked.seed, until_s, asked.out)
        print(
            f"{found.target:12} {found.inputs:9,} {found.accepted / found.inputs:8.1%} "
            f"{found.inputs / found.seconds:8,.0f} {found.longest_ms:6.1f} ms {found.growth_mb:+5.1f} MB "
            f"{dict(found.faults) or 0}",
            flush=True,
        )
        yield found


def _chosen(asked: argparse.Namespace, gateway: Gateway | None) -> Chosen:
    known: Mapping[str, tuple[float, Any]] = SERVER if asked.server else IN_PROCESS
    names = asked.targets.split(",") if asked.targets else list(known)
    if unknown := set(names) - known.keys():
        raise SystemExit(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [(known[name][0], known[name][1](gateway) if gateway else known[name][1]()) for name in names]


def _replay(asked: argparse.Namespace) -> int:
    name = asked.replay.resolve().parent.name
    if name not in IN_PROCESS.keys() | SERVER.keys():
        raise SystemExit(
            f"{asked.replay} lies in no folder of a target; expected one of {[*IN_PROCESS, *SERVER]}"
        )
    asked.server = name in SERVER
    asked.targets = name
    with _gateway(asked) as gateway:
        ((_, opened),) = _chosen(asked, gateway)
        with opened as target:
            if asked.raw:
                print(target.play(asked.replay.read_bytes()))
                return 0
            fault, accepted, took_ms = fault_of(target, asked.replay.read_bytes())
    print(f"{fault or ('accepted' if accepted else 'refused')}, {took_ms:.1f} ms")
    return 1 if fault else 0


@contextlib.contextmanager
def _gateway(asked: argparse.Namespace) -> Iterator[Gateway | None]:
    if not asked.server:
        yield None
    elif asked.port:
        yield Gateway(asked.host, asked.port, asked.pid, rpc_port=asked.grpc_port)
    else:
        with started([model_entry("simple"), model_entry("identity")]) as gateway:
            yield gateway


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=20_000, help="of all targets together")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="of all targets together, in place of --inputs"
    )
    parser.add_argument(
        "--targets", default="", help=f"of {', '.join(IN_PROCESS)}; with --server {', '.join(SERVER)}"
    )
    parser.add_argument("--seed", type=int, default=1, help="the same inputs for the same seed")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"), help="where faults are written")
    parser.add_argument("--replay", type=Path, help="play one file, FOLDER/TARGET/NAME")
    parser.add_argument(
        "--raw", action="store_true", help="with --replay: let an exception out, with traceback"
    )
    parser.add_argument("--server", action="store_true", help="against a gateway that runs")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument(
        "--port", type=int, default=0, help="with --server: REST port of a gateway with the samples"
    )
    parser.add_argument("--grpc-port", type=int, default=0, help="of that gateway")
    parser.add_argument("--pid", type=int, default=0, help="of that gateway, to watch its memory")
    return parser.parse_args()


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
