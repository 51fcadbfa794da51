"""Does accuracy give way before answers do, and come back? Load climbs to three times what the most accurate
variant can carry, falls again, and stays low for a while; answers are judged by labels, over the wire.

  python -m loadtests.selection.variants
  python -m loadtests.selection.variants --model digits --seconds 4 --out variants.json --png variants.png

`digits` is asked for eight held-out images a request, `minilm` for the embedding of a summary, which has to
be nearest to its own body. In turns: the ladder (`accuracy_min`, `optimize: most_accurate`), the top variant
alone and the bottom one alone (`default_variant`), each on a gateway of its own, the worker on one core,
gateway and client on the other. Then, with the ladder, two classes at once, of which one states a higher
floor. Load 1 is what the top variant carries by its profile, in batches of 2 l(b) <= SLO.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from loadtests.harness.pictures import png
from loadtests.harness.report import without_nan
from loadtests.placing.placed import shipped_profiles
from loadtests.selection.variants_chart import draw, say, show
from loadtests.selection.variants_play import (
    CONFIGURATIONS,
    LADDER,
    Turn,
    known_of,
    play_classes,
    play_staircase,
    staged,
)
from loadtests.selection.variants_scores import Known, staircase, unscaled
from loadtests.selection.variants_subjects import Digits, Subject, Summaries
from loadtests.stand.stage import Place

LOADS = (0.3, 0.7, 1.2, 2.0, 3.0)
SUBJECTS: Mapping[str, Callable[[int], Subject]] = {"digits": Digits, "minilm": Summaries}


@dataclass(frozen=True, slots=True)
class Finding:
    """Of a model: its variants, the turns, and the classes that asked at once."""

    model: str
    known: Known
    turns: Sequence[Turn]
    classes: Sequence[Turn]

    @property
    def every(self) -> list[Turn]:
        """All turns."""
        return [*self.turns, *self.classes]


def main() -> int:
    """Return 0 if promises were kept and runs can be believed, 1 if not, 2 if a run could not be made."""
    asked = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 160)
    findings: list[Finding] = []
    failed = False
    with _profiles(asked) as profiles:
        place = Place(asked.worker_core, asked.core, profiles)
        for model in asked.model:
            try:
                findings.append(find(SUBJECTS[model](asked.seed), place, asked, console))
            except (ValueError, OSError, RuntimeError) as error:
                sys.stderr.write(f"variants: {model}: {error}\n")
                failed = True
            else:
                show(model, findings[-1].turns, findings[-1].classes, console)
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        found = {"arguments": sys.argv[1:], "models": list(map(asdict, findings))}
        asked.out.write_text(json.dumps(without_nan(found), allow_nan=False) + "\n")
    if asked.png and findings:
        draw({one.model: (one.known, one.turns) for one in findings}, asked.png)
    return 2 if failed else int(any(turn.broken or turn.voids for one in findings for turn in one.every))


def find(subject: Subject, place: Place, asked: argparse.Namespace, console: Console) -> Finding:
    """Return every configuration in turn, each on a gateway of its own; errors as `variants_play.staged`."""
    turns: list[Turn] = []
    classes: list[Turn] = []
    stairs = staircase(asked.loads, asked.seconds)
    known: Known | None = None
    for configuration in asked.only:
        with staged(configuration, subject, place) as stage:
            if known is None:
                known = known_of(subject, stage)
                say(subject.terms.model, known, place, console)
            for variant in known.accuracy:
                subject.learn(stage.gateway, variant)
            turns.append(play_staircase(configuration, stage, subject, known, stairs, asked.seed))
            if configuration == LADDER:
                classes = play_classes(stage, subject, known, 2 * asked.seconds, asked.seed)
    if known is None:
        raise ValueError("--only: no configuration is asked for")
    return Finding(subject.terms.model, known, [held(turn, turns) for turn in turns], classes)


def held(turn: Turn, turns: Sequence[Turn]) -> Turn:
    """Return the turn; the ladder's held against what the fixed variants showed on the same stairs."""
    fixed = [one.steps for one in turns if one.name != LADDER]
    if turn.name != LADDER or not fixed:
        return turn
    return replace(turn, broken=[*turn.broken, *unscaled(turn.steps, fixed)])


def _profiles(asked: argparse.Namespace) -> contextlib.AbstractContextManager[Path]:
    return contextlib.nullcontext(asked.profiles.resolve()) if asked.profiles else shipped_profiles()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    add("--only", nargs="+", choices=CONFIGURATIONS, default=CONFIGURATIONS, metavar="CONFIGURATION")
    add(
        "--loads",
        type=float,
        nargs="+",
        default=LOADS,
        help="of the stairs, in capacities of the top variant",
    )
    add("--seconds", type=float, default=2, help="of each stair")
    add("--seed", type=int, default=0)
    add("--worker-core", type=int, default=0)
    add("--core", type=int, default=1, help="of gateway and client")
    add("--profiles", type=Path, metavar="DIR", help="profiles that stay, instead of the shipped ones")
    add("--out", type=Path, metavar="FILE", help="figures as JSON")
    add("--png", type=png, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
