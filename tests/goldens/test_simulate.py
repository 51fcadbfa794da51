"""What `penstock simulate` prints of fixed figures: a change of the scheduler does not change them."""

from dataclasses import replace
from io import StringIO
from math import nan
from pathlib import Path

from rich.console import Console

from router.verbs.simulate.cases import Case
from router.verbs.simulate.runs import Conditions, Result
from router.verbs.simulate.tables import render
from serving.profile.derived.latency import Latency
from serving.simulation.capacity import SiteCapacity
from serving.simulation.devices.device import Physics
from serving.simulation.devices.faults import Hazards
from serving.simulation.devices.held import Replicas
from serving.simulation.devices.losses import Loss, LossFigures
from serving.simulation.devices.site import Site, SiteReplica
from serving.simulation.results.choices import VariantShares
from serving.simulation.results.series import IN_TIME, RunFigures
from serving.values.disturbance import Disturbance
from serving.values.objectives import Needs
from tests.builders import graded, model_spec, profile, served
from tests.goldens.conftest import Golden

MODELS = (graded({"cnn": 0.99, "linear": 0.93}, Needs(accuracy_min=0.9)), served(model_spec("minilm")))
QUIET = Conditions(Physics(), Hazards(), (1,))


def figures(p99_ms: float, busy: float, **endings: int) -> RunFigures:
    """Of 10 s; `endings` by reason, `good` for those in time."""
    counts = {IN_TIME if reason == "good" else reason: count for reason, count in endings.items()}
    offered = sum(counts.values())
    batches = offered // 4
    return RunFigures(
        offered, counts, 10.0, p99_ms / 2, p99_ms, batches, 4.0 if batches else nan, busy, 10 * busy,
        (counts.get(IN_TIME, 0) / offered if offered else nan,),
    )  # fmt: skip


def result(name: str, all_together: RunFigures, *models: RunFigures) -> Result:
    """Of a policy."""
    residents = tuple(
        SiteReplica("cpu-a", model.name, variant, Latency(profile(model.name, variant, row_us=1000)))
        for model in MODELS
        for variant in model.variants
    )
    shares = VariantShares(0.9764, {"cnn": 0.455, "linear": 0.545}, {"load": 0.5, "backlog": 0.045})
    alone = VariantShares(nan, {"a": 1.0}, {})
    of = dict(zip((each.name for each in MODELS), models, strict=True))
    return Result(
        Case(name, Path("penstock.yaml"), name, Site(MODELS, residents)), all_together, of, {},
        {"cpu-a": 0.98}, dict(zip(of, (shares, alone), strict=True)), {}, 0, 0, {}, {}, {}, (),
    )  # fmt: skip


GOOD = result(
    "slo",
    figures(24.7, 0.5, good=1000, overload=40, late=2),
    figures(24.7, 0.4, good=800, overload=40, late=2),
    figures(190, 0.1, good=200),
)
BAD = result(
    "static",
    figures(2040, 0.999, good=100, late=900, worker_lost=4),
    figures(2039, 0.99, late=800),
    figures(2060, 0.009, good=100, late=100, worker_lost=4),
)
IDLE = result("slo", figures(nan, 0.0, good=1), figures(12.0, 0.0, good=1), figures(nan, 0.0))
FAILED, TAKEN = Loss("cpu-a", 2.0, None, 3.0), Loss("cpu-b", 6.0, 1.0)
LOSSES = (
    LossFigures(FAILED, 1, ("cpu-a", "cpu-c"), ("m", "minilm"), 4.1, 7.25, 5.25, 400, 100),
    LossFigures(FAILED, 2, ("cpu-a", "cpu-c"), ("m",), 4.4, None, 8.0, 600, 200),
    LossFigures(TAKEN, 1, ("cpu-b",), (), 6.0, None, 1.0, 0, 0),
    LossFigures(TAKEN, 2, ("cpu-b",), (), 6.0, None, 1.0, 0, 0),
)
MISHAPS = Conditions(
    Physics(noise=0.05, drift=0.1, interference=0.2, outlier_share=0.01),
    Hazards(60.0, 30.0, 500_000),
    (1, 2),
    1.0,
    (Disturbance(1.0, 2.0, 0.5), Disturbance(4.0, 1.0, 0.3, (1.0, 50.0))),
    (FAILED, TAKEN),
)
BROKEN = replace(
    GOOD,
    crashes=1,
    stalls=3,
    cost_per_hour={"m": 0.75, "minilm": 0.25},
    replicas={"m": Replicas(1, 3, 1.72, 4), "minilm": Replicas(1, 1, 1.0, 0)},
    losses=LOSSES,
    capacity=SiteCapacity(240.0, 231.0, 252.0),
    case=replace(GOOD.case, left_out=("cache: no answer is kept",)),
)


def printed(conditions: Conditions, *results: Result) -> str:
    """As a terminal of 170 columns has it."""
    text = StringIO()
    Console(width=170, file=text).print(render(results, conditions, 0.99))
    return text.getvalue()


def test_simulate(golden: Golden) -> None:
    golden(
        "simulate",
        {
            "two policies": printed(QUIET, GOOD, BAD),
            "hardly a request": printed(QUIET, IDLE),
            "mishaps, prices, replicas and capacity": printed(MISHAPS, BROKEN),
        },
    )
