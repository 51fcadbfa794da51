"""Plays load to a gateway that has a model in one of three ways: up and down stairs, or by two classes."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loadtests.harness.dispatch import Load, Server, measure
from loadtests.harness.gateway import model_entry, started
from loadtests.harness.processes import pin, undisturbed
from loadtests.harness.record import Record
from loadtests.harness.report import OK, Promise, outcome_name, summarise
from loadtests.harness.wire import Answer, parse_head
from loadtests.selection.variants_scores import (
    Figures,
    Known,
    Stair,
    Told,
    below,
    by_stair,
    figures,
    pattern,
    untrue,
    whole,
)
from loadtests.selection.variants_subjects import (
    Subject,
    accuracies,
    await_variants,
    capacity,
    keeping,
    read_outputs,
)
from loadtests.stand.stage import Place, Stage
from loadtests.stand.testbed import CONNECTIONS, CONNECTIONS_MAX, Watch, may_go_first
from serving.simulation.traffic.patterns import POISSON_CV, due_times

LADDER, TOP, BOTTOM = CONFIGURATIONS = ("ladder", "fixed top", "fixed bottom")
WARM_UP = Stair(0.3, 1.0)
ANY, STRICT = 1.2, 0.3  # loads of the two classes


@dataclass(frozen=True, slots=True)
class Turn:
    """A configuration, or a class of requests: its figures, what it broke, why not to believe it."""

    name: str
    steps: Sequence[Figures]
    whole: Figures
    broken: Sequence[str]
    voids: Sequence[str]


def entry(configuration: str, subject: Subject) -> dict[str, object]:
    """Return the model's entry in `models:`; every variant is there in each configuration."""
    terms = subject.terms
    allowed = keeping(subject, terms.floor)
    needs: dict[str, object] = {"accuracy_min": terms.floor, "optimize": "most_accurate"}
    if configuration != LADDER:
        needs = {"default_variant": allowed[0] if configuration == TOP else allowed[-1]}
    names = [variant.name for variant in subject.spec.variants]
    return model_entry(terms.model, slo_ms=terms.slo_ms, variants=names, **needs)


@contextlib.contextmanager
def staged(configuration: str, subject: Subject, place: Place) -> Iterator[Stage]:
    """Yield a gateway of this configuration. Raises RuntimeError if it does not start.

    Profiles go on being refined whenever the slice idles, as in service: five variants take minutes.
    """
    with started([entry(configuration, subject)], [place.worker_core], place.profiles) as gateway:
        pin(gateway.pid, [place.core])
        await_variants(subject, gateway)
        yield Stage(gateway, place)


def known_of(subject: Subject, stage: Stage) -> Known:
    """Return what builds and profiles say of the variants; RuntimeError where a variant has no profile."""
    accuracy = accuracies(subject)
    model = subject.terms.model
    rates = {name: capacity(subject, stage.latency(model, name)) for name in accuracy}
    return Known(accuracy, rates, keeping(subject, subject.terms.floor))


def play_staircase(
    configuration: str, stage: Stage, subject: Subject, known: Known, stairs: Sequence[Stair], seed: int
) -> Turn:
    """Return the configuration that this gateway has, up and down the stairs, after a moment of light
    load."""
    terms = subject.terms
    full = known.full / terms.rows
    play(stage, subject, [(subject.requests(), pattern([WARM_UP], full))], seed)
    (told,), voids = play(stage, subject, [(subject.requests(), pattern(stairs, full))], seed)
    steps = by_stair(told, stairs, terms.rows, known)
    broken = untrue(told, terms.rows, known)
    if configuration == LADDER:
        broken += below(told, terms.floor, known.allowed)
    else:
        answering = known.allowed[0 if configuration == TOP else -1]
        broken += below(told, known.accuracy[answering], [answering])
    return Turn(configuration, steps, whole(told, steps, terms.rows, known), broken, voids)


def play_classes(stage: Stage, subject: Subject, known: Known, seconds: float, seed: int) -> list[Turn]:
    """Play two classes of requests at once; each request of the second class states a higher floor."""
    terms = subject.terms
    full = known.full / terms.rows
    stairs = Stair(ANY, seconds), Stair(STRICT, seconds)
    asks = [
        (subject.requests(floor), pattern([stair], full))
        for floor, stair in zip((None, terms.strict), stairs, strict=True)
    ]
    every, voids = play(stage, subject, asks, seed)
    turns = []
    for told, stair, floor in zip(every, stairs, (terms.floor, terms.strict), strict=True):
        broken = untrue(told, terms.rows, known) + below(told, floor, keeping(subject, floor))
        found = figures(told, stair, 0.0, terms.rows, known)
        turns.append(Turn(f"floor {floor:g}", [found], found, broken, voids))
    return turns


def play(
    stage: Stage, subject: Subject, asks: Sequence[tuple[Sequence[bytes], str]], seed: int
) -> tuple[list[list[Told]], list[str]]:
    """Return how the requests of each pattern ended, in one open-loop run, and why not to believe it."""
    gateway, place, terms = stage.gateway, stage.place, subject.terms
    loads = [
        Load(due_times(rates, 0.0, POISSON_CV, np.random.default_rng([seed, number])), requests)
        for number, (requests, rates) in enumerate(asks)
    ]
    server = Server(gateway.host, gateway.rest_port, CONNECTIONS, CONNECTIONS_MAX)
    kept: dict[int, bytes] = {}
    watch = Watch({place.worker_core: gateway.workers(), place.core: [gateway.pid, os.getpid()]})
    with undisturbed(place.core, may_go_first()):
        record, client = measure(loads, server, kept)
    voids = watch.intruders()
    promises = [Promise(terms.model, terms.slo_ms, terms.rows)] * len(loads)
    report = summarise(record, promises, max(float(load.due_s[-1]) for load in loads), client)
    return read_told(record, kept, subject, len(loads)), [*report.voids, *voids]


def read_told(record: Record, kept: Mapping[int, bytes], subject: Subject, loads: int) -> list[list[Told]]:
    """Return the answers by load, in the order in which requests were due; `kept`: whole answers by
    arrival."""
    told: list[list[Told]] = [[] for _ in range(loads)]
    turns = Counter[int]()
    for number, load in enumerate(record.loads):
        turn, turns[load] = turns[load], turns[load] + 1
        due_s = (record.due_ns[number] - record.start_ns) / 1e9
        latency_ms = (record.done_ns[number] - record.due_ns[number]) / 1e6
        good = latency_ms <= subject.terms.slo_ms
        ending = outcome_name(record.statuses[number], record.reasons[number], good)
        if record.statuses[number] != OK:
            told[load].append(Told(due_s, latency_ms, ending))
            continue
        answer = read_answer(kept[number])
        variant = answer.headers.get("x-penstock-variant", "")
        named = float(answer.headers.get("x-penstock-accuracy", "nan"))
        why = answer.headers.get("x-penstock-downgrade", "")
        right = subject.right(turn, variant, read_outputs(answer))
        told[load].append(Told(due_s, latency_ms, ending, variant, named, why, right))
    return told


def read_answer(raw: bytes) -> Answer:
    """Return a whole answer as it came."""
    head, _, body = raw.partition(b"\r\n\r\n")
    return Answer(*parse_head(head), body)
