"""What becomes of requests while a gateway changes: the live controller and scheduler in virtual time.

One process, no clock: requests are Poisson from a seed and due in 40 ms; a batch of b rows takes 4 + b ms on
a small share of a device and half as long on a large one, a load 0.7 to 2.1 s. Nothing else takes time, and a
load slows nobody down: what that costs is for `python -m loadtests.failures.moves` to say.
Run: python -m loadtests.virtual.virtual_moves
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from serving.control.control import Control
from serving.control.state.desired import DesiredState
from serving.profile.curve import Point, Profile
from serving.profile.sweeping.sweep import REFINED_COUNT
from serving.scheduler.commands import Answer, RunBatch
from serving.simulation.devices.device import BatchTimes
from serving.simulation.devices.site import Site
from serving.simulation.governed.controlled import ControlledSimulation
from serving.simulation.governed.dataplane import Steered
from serving.simulation.governed.planning import Stubborn
from serving.simulation.governed.virtual_workers import Weight, WorkerTerms
from serving.simulation.traffic.arrivals import Arrival
from serving.simulation.traffic.patterns import POISSON_CV, RateStep, draw
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import Limits, ModelSpec, ServedModel, TensorSpec, VariantSpec
from serving.values.vocabulary import Kind, Outcome

SECOND = 1_000_000
MOVE_US, END_US = 15 * SECOND, 25 * SECOND
SMALL, LARGE = Share("mps", 30.0), Share("mps", 60.0)
BASE_US, ROW_US, ROWS_MAX = 4_000, 1_000, 8
SLO_US, LOAD_US, GIB = 40_000, 1_400_000, 1 << 30


def served(name: str) -> ServedModel:
    """Return a model of one variant."""
    tensor = TensorSpec("X", "FP32", (-1, 1))
    spec = ModelSpec(name, Path(), (tensor,), (tensor,), (VariantSpec("a", None),), "a", SLO_US, ROWS_MAX)
    return ServedModel(spec, SLO_US, ("a",), ())


def wanted(*there: tuple[SliceSpec, tuple[ServedModel, ...]]) -> DesiredState:
    """Return those models on each slice."""
    models = {model.name: model for _, several in there for model in several}
    on = {name: tuple(spec.name for spec, several in there if models[name] in several) for name in models}
    on_slices = (replace(model, slices=on[name]) for name, model in models.items())
    return DesiredState.of((spec for spec, _ in there), on_slices)


def batch_us(share: Share, rows: int) -> int:
    """Return the truth."""
    return (BASE_US + ROW_US * rows) // (1 if share == SMALL else 2)


@dataclass(frozen=True, slots=True)
class ToldDevice:
    """Batches take what `truth` says of their slice, model, variant and rows. A `BatchDevice`."""

    truth: Callable[[str, str, str, int], int]

    def take(self, batch: RunBatch, start_us: int, running: int) -> BatchTimes:  # noqa: ARG002  a BatchDevice
        """See `BatchDevice`."""
        took_us = self.truth(batch.slice, batch.model, batch.variant, batch.rows)
        return BatchTimes(took_us, took_us)


class Ended(NamedTuple):
    """How a request ended. `late_us`: after its deadline, at most 0 in time."""

    arrived_us: int
    model: str
    outcome: Outcome
    late_us: int
    detail: str


class Listed(Steered):
    """Keeps how requests ended, in the order of their ends."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        slices: Sequence[SliceSpec],
        truth: Callable[[str, str, str, int], int],
        asked: Sequence[Arrival],
    ) -> None:
        """Create a listing data plane. `asked`: the arrivals in ascending order, by the places of
        `models`."""
        self.ended: list[Ended] = []
        super().__init__(Site(tuple(models), ()), ToldDevice(truth), models, slices)
        self.ask(asked)

    def answered(self, answer: Answer, now_us: int) -> None:
        """See `Simulation`."""
        request = answer.request
        late_us = now_us - request.deadline_us
        self.ended.append(Ended(request.arrived_us, request.model, answer.outcome, late_us, answer.detail))


@dataclass(frozen=True, slots=True)
class Found:
    """How `asked` requests ended; `open`: those without an answer at the end. The move took `took_us`."""

    ended: Sequence[Ended]
    asked: int
    open: int
    took_us: int

    def within(self, first_us: int, last_us: int) -> tuple[int, int, int]:
        """Return (requests that came in that time, those answered in time, those that were not answered)."""
        there = [each for each in self.ended if first_us <= each.arrived_us < last_us]
        done = [each for each in there if each.outcome.kind is Kind.COMPLETED]
        return len(there), sum(each.late_us <= 0 for each in done), len(there) - len(done)


