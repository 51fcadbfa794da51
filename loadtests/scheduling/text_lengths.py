"""Texts of 3 to 128 tokens on minilm: what padding costs, and how well a batch's latency is foretold.

  python -m loadtests.scheduling.text_lengths
  python -m loadtests.scheduling.text_lengths --share 0.9 --seconds 60 --buckets 16 32 64 128 256 512 --json
  lengths.json

The gateway runs in this process, on one core, its worker alone on another, so that every batch can be seen:
its padded tokens, what was planned with, and what it took. Lengths are log-uniform in tokens, arrivals
Poisson, the rate is a share of what the measured profile promises for this mix. The second table asks of the
same batches what other estimates would have said.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import uvloop
from rich.console import Console
from rich.table import Table

from loadtests.harness import texts
from loadtests.harness.gateway import ROOT
from loadtests.harness.processes import undisturbed
from loadtests.harness.texts import Text
from loadtests.scheduling.hindsight import UNLEARNT, Error, Padded, estimates, fit_tokens, judge, replay
from loadtests.stand.observed import Batch, Ending, opened
from router.settings import load_model
from serving.ports import Call
from serving.profile.curve import Profile
from serving.profile.derived.latency import Latency
from serving.simulation.traffic.patterns import due_times
from serving.values.specs import BatchingSpec, ServedModel, SizeHint
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED

DISTINCT = 4096
IN_ALL = "all"


@dataclass(frozen=True, slots=True)
class Finding:
    """A run: how requests ended, padded over true tokens and the error of each estimate, by bucket."""

    rate: float
    endings: Mapping[str, int]
    attainment: float
    rows: Mapping[str, float]  # mean of a batch
    waste: Mapping[str, float]
    errors: Mapping[str, Mapping[str, Error]]
    batches: Sequence[Padded]


def main() -> int:
    """Return 0 if a run was made, 2 if none could be."""
    asked = _arguments()
    try:
        with _profiles(asked.profiles) as folder, undisturbed(asked.core, realtime=False):
            finding = asyncio.Runner(loop_factory=uvloop.new_event_loop).run(measure(asked, folder))
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"text_lengths: {error}\n")
        return 2
    show(finding, Console(width=None if sys.stdout.isatty() else 150))
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps({"arguments": sys.argv[1:], **asdict(finding)}) + "\n")
    return 0


async def measure(asked: argparse.Namespace, profiles: Path) -> Finding:
    """Play one run, as asked for."""
    model = served(asked)
    drawn = texts.draw(DISTINCT, asked.seed)
    async with opened(model, [asked.worker_core], profiles) as bench:
        profile = bench.profile
        rate = asked.rate or asked.share * capacity(model, profile, [text.size(asked.hint) for text in drawn])
        due_s = due_times(f"{rate}", asked.seconds, 1.0, np.random.default_rng(asked.seed))
        sent = [drawn[number % len(drawn)] for number in range(len(due_s))]
        endings = await bench.play([call_of(model, text, asked.hint) for text in sent], due_s.tolist())
        batches = [padded(batch, sent, asked.hint, _hint(model)) for batch in bench.watch.batches]
    return find(rate, model, profile, endings, batches)


def served(asked: argparse.Namespace) -> ServedModel:
    """Return minilm with one variant, and with other buckets if they are asked for."""
    spec = load_model(ROOT / "models" / "minilm")
    if asked.buckets:
        spec = replace(spec, size_hint=SizeHint("TEXT", tuple(sorted(asked.buckets))))
    variant = asked.variant or spec.default_variant
    batching = BatchingSpec(asked.policy)
    return ServedModel(spec, int(asked.slo_ms * 1000), (variant,), ("measured",), batching, variant)


def call_of(model: ServedModel, text: Text, hint: str) -> Call:
    """Return a request of one text, as an edge would make it that has this hint."""
    call = Call(model, [Tensor("TEXT", "BYTES", (1, 1), text.element)], 1)
    call.size = text.size(hint)
    return call


def capacity(model: ServedModel, profile: Profile, sizes: Sequence[int]) -> float:
    """Return requests a second, by the profile, in the largest batches of each bucket that fit the SLO
    twice."""
    latency, hint = Latency(profile), _hint(model)
    counts = Counter(hint.bucket(size) for size in sizes)
    mean_us = 0.0
    for size, count in counts.items():
        rows = min(model.spec.batch_max, max(latency.rows_in(model.slo_us / 2, size), 1))
        mean_us += count / len(sizes) * latency.predict_us(rows, size) / rows
    return 1e6 / mean_us


def padded(batch: Batch, sent: Sequence[Text], unit: str, hint: SizeHint) -> Padded:
    """Return the batch with what is known of its texts; requests are numbered from 1."""
    members = [sent[number - 1] for number in batch.requests]
    lengths = [text.tokens for text in members]
    largest, _ = hint.place(max(text.size(unit) for text in members))
    return Padded(
        batch.bucket, len(members), largest, max(lengths) * len(members), sum(lengths), batch.predicted_us,
        batch.typical_us, batch.compute_us, batch.elapsed_us,
    )  # fmt: skip


def find(
    rate: float, model: ServedModel, profile: Profile, endings: Sequence[Ending], batches: Sequence[Padded]
) -> Finding:
    """Return the figures. The first batches, before any estimate had learnt, count for padding only."""
    if len(batches) <= UNLEARNT:
        raise ValueError(f"{len(batches)} batches teach nothing; raise --seconds")
    groups = {IN_ALL: list(range(len(batches)))}
    for number, batch in enumerate(batches):
        groups.setdefault(str(batch.bucket), []).append(number)
    groups = dict(sorted(groups.items(), key=lambda item: int(item[0]) if item[0] != IN_ALL else 1 << 30))
    by_tokens = fit_tokens(batches)
    said = {one.name: replay(one, batches) for one in estimates(profile, by_tokens)}
    used = said["largest size hint"].copy()
    used[:, :2] = [(batch.predicted_us, batch.typical_us) for batch in batches]
    said = {"as planned": used} | said
    errors: dict[str, dict[str, Error]] = {name: {} for name in said}
    for group, members in groups.items():
        learnt = [number for number in members if number >= UNLEARNT]
        for name, values in said.items() if learnt else ():
            errors[name][group] = judge([batches[number] for number in learnt], values[learnt], by_tokens)
    outcomes = Counter(_ending(one, model.slo_us) for one in endings)
    return Finding(
        rate, dict(outcomes), outcomes["in time"] / len(endings),
        {group: len(members) and sum(batches[number].rows for number in members) / len(members)
         for group, members in groups.items()},
        {group: _waste([batches[number] for number in members]) for group, members in groups.items()},
        errors, batches,
    )  # fmt: skip


def _waste(batches: Sequence[Padded]) -> float:
    return sum(batch.padded for batch in batches) / sum(batch.tokens for batch in batches)


def _ending(ending: Ending, slo_us: int) -> str:
    if ending.outcome is None:
        return "lost"
    if ending.outcome is COMPLETED:
        return "in time" if ending.in_time(slo_us) else "late"
    return str(ending.outcome.reason)


def _hint(model: ServedModel) -> SizeHint:
    if model.spec.size_hint is None:
        raise ValueError(f"{model.name} has no size_hint")
    return model.spec.size_hint


def show(finding: Finding, console: Console) -> None:
    """Print both tables."""
    ended = ", ".join(f"{count} {name}" for name, count in sorted(finding.endings.items()))
    console.print(
        f"{finding.rate:.1f} requests/s, {finding.attainment:.2%} in time: {ended}", highlight=False
    )
    planned = finding.errors["as planned"]
    table = Table(title="batches by bucket; observed over foretold")
    for column in ("bucket", "batches", "rows", "padded/true", "p50", "p95", "p99", "late", "reserved",
                   "typical p50", "p95", "p99", "spread", "noise"):  # fmt: skip
        table.add_column(column, justify="right")
    for group, one in planned.items():
        table.add_row(
            group, str(one.batches), f"{finding.rows[group]:.2f}", f"{finding.waste[group]:.2f}",
            *_figures(one), *_typical(one), f"{one.spread:.2f}", f"{one.noise:.2f}",
        )  # fmt: skip
    console.print(table)
    others = Table(title="the same batches, other estimates")
    for column in ("estimate", "bucket", "p50", "p95", "p99", "late", "reserved", "typical p50", "p95", "p99",
                   "spread"):  # fmt: skip
        others.add_column(column, justify="left" if column == "estimate" else "right")
    for name, errors in finding.errors.items():
        others.add_section()
        for number, (group, one) in enumerate(errors.items()):
            others.add_row("" if number else name, group, *_figures(one), *_typical(one), f"{one.spread:.2f}")
    console.print(others)


def _figures(error: Error) -> list[str]:
    planned = [f"{value:.2f}" for value in error.planned.values()]
    return [*planned, f"{error.late:.1%}", f"{error.reserved:.2f}"]


def _typical(error: Error) -> list[str]:
    return [f"{value:.2f}" for value in error.typical.values()]


@contextlib.contextmanager
def _profiles(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="penstock-profiles-") as folder:
        yield Path(folder)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--share", type=float, default=0.6, help="of the capacity, by the profile")
    add("--rate", type=float, default=0.0, help="requests a second, instead")
    add("--seconds", type=float, default=60)
    add("--seed", type=int, default=0)
    add("--slo-ms", type=float, default=300)
    add("--variant", default="", help="of minilm; its default otherwise")
    add("--policy", default="slo")
    add("--buckets", type=int, nargs="+", help="bytes, instead of the model's own")
    add("--hint", choices=texts.HINTS, default="text", help="the unit of size_hint")
    add("--worker-core", type=int, default=0)
    add("--core", type=int, default=1, help="of the gateway, which runs in this process")
    add("--profiles", type=Path, metavar="DIR", help="keep profiles there; measured anew otherwise")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
