"""What `penstock profile --show` shows: all that is known of a model, by kind of device and variant."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from router.verbs.profiling import tables
from router.verbs.profiling.figures import ShareScaling, scalings
from router.verbs.profiling.page import page
from router.verbs.profiling.pictures import write_svg
from serving.profile.files.store import ProfileStore
from serving.values.specs import ModelSpec

NOTHING = 1
"""Exit code where nothing is measured of what was asked for."""


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """What is to be shown, None: all; the latency that a batch is to be within; the files to write."""

    variant: str | None
    device_kind: str | None
    slo_us: int
    svg: Path | None
    html: Path | None


def show(model: ModelSpec, store: ProfileStore, asked: ShowOptions, console: Console) -> int:
    """Print the tables and write the files; return the exit code. Raises OSError if a file cannot be
    written."""
    found = _found(model, store, asked)
    problems = [each for each in store.problems if f"/{model.name}." in each.partition(":")[0]]
    for kind in dict.fromkeys(each.device_kind for each in found):
        console.print(tables.render(kind, [each for each in found if each.device_kind == kind], asked.slo_us))
    for problem in problems:
        console.print(Text(problem), soft_wrap=True)
    if not found:
        console.print(Text(_nothing(model, store, asked)), soft_wrap=True)
        return NOTHING
    if asked.svg is not None:
        write_svg(model.name, found, asked.slo_us, asked.svg)
    if asked.html is not None:
        asked.html.write_text(page(model.name, found, asked.slo_us, problems), encoding="utf-8")
    return 0


def _found(model: ModelSpec, store: ProfileStore, asked: ShowOptions) -> list[ShareScaling]:
    """Return the scalings by kind of device, in the order of the model's variants; a variant that it no
    longer has comes last."""
    order = {variant.name: place for place, variant in enumerate(model.variants)}
    kinds = store.kinds() if asked.device_kind is None else [asked.device_kind]
    return [
        scaling
        for kind in kinds
        for found in sorted(
            store.sets(kind), key=lambda each: (order.get(each.variant, len(order)), each.variant)
        )
        if found.model == model.name and asked.variant in (None, found.variant)
        for scaling in scalings([found], asked.slo_us)
    ]


def _nothing(model: ModelSpec, store: ProfileStore, asked: ShowOptions) -> str:
    """Return a sentence: that nothing is measured, what is measured, and the command that measures."""
    variant = f" {asked.variant}" if asked.variant else ""
    where = f" on {asked.device_kind}" if asked.device_kind else ""
    pairs = [
        f"{each.variant} on {kind}"
        for kind in store.kinds()
        for each in store.sets(kind)
        if each.model == model.name
    ]
    measured = f" (measured: {', '.join(pairs)})" if pairs else ""
    option = f" --variant {asked.variant}" if asked.variant else ""
    return (
        f"nothing is measured of {model.name}{variant}{where}{measured}; "
        f"`penstock profile {model.name}{option}` measures it"
    )
