"""ParvaGPU's six scenarios (SC 2024) planned, rehearsed and asked for what each service promises.

  python -m loadtests.placing.rehearsal_scenarios --data FOLDER --scenarios 1 2
  python -m loadtests.placing.rehearsal_scenarios --data FOLDER --scenarios 1 --feed 600 --seconds 60 --json
  s1.json

FOLDER is that of the release, with `prof_data` and `SLO`. The solver of `penstock place` finds the fewest
A100s; the gateway serves their MIG instances as rehearsed slices, several processes each where planned. A
gateway on a laptop cannot be asked 40,000 times a second, so time is stretched until --feed requests a second
are asked: latencies, SLOs and the gaps of arrivals alike. What the gateway itself takes is not stretched, and
counts for less than it would.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtests.harness.dispatch import Server
from loadtests.harness.gateway import served
from loadtests.harness.payloads import Contents, Target
from loadtests.openloop import Ask, Course, run
from loadtests.placing.fleets import KIND, SCENARIOS, scenario
from serving.policy.placement.assignment.assign import assign
from serving.policy.placement.solvers.exact import solve_exact
from serving.policy.placement.terms.geometry import A100_80
from serving.policy.placement.terms.problem import (
    Demand,
    Instances,
    Option,
    PlacementDevice,
    PlacementProblem,
    Pool,
)
from serving.profile.curve import Point, Profile
from serving.profile.files.store import ProfileStore

A100, DEVICE = "gpu-nvidia-a100-sxm4-80gb", "a"
VARIANT, PROCESSES_MAX, GPUS_MAX, SOLVE_S = "default", 5, 20, 20.0
CONNECTIONS_MAX = 16_000
"""Stretched requests are in flight for long, each on a connection."""
IN_TIME = 0.99
"""Of a service's requests, what is to be answered within its SLO."""
GEOMETRY = tuple(each for each in A100_80 if each.name != "1g.20gb")
"""Without the instance of double memory, of which ParvaGPU knows nothing."""
MODEL = """\
name: {name}
inputs: [{{name: INPUT, datatype: FP32, shape: [-1, 4]}}]
outputs: [{{name: OUTPUT, datatype: FP32, shape: [-1, 4]}}]
batch_max: 256
slo_ms: {slo_ms}
"""


