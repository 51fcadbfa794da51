"""More models than memory: who stays, by several rules, in virtual time; and a live gateway.

  python -m loadtests.memory.residency                                     # the rules, in virtual time
  python -m loadtests.memory.residency --live [--seconds 60] [--rate 20]   # a gateway with 50 models; 10 fit

In virtual time what decides live is played: loads one at a time, waits, deadlines. The models are asked for
by Zipf's law; where ranks drift a tenth of the models change theirs every --drift seconds. `hits` found their
model there, `by cost` counts each by its load time, `answered` are hits and those that a load was in time
for, `too late` those that it was not, `no room` those for whom nobody had to go.

Live, each model's weights are read from a file, and --load-ms go by in addition. Each model is asked for
once before, so that it is known. A hit is an answer within half of --load-ms. The same arrivals are then
played in virtual time under all rules.
"""

import argparse
import os
import sys
from itertools import product

from loadtests.memory.eviction import Belady, Gdsf, Lfu, Lru
from loadtests.memory.residency_live import run, show
from loadtests.memory.residency_play import (
    Arrivals,
    Play,
    Tally,
    equal_models,
    unequal_models,
    zipf_arrivals,
)
from serving.control.on_demand.on_demand_model import LoadFigures
from serving.policy.residency import EvictionPolicy, ForecastGdsf

MODELS = 50
FIT = 10
MB = 1 << 20
PROCESS_MB = 1.0  # that a small model takes beside its weights


def policies(arrivals: Arrivals) -> dict[str, EvictionPolicy]:
    """Return the policies by name, our own first."""
    return {
        "forecast": ForecastGdsf(),
        "gdsf": Gdsf(),
        "lru": Lru(),
        "lfu": Lfu(),
        "belady": Belady(arrivals.of_models()),
    }


def compare(title: str, figures: tuple[list[LoadFigures], int], arrivals: Arrivals) -> None:
    """Print one row for each policy."""
    print(title)
    for name, policy in policies(arrivals).items():
        print(_row(name, Play(*figures, policy).run(arrivals)), flush=True)


def main() -> int:
    """Return 0, or 1 if a live gateway failed requests or its worker's memory grew past the limit."""
    asked = _arguments()
    if asked.live:
        return _live(asked)
    for rate, slo_ms, exponent, drift_s in product(asked.rates, (1000, 200), (0.9, 1.1), (0.0, asked.drift)):
        arrivals = zipf_arrivals(MODELS, (rate, asked.requests / rate), exponent, drift_s, asked.seed)
        for kind, figures in (
            ("alike", equal_models(MODELS, slo_ms * 1e3)),
            ("unlike", unequal_models(MODELS, slo_ms * 1e3, asked.seed)),
        ):
            drift = f"drift of {drift_s:g} s" if drift_s else "no drift"
            compare(
                f"{kind}, {rate:g} requests/s, SLO {slo_ms} ms, Zipf({exponent}), {drift}", figures, arrivals
            )
    return 0


def _row(name: str, tally: Tally) -> str:
    return (
        f"  {name:9} hits {tally.hit_ratio:.3f}  by cost {tally.saved_ratio:.3f}  "
        f"answered {tally.answered_ratio:.3f}  too late {tally.late / tally.asked:.3f}  "
        f"no room {tally.refused / tally.asked:.3f}  {tally.loads} loads, {tally.load_us / 1e6:.0f} s"
    )


def _live(asked: argparse.Namespace) -> int:
    drift_s = asked.drift if asked.drifts else 0.0
    arrivals = zipf_arrivals(MODELS, (asked.rate, asked.seconds), asked.exponent, drift_s, asked.seed)
    figures = LoadFigures(round(asked.mb * MB), asked.load_ms * 1e3, slo_us=asked.slo_ms * 1e3)
    limit_mb = FIT * (asked.mb + PROCESS_MB)
    print(
        f"{MODELS} models of {asked.mb:g} MB, {FIT} fit; {asked.rate:g} requests/s for {asked.seconds:g} s "
        f"by Zipf({asked.exponent:g}), SLO {asked.slo_ms:g} ms, a load {asked.load_ms:g} ms and more"
    )
    seen = run([figures] * MODELS, limit_mb, arrivals, (asked.server_cores, asked.worker_cores))
    sound = show(seen, asked.load_ms, asked.slo_ms)
    compare("the same arrivals in virtual time:", ([figures] * MODELS, FIT * figures.memory_bytes), arrivals)
    return 0 if sound else 1


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _cores(text: str) -> list[int]:
    return [int(core) for core in text.split(",")]


def _arguments() -> argparse.Namespace:
    mine = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rates", type=_numbers, default=[2.0, 20.0], help="requests a second, in virtual time")
    add("--requests", type=int, default=8000, help="of each run in virtual time")
    add("--drift", type=float, default=250.0, help="seconds between changes of ranks")
    add("--seed", type=int, default=1)
    add("--live", action="store_true", help="a gateway instead")
    add("--rate", type=float, default=20.0, help="live: requests a second")
    add("--seconds", type=float, default=60.0, help="live: of arrivals")
    add("--exponent", type=float, default=1.1, help="live: of Zipf's law")
    add("--drifts", action="store_true", help="live: ranks drift")
    add("--mb", type=float, default=5.0, help="live: of a model's weights")
    add("--load-ms", type=float, default=300.0, help="live: that a load takes beside reading them")
    add("--slo-ms", type=float, default=1000.0, help="live: of each model")
    add("--server-cores", type=_cores, default=mine[:1], metavar="0")
    add("--worker-cores", type=_cores, default=mine[-1:], metavar="1")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
