"""What learning a selection costs against knowing it: Exp3 and Exp4 beside each fixed variant.

    python -m loadtests.selection.learning [--rounds 20000] [--seeds 10]

Of digits' variants, by what each said of the 597 held-out rows (build/validation.json): rounds draw rows at
random, the loss of a wrong answer is 1. `failing`: the best variant is wrong nine times of ten in the second
quarter (Clipper, NSDI 2017, figure 8); `spiteful`: rounds that fool whoever follows the leader. Regret is to
the best fixed variant; means of all seeds, and the bound. Then what subsets are worth together, as measured.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from loadtests.harness.wire import DIGITS
from serving.policy.variants.exp3 import Exp3, exp3_regret_max
from serving.policy.variants.exp4 import Exp4, exp4_regret_max
from serving.policy.variants.voting import Panel, convene
from serving.values.specs import Validation

CLASSES = 10
FAILS = 0.9
SPITE = (0.45, 0.9, 0.9)  # of all arms but the first two, which are wrong in turns

Losses = npt.NDArray[np.float64]
Stream = Callable[[int, int], Losses]
"""Of rounds and a seed: losses `[rounds, arms]`."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """Mean losses of a run. `own`: of the policy that draws or votes; `voted`: of the weighted vote (nan if
    the policy plays one arm); `fixed`: of each arm. `shares`: of the arms' plays or weights, by quarter."""

    own: float
    voted: float
    fixed: list[float]
    shares: list[list[float]]


def read_validation() -> Validation:
    """Return what digits' build measured."""
    told = json.loads((DIGITS / "validation.json").read_text())
    return Validation(
        tuple(told["labels"]), tuple((name, tuple(said)) for name, said in told["predictions"].items())
    )


def streams(validation: Validation) -> dict[str, Stream]:
    """Return streams of losses of digits' variants, by name."""
    labels = np.array(validation.labels)
    wrong = np.array([np.array(said) != labels for _, said in validation.predictions]).T.astype(float)
    best = int(wrong.mean(0).argmin())

    def steady(rounds: int, seed: int) -> Losses:
        return wrong[np.random.default_rng(seed).integers(0, len(wrong), rounds)]

    def failing(rounds: int, seed: int) -> Losses:
        losses = steady(rounds, seed)
        second = slice(rounds // 4, rounds // 2)
        losses[second, best] = np.random.default_rng(seed + 1).random(losses[second].shape[0]) < FAILS
        return losses

    def spiteful(rounds: int, _: int) -> Losses:
        turns = np.arange(rounds) % 2
        others = [np.full(rounds, loss) for loss in SPITE]
        return np.stack([turns.astype(float), 1.0 - turns, *others], 1)

    return {"steady": steady, "failing": failing, "spiteful": spiteful}


def play(losses: Losses, seed: int) -> Learnt:
    """Play Exp3, which learns the loss of each play."""
    policy, numbers = Exp3(losses.shape[1]), Random(seed)
    own, arms = 0.0, []
    for loss in losses.tolist():
        arm, probability = policy.play(numbers.random())
        policy.learn(arm, loss[arm], probability)
        own += loss[arm]
        arms.append(arm)
    quarters = np.array_split(np.array(arms), 4)
    shares = [[float((part == arm).mean()) for arm in range(losses.shape[1])] for part in quarters]
    return Learnt(own / len(losses), float("nan"), losses.mean(0).tolist(), shares)


def weigh(losses: Losses) -> Learnt:
    """Play Exp4, which learns each time which variants were wrong. The vote counts as wrong if at least half
    of the weight was wrong. It may have been right all the same, if the wrong variants named different
    classes."""
    policy = Exp4(losses.shape[1])
    own, weights = 0.0, []
    voted = 0.0 if np.isin(losses, (0, 1)).all() else float("nan")
    for loss in losses.tolist():
        shares = policy.weights()
        expected = sum([share * each for share, each in zip(shares, loss, strict=True)])
        own += expected
        voted += expected >= 0.5
        weights.append(shares)
        policy.learn(dict(enumerate(loss)))
    quarters = np.array_split(np.array(weights), 4)
    return Learnt(
        own / len(losses),
        voted / len(losses),
        losses.mean(0).tolist(),
        [part.mean(0).tolist() for part in quarters],
    )


def table_of(title: str, names: Sequence[str], rounds: int, found: dict[str, list[Learnt]]) -> Table:
    """Return a table of mean loss, regret and bound of each policy, beside each arm's loss."""
    table = Table(title=title)
    for column in ("policy", "loss", "regret", "bound", "by vote", *names):
        table.add_column(column, justify="right" if column != "policy" else "left")
    bounds = {"exp3": exp3_regret_max(rounds, len(names)), "exp4": exp4_regret_max(rounds, len(names))}
    for policy, runs in found.items():
        own, fixed = np.mean([run.own for run in runs]), np.mean([run.fixed for run in runs], 0)
        regret = np.mean([run.own - min(run.fixed) for run in runs]) * rounds
        voted = np.mean([run.voted for run in runs])
        table.add_row(
            policy, f"{own:.4f}", f"{regret:.0f}", f"{bounds[policy]:.0f}",
            "-" if np.isnan(voted) else f"{voted:.4f}", *(f"{each:.4f}" for each in fixed),
        )  # fmt: skip
        shares = np.mean([run.shares for run in runs], 0)
        for quarter, part in enumerate(shares, 1):
            what = f"  {'plays' if policy == 'exp3' else 'weight'}, quarter {quarter}"
            table.add_row(what, *[""] * 4, *(f"{each:.0%}" for each in part))
    return table


def subsets_of(panel: Panel) -> Table:
    """Return a table of joint accuracies, the best first."""
    table = Table(title="joint accuracy of digits' variants, by vote, cross-fitted")
    table.add_column("members")
    table.add_column("accuracy", justify="right")
    for subset, accuracy in sorted(panel.accuracy.items(), key=lambda each: -each[1]):
        mark = " *" if subset == panel.whole else ""
        table.add_row("+".join(panel.members[place] for place in subset) + mark, f"{accuracy:.4f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    console = Console(width=120)
    validation = read_validation()
    names = [name for name, _ in validation.predictions]
    for title, stream in streams(validation).items():
        found: dict[str, list[Learnt]] = {"exp3": [], "exp4": []}
        for seed in range(arguments.seeds):
            losses = stream(arguments.rounds, seed)
            found["exp3"].append(play(losses, seed))
            found["exp4"].append(weigh(losses))
        console.print(table_of(f"{title}, {arguments.rounds} rounds", names, arguments.rounds, found))
    console.print(subsets_of(convene(validation, names, CLASSES)))


if __name__ == "__main__":
    main()