@dataclass(frozen=True, slots=True)
class Instance:
    """A planned MIG instance on the numbered GPU: its model runs there in `option.processes` processes."""

    gpu: int
    model: str
    option: Option


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a scenario went: by service the share in time, and by how much time was stretched."""

    scenario: int
    gpus: int
    instances: int
    stretch: float
    offered: float
    in_time: Mapping[str, float]
    voids: Sequence[str]

    @property
    def kept(self) -> bool:
        """Whether every service kept its promise."""
        return all(share >= IN_TIME for share in self.in_time.values())


def main() -> int:
    """Return 0 if every service kept its SLO, 1 if not, 2 if nothing could run."""
    asked = _arguments()
    outcomes = []
    try:
        for number in asked.scenarios:
            with tempfile.TemporaryDirectory(prefix="penstock-scenario-") as folder:
                outcomes.append(_play(asked, number, Path(folder)))
                print("\n".join(_lines(outcomes[-1])), flush=True)
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"rehearsal_scenarios: {error}\n")
        return 2
    if asked.json:
        asked.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n")
    return 0 if all(each.kept for each in outcomes) else 1


def _play(asked: argparse.Namespace, number: int, folder: Path) -> Outcome:
    demands = scenario(asked.data, number, PROCESSES_MAX)
    instances = plan(demands)
    stretch = max(sum(each.rate for each in demands) / asked.feed, 1.0)
    settings = scene(demands, instances, stretch, folder)
    asks = [
        Ask(Target(each.model), f"{each.rate / stretch}", each.slo_us / 1e3 * stretch) for each in demands
    ]
    with served(settings) as gateway:
        course = Course(asked.seconds, asked.cv, contents=Contents(seed=asked.seed))
        patience_s = 5 + max(each.slo_us for each in demands) / 1e6 * stretch
        server = Server(gateway.host, gateway.rest_port, 16, CONNECTIONS_MAX, patience_s)
        report = run(asks, course, server)
    in_time = {
        each.model: summary.goodput / summary.offered_rate
        for each, summary in zip(demands, report.loads, strict=True)
    }
    gpus = len({each.gpu for each in instances})
    return Outcome(number, gpus, len(instances), stretch, report.total.offered_rate, in_time, report.voids)


def plan(demands: Sequence[Demand]) -> list[Instance]:
    """Return the instances of the fewest GPUs that carry these demands."""
    devices = tuple(PlacementDevice(f"gpu{place}") for place in range(GPUS_MAX))
    problem = PlacementProblem(tuple(demands), (Pool(KIND, KIND, Instances(GEOMETRY), devices),))
    draft = solve_exact(problem, {}, SOLVE_S)
    if draft is None:
        raise RuntimeError(f"no placement of {len(demands)} services was found within {SOLVE_S:g} s")
    placement = assign(problem, draft, {})
    used = [slots for slots in placement.values() if slots]
    return [
        Instance(gpu, resident.model, resident.option)
        for gpu, slots in enumerate(used)
        for slot in slots
        for resident in slot.residents
    ]


def scene(
    demands: Sequence[Demand], instances: Sequence[Instance], stretch: float, folder: Path
) -> dict[str, object]:
    """Write models and profiles into the folder; return the settings that rehearse these instances."""
    store, names = ProfileStore(folder / "profiles"), dict[str, list[str]]()
    slices = []
    for place, each in enumerate(instances):
        store.write(_profile(each, stretch))
        names.setdefault(each.model, []).append(f"s{place}")
        device = f"{DEVICE}-{each.gpu + 1}"
        entry = {"name": f"s{place}", "device": device, "share": str(each.option.share)}
        slices.append({**entry, "processes": each.option.processes})
    gpus = max(each.gpu for each in instances) + 1
    return {
        # a count of 1 would leave the number out of the name
        "devices": [{"name": DEVICE, "kind": A100, "count": max(gpus, 2), "rehearse": True}],
        "slices": slices,
        "models": [*_models(demands, names, stretch, folder)],
        "profiles": {"folder": str(folder / "profiles")},
        "limits": {"connection_count": CONNECTIONS_MAX},
    }


def _profile(instance: Instance, stretch: float) -> Profile:
    option = instance.option
    points = tuple(Point(0, rows, us * stretch, us * stretch, 1) for rows, us in option.curve)
    share = option.share.with_processes(option.processes)
    return Profile(instance.model, VARIANT, A100, points, 100_000, 1 << 28, share=share)


def _models(
    demands: Sequence[Demand], names: Mapping[str, list[str]], stretch: float, folder: Path
) -> Iterator[dict[str, object]]:
    for each in demands:
        model = folder / "models" / each.model
        model.mkdir(parents=True)
        slo_ms = round(each.slo_us / 1e3 * stretch, 3)
        (model / "model.yaml").write_text(MODEL.format(name=each.model, slo_ms=slo_ms))
        yield {"path": str(model), "slices": names[each.model]}


def _lines(outcome: Outcome) -> Iterator[str]:
    worst = min(outcome.in_time, key=lambda name: outcome.in_time[name])
    yield (
        f"S{outcome.scenario}: {outcome.gpus} GPUs, {outcome.instances} instances, "
        f"{outcome.offered:.0f}/s with time stretched {outcome.stretch:.1f} times: "
        f"{len(outcome.in_time)} services, worst {worst} {outcome.in_time[worst]:.2%} in time  "
        f"{'kept' if outcome.kept else 'MISSED'}"
    )
    yield from (f"  {name:14} {share:8.2%}" for name, share in outcome.in_time.items())
    yield from (f"  VOID: {void}" for void in outcome.voids)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="FOLDER", help="of ParvaGPU's release")
    add("--scenarios", type=int, nargs="+", choices=SCENARIOS, default=SCENARIOS)
    add("--feed", type=float, default=500.0, help="requests a second that the gateway is asked")
    add("--seconds", type=float, default=60.0)
    add("--cv", type=float, default=1.0, help="of the gaps: 0 a metronome, as ParvaGPU's, 1 Poisson")
    add("--seed", type=int, default=1)
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
