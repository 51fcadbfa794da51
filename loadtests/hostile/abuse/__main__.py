"""Hostile traffic at a gateway: what comes back, whether it still answers, whether its memory stays flat.

Without --port it starts a gateway of its own, whose memory can be watched; --pid watches another's.
--all plays the costly attacks too, and shows what everyone else has of the gateway meanwhile. --memory-mb
does so in a memory cgroup of that size, where this machine lets one be made; a gateway that an attack starts
for itself gets another. Elsewhere a line says so, it sets `held_mb` as such a container would, and compares
the memory of all its processes with the size.
Run: python -m loadtests.hostile.abuse [--rounds 3] [--failures-only] [--all] [--memory-mb 1024] [--only TEXT]
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from itertools import chain
from math import inf

from loadtests.harness.gateway import ROOT, Gateway, model_entry, started
from loadtests.harness.processes import resident_bytes
from loadtests.hostile.abuse import (
    bombs,
    conversations,
    crowds,
    edges,
    frames,
    hostile,
    leftovers,
    loads,
    logs,
    trust,
)
from loadtests.hostile.abuse.bombs import Attack
from loadtests.hostile.abuse.contained import Container, container
from loadtests.hostile.abuse.hostile import CLOSED, Case
from loadtests.hostile.abuse.others import Watched, lag_of, watch
from router.settings.gateway import HELD_SHARE

ATTACKS: tuple[Callable[[], Iterator[Attack]], ...] = (
    bombs.attacks,
    crowds.attacks,
    edges.attacks,
    frames.attacks,
    leftovers.attacks,
    loads.attacks,
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
    """Return 0 if every case and the next request got a good answer and memory stayed flat, else 1."""
    asked = _arguments()
    if asked.memory_mb:
        return _contained(asked.memory_mb, asked.only or [""])
    with _gateway(asked) as gateway:
        if asked.all:
            return 0 if _costly(gateway, asked.only or [""]) else 1
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


def _contained(memory_mb: int, only: Sequence[str]) -> int:
    """Return the costly attacks within so much memory; 0 where the gateways live and answer the others."""
    models = [model_entry("simple", slo_ms=SLO_MS), model_entry("identity", slo_ms=SLO_MS)]
    with contextlib.ExitStack() as stack:
        group: Container | None = None
        settings: dict[str, object] = {}
        try:
            group = stack.enter_context(container(memory_mb))
        except OSError as error:
            settings["limits"] = {"held_mb": int(memory_mb * HELD_SHARE)}
            print(
                f"no memory cgroup can be made here ({error}): memory is compared, and not limited, and the "
                "attacks with a gateway of their own are left out"
            )
        with group.entered() if group is not None else contextlib.nullcontext():
            gateway = stack.enter_context(started(models, (), ROOT / "profiles", **settings))
        sound = _costly(gateway, only, memory_mb, limited=group is not None)
        if group is not None:
            sound = _within(group, memory_mb) and sound
    return 0 if sound else 1


def _within(group: Container, memory_mb: int) -> bool:
    """Return whether the kernel has ended none of its processes for want of memory; prints what they had."""
    kills = group.kills()
    print(f"the most that all its processes had: {group.peak_mb():.0f} of {memory_mb} MB; {kills} killed")
    return kills == 0


def _costly(gateway: Gateway, only: Sequence[str], memory_mb: int = 0, limited: bool = False) -> bool:
    """Return each attack beside good traffic: whether the others had no bad answer, and no promise was
    broken. `memory_mb`: what all processes of a gateway may have, 0 for any amount. `limited`: the kernel
    sees to it; else attacks with a gateway of their own are left out."""
    print(f"{'':52} {'sends':>9} {'took':>6} {'/livez p50, p99, p99.9, max':>28} ", end="")
    print(f"{'good p50, p99, p99.9':>21} {'503':>4} {'bad':>3} ", end="")
    print(f"{'gRPC OK, CANCELLED, other':>25} {'gRPC p50, p99, p99.9':>21} RSS, bulk, all MB, fds")
    most_mb = memory_mb if memory_mb and not limited else inf  # the kernel counts better
    failed = int(_failed(_shown(NOTHING, watch(gateway, _nothing)), NOTHING, most_mb))
    for attack in chain.from_iterable(attacks() for attacks in ATTACKS):
        if not any(text in attack.name for text in only):
            continue
        if attack.own is None:
            failed += _failed(_shown(attack, watch(gateway, attack.play)), attack, most_mb)
        elif limited or not memory_mb:
            failed += not _alone(attack, attack.own, memory_mb)
    if gateway.metrics_port:
        print(f"the event loop's lag over all of this, but for gateways of their own: {lag_of(gateway)}")
    return not failed


def _alone(attack: Attack, own: Callable[[], AbstractContextManager[Gateway]], memory_mb: int) -> bool:
    """Return the attack at a gateway of its own, in a memory cgroup of its own where there is a limit."""
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(container(memory_mb)) if memory_mb else None
        with group.entered() if group is not None else contextlib.nullcontext():
            attacked = stack.enter_context(own())
        sound = not _failed(_shown(attack, watch(attacked, attack.play)), attack, inf)
        if group is not None:
            sound = _within(group, memory_mb) and sound
    return sound


def _failed(found: Watched, attack: Attack, memory_mb: float) -> bool:
    """Return whether a promise was broken; not where the attack is known to break it."""
    if attack.known:
        return False
    if found.broken or found.bad_answers or found.tree_mb * 1e6 > memory_mb * (1 << 20):
        return True
    if found.rpc.unexplained:
        return True
    return found.refused + found.rpc.other > 0 and not attack.refuses


def _nothing(_: Gateway) -> str:
    time.sleep(2)
    return "(what the machine itself costs)"


NOTHING = Attack("(nothing)", 0, _nothing)


def _shown(attack: Attack, found: Watched) -> Watched:
    live = " ".join(f"{found.live(share):6.1f}" for share in (0.5, 0.99, 0.999, 1))
    good = " ".join(f"{found.good(share):6.1f}" for share in (0.5, 0.99, 0.999))
    rpc = " ".join(f"{found.rpc.quantile(share):6.1f}" for share in (0.5, 0.99, 0.999))
    print(
        f"{attack.name:52.52} {attack.wire_bytes:9} {found.took_s:5.1f}s {live:>28} {good:>21} "
        f"{found.refused:4} {found.bad_answers:3} {found.rpc.good:9} {found.rpc.cancelled:9} "
        f"{found.rpc.other:5} {rpc:>21} {found.resident_mb:5.0f} {found.bulk_mb:4.0f} "
        f"{found.tree_mb:5.0f} {found.descriptors:5} {'BROKEN: ' * found.broken}{found.said[:110]!r}"
        f"{' gRPC: ' + str(dict(found.rpc.endings)) if found.rpc.other else ''}"
        f"{' known: ' + attack.known if attack.known else ''}",
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
    parser.add_argument("--memory-mb", type=int, default=0, help="the same in a container of that size")
    parser.add_argument(
        "--only", action="append", help="with --all: those whose name has this text; may be repeated"
    )
    parser.add_argument("--failures-only", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