@dataclass(frozen=True, slots=True)
class Scene:
    """From `before` to `after` at MOVE_US. `crashes`: by slice, when its worker dies."""

    name: str
    before: DesiredState
    after: DesiredState
    by: tuple[DesiredState, ...] = ()
    crashes: Mapping[str, int] | None = None

    def play(self, seed: int, rate: float) -> Found:
        """Play `rate` requests a second for each model that is there before and after."""
        rng = np.random.default_rng(seed)
        names = [each.name for each in self.before.models if each.name in {m.name for m in self.after.models}]
        steps = [RateStep(rate, END_US / 1e6)]
        places = {each.name: place for place, each in enumerate(self.before.models)}
        asked = [
            Arrival(int(at_s * 1e6) + 1, places[name])
            for name in names
            for at_s in draw(steps, POISSON_CV, rng).tolist()
        ]
        control = Control(
            [each.spec for each in self.before.slices],
            self.before.models,
            self._profiles(names),
            Limits(),
            lambda _: "virtual",
        )

        def truth(slice_name: str, _model: str, _variant: str, rows: int) -> int:
            return batch_us(control.slices[slice_name].spec.share, rows)

        plane = Listed(self.before.models, self._specs(), truth, sorted(asked))
        terms = WorkerTerms({(name, "a"): Weight(LOAD_US, GIB) for name in names})
        run = Run(control, terms, Stubborn(), plane, seed, calm_us=0)
        run.at(0, control.start)
        run.at(MOVE_US, lambda now_us: control.want(self.after, now_us, self.by))
        for slice_name, at_us in (self.crashes or {}).items():
            run.crash(at_us, slice_name)
        run.play(END_US + SECOND)
        return Found(plane.ended, len(asked), plane.open, run.steady_us - MOVE_US)

    def _specs(self) -> list[SliceSpec]:
        return [each.spec for state in (self.before, *self.by, self.after) for each in state.slices]

    def _profiles(self, names: Sequence[str]) -> dict[tuple[str, str, str], Profile]:
        return {
            (spec.name, name, "a"): _profile(name, spec.share) for spec in self._specs() for name in names
        }


def _profile(model: str, share: Share) -> Profile:
    points = (
        Point(0, rows, float(batch_us(share, rows)), float(batch_us(share, rows)), REFINED_COUNT)
        for rows in range(1, ROWS_MAX + 1)
    )
    return Profile(model, "a", "virtual", tuple(points), share=share, load_us=LOAD_US, memory_bytes=GIB)


class Run(ControlledSimulation):
    """Notes when the move was done."""

    steady_us = 0

    def settled(self) -> None:
        """See `ControlledSimulation`."""
        if self.now_us >= MOVE_US and not self.steady_us and self.control.progress.state == "steady":
            self.steady_us = self.now_us


ONE, OTHER, THIRD = (SliceSpec(f"{device}-0", (), device=device, part=SMALL) for device in "def")
LARGER = replace(ONE, part=LARGE)
M, N = served("m"), served("n")
ON_ONE = wanted((ONE, (M,)))
PAIR, SWAPPED = wanted((ONE, (M,)), (OTHER, (N,))), wanted((ONE, (N,)), (OTHER, (M,)))
STOOD_IN = (
    wanted((ONE, (M,)), (OTHER, (N,)), (THIRD, (M,))),
    wanted((ONE, ()), (OTHER, (N,)), (THIRD, (M,))),
    wanted((ONE, (N,)), (OTHER, (N,)), (THIRD, (M,))),
    wanted((ONE, (N,)), (OTHER, ()), (THIRD, (M,))),
    wanted((ONE, (N,)), (OTHER, (M,)), (THIRD, (M,))),
)
SCENES = (
    Scene("a share grows", ON_ONE, wanted((LARGER, (M,)))),
    Scene("a share shrinks", wanted((LARGER, (M,))), ON_ONE),
    Scene("a model moves to another device", ON_ONE, wanted((OTHER, (M,)))),
    Scene("two models change places at once", PAIR, SWAPPED),
    Scene("two models change places one by one, a third device stands in", PAIR, SWAPPED, STOOD_IN),
    Scene("a model's files change", ON_ONE, wanted((ONE, (replace(M, revision="new"),)))),
)
ACCIDENTS = (
    Scene(
        "it moves; the new worker dies on the way",
        ON_ONE,
        wanted((OTHER, (M,))),
        (),
        {"e-0": MOVE_US + SECOND},
    ),
    Scene(
        "it moves; the old worker dies on the way",
        ON_ONE,
        wanted((OTHER, (M,))),
        (),
        {"d-0": MOVE_US + SECOND},
    ),
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=400.0, help="requests a second for each model")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    print("| move | takes | requests meanwhile | answered in time | not answered | in time before |")
    print("|---|---:|---:|---:|---:|---:|")
    for scene in (*SCENES, *ACCIDENTS):
        found = scene.play(chosen.seed, chosen.rate)
        count, good, failed = found.within(MOVE_US, MOVE_US + found.took_us)
        before, well, _ = found.within(MOVE_US // 4, MOVE_US)
        took = f"{found.took_us / 1e6:.1f} s"
        print(f"| {scene.name} | {took} | {count} | {good / count:.2%} | {failed} | {well / before:.2%} |")


if __name__ == "__main__":
    main()
