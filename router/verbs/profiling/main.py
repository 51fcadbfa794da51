"""`penstock profile`: measures a model on shares of a device, or shows what was measured of it."""

import asyncio
import shlex
import sys
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from router.verbs.profiling.asked import MeasureRequestError, Target, find_model, find_numbers, find_variants
from router.verbs.profiling.colocating import colocate, find_guests, summary
from router.verbs.profiling.devices import MeasuredDevice, device
from router.verbs.profiling.importing.main import import_profiles
from router.verbs.profiling.measuring import Manner, Measurer, NoisyError, Work
from router.verbs.profiling.options import ProfileOptions
from router.verbs.profiling.predicting import predict_rest
from router.verbs.profiling.show import ShowOptions, show
from router.verbs.report.output import console, unwritable
from serving.profile.files.store import ProfileStore
from serving.runtime.slicing.contract import SlicingError
from serving.runtime.workers.bench import BenchError
from serving.values.slice_specs import PROCESS_COUNT_MAX
from serving.values.specs import ModelSpec

FAILED, UNUSABLE, INTERRUPTED = 1, 2, 130
ROWS_MAX = 1 << 16


def profile(options: ProfileOptions) -> int:
    """Run `penstock profile`; return the exit code."""
    try:
        return _profile(options)
    except (MeasureRequestError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return UNUSABLE
    except BenchError as error:
        sys.stderr.write(f"{error}\nwhat was measured before is kept; the same command goes on from there\n")
        return FAILED
    except (NoisyError, SlicingError) as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what was measured is kept, and the same command goes on from there\n")
        return INTERRUPTED


def _profile(options: ProfileOptions) -> int:
    for path in (options.svg, options.html):
        if path is not None and (problem := unwritable(path)):
            raise MeasureRequestError(problem)
    store = ProfileStore(options.profiles)
    if options.imports is not None:
        return import_profiles(options, options.imports, store)
    if options.colocate:
        return _colocate(options, store)
    model = _promised(find_model(options.model), options)
    variants = find_variants(model, options.variant)
    if options.show:
        kind = None if options.device == "cpu" else device(options.device).kind
        return _show(options, model, store, kind)
    place = device(options.device)
    asyncio.run(_measure(_targets(options, model, variants, place), place, store, options))
    return _show(options, model, store, place.kind)


def _show(options: ProfileOptions, model: ModelSpec, store: ProfileStore, kind: str | None) -> int:
    slo_us = int(options.slo * 1000) if options.slo else model.slo_us
    variant = options.variant if options.variant and "," not in options.variant else None
    return show(model, store, ShowOptions(variant, kind, slo_us, options.svg, options.html), console())


def _promised(model: ModelSpec, options: ProfileOptions) -> ModelSpec:
    """Return the model with the SLO that is asked for if model.yaml states none: it bounds what is useful to
    measure."""
    if model.slo_us:
        return model
    if not options.slo:
        raise MeasureRequestError(
            f"the model.yaml of {model.name} states no slo_ms; expected --slo, milliseconds"
        )
    return replace(model, slo_us=int(options.slo * 1000))


def _targets(
    options: ProfileOptions, model: ModelSpec, variants: list[str], place: MeasuredDevice
) -> list[Target]:
    """Return the targets by share first: what is placed on small shares is known soonest."""
    texts = [text.strip() for text in options.shares.split(",") if text.strip()]
    shares = tuple(dict.fromkeys(place.share(text) for text in texts)) or place.default_shares
    counts = find_numbers("--processes", options.processes, PROCESS_COUNT_MAX)
    if counts != (1,) and (other := next((each for each in shares if each.kind != "mig"), None)):
        raise MeasureRequestError(
            f"--processes: got {options.processes} with {other}; several processes share a MIG instance, "
            "such as --shares mig:2g.35gb"
        )
    several = dict.fromkeys(share.with_processes(count) for share in shares for count in counts)
    return [Target(model, variant, share) for share in several for variant in variants]


def _manner(options: ProfileOptions) -> Manner:
    rows = find_numbers("--batches", options.batches, ROWS_MAX)
    longest_us = options.longest_ms * 1000 if options.longest_ms else None
    return Manner(
        rows, options.full, options.point_seconds * 1e6, longest_us, options.again, options.allow_noise,
        shlex.join(["penstock", *sys.argv[1:]]),
    )  # fmt: skip


def _colocate(options: ProfileOptions, store: ProfileStore) -> int:
    if options.model:
        raise MeasureRequestError("--colocate names its models itself; leave out MODEL, or --colocate")
    guests = find_guests(options.colocate, find_numbers("--batches", options.batches, ROWS_MAX))
    place = device(options.device)
    share = place.share(options.shares) if options.shares else place.default_shares[0]
    console = Console(stderr=True)
    measurer = Measurer(place, store, _manner(options), console.print)
    runs = asyncio.run(colocate(guests, place, share, measurer, console.print))
    sys.stdout.write("\n".join([*summary(runs), f"kept in {store.write_co_runs(place.kind, runs)}", ""]))
    return 0


async def _measure(
    targets: list[Target], place: MeasuredDevice, store: ProfileStore, options: ProfileOptions
) -> None:
    console = Console(stderr=True)
    measurer = Measurer(place, store, _manner(options), console.print)
    if options.few is not None:
        for variant in dict.fromkeys(target.variant for target in targets):
            here = [target for target in targets if target.variant == variant and target.share.processes == 1]
            await predict_rest(measurer, store, here, options.few, console.print)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=float(len(targets)))
        for number, target in enumerate(targets):
            if measurer.known(target) is not None:
                console.print(f"{target}: measured already; --again measures it anew")
                progress.update(task, completed=number + 1)
                continue

            def advance(work: Work, number: int = number) -> None:
                left_s = work.exploration.remaining_us / 1e6
                done = work.spent / (work.spent + left_s)
                progress.update(task, description=str(work.target), completed=number + done)

            progress.update(task, description=str(target))
            found = await measurer.measure(target, advance)
            console.print(
                f"{target}: {len(found.points)} batches, {sum(point.count for point in found.points)} runs "
                f"in {found.origin.seconds:.0f} s"
            )
