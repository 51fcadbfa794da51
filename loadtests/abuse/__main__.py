"""Hostile traffic at a gateway: what comes back, whether it still answers, whether its memory stays flat.

Without --port it starts a gateway of its own, whose memory can be watched; --pid watches another's.
--all plays the costly attacks too, and shows what everyone else has of the gateway meanwhile.
Run: python -m loadtests.abuse [--rounds 3] [--failures-only] [--all] [--only TEXT]
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

from loadtests.abuse import bombs, conversations, edges, hostile, logs, trust
from loadtests.abuse.bombs import Attack
from loadtests.abuse.hostile import CLOSED, Case
from loadtests.abuse.others import Watched, watch
from loadtests.gateway import Gateway, model_entry, started
from loadtests.processes import resident_bytes

ATTACKS: tuple[Callable[[], Iterator[Attack]], ...] = (
    bombs.attacks,
    edges.attacks,
    logs.attacks,
    trust.attacks,
)
SLO_MS = 5000.0  # slow answers show as such: a refusal would count as none
GROWTH_MB_MAX = 16.0  # of resident memory, from the end of the first round to the end of the last


@dataclass(frozen=True, slots=True)
class Finding:
    """What one case brought: the status, whether it was a good one, and the good request after it."""

    case: str
    status: int
    said: str
    expected: tuple[int, ...]
    next_status: int

    @property
    def sound(self) -> bool:
        return self.status in self.expected and self.next_status == 200


def main() -> int:
    """0 where every case got a good answer, the next request too, and memory stayed flat."""
    asked = _arguments()
    with _gateway(asked) as gateway:
        if asked.all:
            return _costly(gateway, asked.only or [""])
        findings, memory = [], []
        for number in range(asked.rounds):
            found = [_play(case, gateway) for case in (*hostile.cases(), *conversations.cases())]
            findings += found if number == 0 else [one for one in found if not one.sound]
            memory.append(resident_bytes(gateway.pid) / 1e6 if gateway.pid else 0.0)
    growth_mb = memory[-1] - memory[0]
    if asked.json:
        print(json.dumps({"findings": [asdict(one) for one in findings], "resident_mb": memory}))
    else:
        _print(findings, memory, asked.failures_only)
    return 0 if all(one.sound for one in findings) and growth_mb <= GROWTH_MB_MAX else 1


@contextlib.contextmanager
def _gateway(asked: argparse.Namespace) -> Iterator[Gateway]:
    if asked.port:
        yield Gateway(asked.host, asked.port, asked.pid, rpc_port=asked.grpc_port)
    else:
        with started([model_entry("simple", slo_ms=SLO_MS), model_entry("identity")]) as gateway:
            yield gateway


def _costly(gateway: Gateway, only: Sequence[str]) -> int:
    """Each attack beside good traffic; 0 where the others had no bad answer, and no promise was broken."""
    print(f"{'':52} {'sends':>9} {'took':>6} {'/livez p50, p99, p99.9, max':>28} ", end="")
    print(f"{'good p50, p99, p99.9':>21} {'503':>4} {'bad':>3} RSS, bulk MB fds")
    failed = int(_failed(_shown(NOTHING, watch(gateway, _nothing)), NOTHING))
    for attack in chain.from_iterable(attacks() for attacks in ATTACKS):
        if any(text in attack.name for text in only):
            with contextlib.nullcontext(gateway) if attack.own is None else attack.own() as attacked:
                failed += _failed(_shown(attack, watch(attacked, attack.play)), attack)
    return 1 if failed else 0


def _failed(found: Watched, attack: Attack) -> bool:
    return found.broken or found.bad_answers > 0 or (found.refused > 0 and not attack.refuses)


def _nothing(_: Gateway) -> str:
    time.sleep(2)
    return "(what the machine itself costs)"


NOTHING = Attack("(nothing)", 0, _nothing)


def _shown(attack: Attack, found: Watched) -> Watched:
    live = " ".join(f"{found.live(share):6.1f}" for share in (0.5, 0.99, 0.999, 1))
    good = " ".join(f"{found.good(share):6.1f}" for share in (0.5, 0.99, 0.999))
    print(
        f"{attack.name:52.52} {attack.wire_bytes:9} {found.took_s:5.1f}s {live:>28} {good:>21} "
        f"{found.refused:4} {found.bad_answers:3} {found.resident_mb:5.0f} {found.bulk_mb:4.0f} "
        f"{found.descriptors:5} {'BROKEN: ' * found.broken}{found.said[:90]!r}",
        flush=True,
    )
    return found


def _play(case: Case, gateway: Gateway) -> Finding:
    try:
        status, said = case.play(gateway)
    except OSError as error:
        status, said = CLOSED, f"{type(error).__name__}: {error}"
    try:
        next_status, _ = conversations.good_answer(gateway)
    except OSError:
        next_status = CLOSED
    return Finding(case.name, status, said, case.expected, next_status)


def _print(findings: Sequence[Finding], memory_mb: Sequence[float], failures_only: bool) -> None:
    for one in findings:
        if failures_only and one.sound:
            continue
        came = "closed" if one.status == CLOSED else str(one.status)
        verdict = "ok  " if one.sound else "FAIL"
        after = "" if one.next_status == 200 else f"  (the next good request got {one.next_status})"
        print(f"{verdict} {one.case:45.45} {came:6} {one.said[:100]}{after}")
    failed = sum(not one.sound for one in findings)
    print(f"{len(findings) - failed} good answers, {failed} bad ones")
    if any(memory_mb):
        shown = ", ".join(f"{one:.1f}" for one in memory_mb)
        print(
            f"resident memory of the gateway after each round: {shown} MB (may grow by {GROWTH_MB_MAX:.0f})"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument(
        "--port", type=int, default=0, help="REST port of a running gateway with the sample models"
    )
    parser.add_argument("--grpc-port", type=int, default=0, help="of that gateway, for --all")
    parser.add_argument("--pid", type=int, default=0, help="of that gateway, to watch its memory")
    parser.add_argument("--rounds", type=int, default=3, help="the first one warms up")
    parser.add_argument("--all", action="store_true", help="the costly attacks, beside good traffic")
    parser.add_argument(
        "--only", action="append", help="with --all: those whose name has this text; may be repeated"
    )
    parser.add_argument("--failures-only", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
