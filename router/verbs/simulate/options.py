"""The options of `penstock simulate`: light to import, as the command line reads them for every verb."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from router.verbs.report.options import OUTPUT, AsJson, HtmlFile, SvgFile
from serving.simulation.assumed import NOISE, OVERHEAD_US

_TRAFFIC, _SITE, _WRONG = "What is asked", "What answers", "What goes wrong"


@dataclass(frozen=True)
class SimulateOptions:
    """One field an option; the texts are what --help says."""

    configs: Annotated[
        list[Path], typer.Argument(metavar="CONFIG", help="Settings files; several are compared.")
    ] = field(default_factory=lambda: [Path("penstock.yaml")])
    rate: Annotated[
        list[str],
        typer.Option(
            help="Requests a second, by model: digits=50. Steps of rate:seconds: 50:10+400:5. "
            "Patterns: mmpp(50,400,dwell=2), diurnal(50,peak=90,period=60), "
            "flash(50,peak=10,at=5). From a file: minutes@FILE, times@FILE. TENANT/MODEL=... for "
            "a tenant, all=... for all models together.",
            metavar="MODEL=RATE,...",
            rich_help_panel=_TRAFFIC,
        ),
    ] = field(default_factory=list)
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Play a recording of a gateway (or a folder of them) instead.",
            rich_help_panel=_TRAFFIC,
        ),
    ] = None
    seconds: Annotated[
        float,
        typer.Option(metavar="S", help="Seconds to simulate.", min=0.1, max=86400, rich_help_panel=_TRAFFIC),
    ] = 30.0
    cv: Annotated[
        float,
        typer.Option(
            metavar="CV",
            help="Burstiness: coefficient of variation of the gaps; 0 a metronome, 1 independent clients, "
            "4 heavy bursts.",
            min=0,
            max=20,
            rich_help_panel=_TRAFFIC,
        ),
    ] = 1.0
    rows: Annotated[
        str,
        typer.Option(
            metavar="MODEL=ROWS,...",
            help="Rows of a request: 4, uniform(1,8), tail(64), or shares 1:0.9+16:0.1.",
            rich_help_panel=_TRAFFIC,
        ),
    ] = ""
    sizes: Annotated[
        str,
        typer.Option(
            metavar="MODEL=SIZES,...",
            help="Sizes of inputs, where cost depends on them: 128:0.8+512:0.2. The largest if not given.",
            rich_help_panel=_TRAFFIC,
        ),
    ] = ""
    zipf: Annotated[
        float,
        typer.Option(
            metavar="EXPONENT",
            help="How unlike the models' shares of all=RATE are: 0 equal, 1 as in Zipf's law.",
            min=0,
            max=10,
            rich_help_panel=_TRAFFIC,
        ),
    ] = 0.0
    tier: Annotated[
        str,
        typer.Option(
            metavar="TIER=SHARE,...",
            help="Shares of the requests that ask for a tier: gold=0.2,bronze=0.5. The others ask for none.",
            rich_help_panel=_TRAFFIC,
        ),
    ] = ""
    policy: Annotated[
        list[str],
        typer.Option(
            metavar="NAME,...",
            help="Batching policies to compare, instead of the settings' policy: slo,static or NAME:MODE.",
            rich_help_panel=_SITE,
        ),
    ] = field(default_factory=list)
    slices: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Simulate N equal slices with all models on each.",
            min=1,
            max=1024,
            rich_help_panel=_SITE,
        ),
    ] = None
    devices: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Simulate the settings' slices N times.", min=1, max=256, rich_help_panel=_SITE
        ),
    ] = None
    ignore: Annotated[
        str,
        typer.Option(
            metavar="KEY,...",
            help="Leave out replicas or memory_mb of the settings: each model is loaded on all its slices.",
            rich_help_panel=_SITE,
        ),
    ] = ""
    overhead_us: Annotated[
        int,
        typer.Option(
            metavar="US",
            help="Time from the scheduler to the worker and back, without the compute.",
            min=0,
            max=10_000_000,
            rich_help_panel=_SITE,
        ),
    ] = OVERHEAD_US
    noise: Annotated[
        float,
        typer.Option(
            metavar="CV",
            help="Coefficient of variation of a batch's latency.",
            min=0,
            max=5,
            rich_help_panel=_WRONG,
        ),
    ] = NOISE
    drift: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Latencies rise and fall by this share within a minute, as with clocks and heat.",
            min=0,
            max=0.99,
            rich_help_panel=_WRONG,
        ),
    ] = 0.0
    interference: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Each other slice that computes makes a batch longer by this share.",
            min=0,
            max=10,
            rich_help_panel=_WRONG,
        ),
    ] = 0.0
    outliers: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="This share of the batches takes 10 times as long.",
            min=0,
            max=1,
            rich_help_panel=_WRONG,
        ),
    ] = 0.0
    crash_every: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Each slice's worker dies every S seconds on average, and loads its models again.",
            min=0.001,
            rich_help_panel=_WRONG,
        ),
    ] = None
    stall_every: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Each slice's worker stops for --stall every S seconds on average.",
            min=0.001,
            rich_help_panel=_WRONG,
        ),
    ] = None
    stall: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Seconds that a stall lasts; 0.5 if not given.",
            min=0.001,
            max=3600,
            rich_help_panel=_WRONG,
        ),
    ] = None
    disturb: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="What other programs do to all slices. Batches take 3 times as long: slow(3,at=5,for=3). "
            "Slices stop now and then: stops(0.3,at=5,for=3,ms=1..50). Busy programs share each core: "
            "neighbours(1,at=5,for=3). Join several with +.",
            rich_help_panel=_WRONG,
        ),
    ] = ""
    lose: Annotated[
        str,
        typer.Option(
            metavar="SLICE@S[+S],...",
            help="The device of a slice fails, with all its slices, and nothing tells the gateway. "
            "From 10 s on for 20 s: gpu-1@10+20. For good: gpu-1@10. A node: node:box1@10+20.",
            rich_help_panel=_WRONG,
        ),
    ] = ""
    spot: Annotated[
        str,
        typer.Option(
            metavar="SLICE@S:NOTICE_S,...",
            help="The owner of a spot slice takes it away. Notice comes at 10 s, and the slice is gone 30 s "
            "later: spot-1@10:30.",
            rich_help_panel=_WRONG,
        ),
    ] = ""
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of the first run.", min=0, rich_help_panel=_SITE)
    ] = 1
    seeds: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Number of runs, each with its own seed.",
            min=1,
            max=1000,
            rich_help_panel=_SITE,
        ),
    ] = 3
    price: Annotated[
        float | None,
        typer.Option(
            metavar="PRICE",
            help="Price of a slice for an hour; adds the cost of an hour and of a million answers in time.",
            min=0,
            rich_help_panel=OUTPUT,
        ),
    ] = None
    capacity: Annotated[
        bool,
        typer.Option(
            "--capacity",
            help="Find the highest rate, all models scaled together, at which each keeps --attainment.",
            rich_help_panel=OUTPUT,
        ),
    ] = False
    attainment: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of requests to answer in time, for --capacity.",
            min=0.01,
            max=0.99999,
            rich_help_panel=OUTPUT,
        ),
    ] = 0.99
    require: Annotated[
        list[str],
        typer.Option(
            metavar="WHAT,...",
            help="Exit with 1 where this does not hold: attainment>=0.99, or digits.p99_ms<=25 for one"
            " model. Figures: attainment, goodput, p50_ms, p99_ms, busy, accuracy, capacity.",
            rich_help_panel=OUTPUT,
        ),
    ] = field(default_factory=list)
    as_json: AsJson = False
    svg: SvgFile = None
    html: HtmlFile = None
