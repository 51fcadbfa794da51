"""Recorded arrivals (`serving/recording.py`), as the simulator takes them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from serving.recording import SUFFIX, Recording, read
from serving.simulation.traffic.arrivals import Arrival
from serving.simulation.traffic.traffic import places_of
from serving.values.specs import ServedModel

_CHUNK = 1 << 16  # arrivals that are Python objects at a time
_ANY_ROWS = 1 << 32  # more than a recorded request has: its rows are of 32 bits

_Integers = npt.NDArray[np.int64]
_Columns = tuple[_Integers, ...]
Flow = tuple[int, str, str, str]


@dataclass(frozen=True, slots=True)
class Replay:
    """Arrivals in order, the first at 0, for each walk through it.

    `notes`: what is missing, a sentence each. `flows`: model, tenant, pinned variant and tier. `columns`:
    at_us, flow, rows, slack_us (0: the SLO's), size, whether the client gets an answer when that has passed,
    bucket.
    """

    notes: tuple[str, ...]
    flows: tuple[Flow, ...]
    columns: _Columns

    @property
    def span_us(self) -> int:
        """First to last arrival."""
        return int(self.columns[0][-1])

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[Arrival]:
        flows = self.flows
        for start in range(0, len(self), _CHUNK):
            chunk = [column[start : start + _CHUNK].tolist() for column in self.columns]
            for at_us, flow, rows, slack_us, size, expires, bucket in zip(*chunk, strict=True):
                model, tenant, variant, tier = flows[flow]
                slack = slack_us or None
                yield Arrival(at_us, model, rows, slack, tenant, size, variant, bool(expires), bucket, tier)


def recorded_files(path: Path) -> list[Path]:
    """Return the recording at `path`, or all those in the folder `path`. ValueError where there is none."""
    if not path.is_dir():
        return [path]
    files = sorted(path.glob(f"*{SUFFIX}"))
    if not files:
        raise ValueError(f"{path} holds no recording; expected files that end with {SUFFIX}")
    return files


def replay(
    paths: Iterable[Path], models: Sequence[ServedModel], *, skip_unknown: bool = False, speed: float = 1.0
) -> Replay:
    """Return what recordings (files, in any order) hold for `models`; the arrivals' models are places in it.

    A request is due after the time its client gave, or after the present SLO of its model or its tier there,
    whichever is less. Its size is its hint as decisions see it. A pinned variant that is not served any more
    is passed over, and so is an unknown tier, with a note. `speed` divides the instants, no deadline. Raises
    ValueError for a file that cannot be read, or for models that are not among `models` (unless those are to
    be skipped). It is also raised if there is not one request.
    """
    if not 0 < speed < float("inf"):
        raise ValueError(f"a replay needs a speed above 0, got {speed:g}")
    recordings = [(path, read(path)) for path in paths]
    notes = [f"{path} {recording.cut}" for path, recording in recordings if recording.cut]
    stranger = _strangers([recording for _, recording in recordings], models)
    if stranger and not skip_unknown:
        known = ", ".join(sorted(model.name for model in models))
        raise ValueError(f"the recording has requests for {', '.join(stranger)}; the models here are {known}")
    notes += [f"requests for {name} are skipped: it is not served here" for name in stranger]
    notes += _unknown_tiers([recording for _, recording in recordings], models)
    flows: dict[Flow, int] = {}
    parts = [_columns(recording, models, flows) for _, recording in recordings]
    if not any(len(part[0]) for part in parts):
        raise ValueError(f"the recording has no request for {', '.join(model.name for model in models)}")
    at_us, *others = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(at_us, kind="stable")
    moved = ((at_us[order] - at_us[order[0]]) / speed).astype(np.int64)
    return Replay(tuple(notes), tuple(flows), (moved, *(column[order] for column in others)))


def _unknown_tiers(recordings: Iterable[Recording], models: Iterable[ServedModel]) -> list[str]:
    """Return a sentence on each tier that was asked of one of `models` and that it does not have."""
    known = {model.name: model.by_tier for model in models}
    lost = {
        (flow.tier, flow.model)
        for recording in recordings
        for flow in recording.flows
        if flow.tier and flow.tier not in known.get(flow.model, {flow.tier: None})
    }
    return [
        f"{model} has no tier {tier} here: requests for it are simulated as for none"
        for tier, model in sorted(lost)
    ]


def _strangers(recordings: Iterable[Recording], models: Iterable[ServedModel]) -> list[str]:
    """Return the models of recorded requests that are not among `models`."""
    named = {
        recording.flows[flow].model
        for recording in recordings
        for flow in np.unique(recording.arrivals["flow"]).tolist()
    }
    return sorted(named - {model.name for model in models})


def _columns(recording: Recording, models: Sequence[ServedModel], flows: dict[Flow, int]) -> _Columns:
    """Return the part of a recording that is for `models`, at instants of the wall clock; new flows are
    numbered."""
    places = {model.name: place for place, model in enumerate(models)}
    numbers = np.full(len(recording.flows), -1)
    arrivals = recording.arrivals
    promised_us = np.zeros(len(arrivals), np.int64)
    sizes, buckets = np.zeros((2, len(arrivals)), np.int64)
    for local, flow in enumerate(recording.flows):
        place = places.get(flow.model)
        if place is None:
            continue
        variant = flow.variant if flow.variant in models[place].variants else ""
        tier = flow.tier if flow.tier in models[place].by_tier else ""
        numbers[local] = flows.setdefault((place, flow.tenant, variant, tier), len(flows))
        own, objective = arrivals["flow"] == local, models[place].objective(tier)
        rows = arrivals["rows"][own].astype(np.int64)
        promised_us[own] = objective.slo_us * np.maximum(-(-rows // (objective.slo_rows or _ANY_ROWS)), 1)
        hint = models[place].spec.size_hint
        if hint is not None:
            sizes[own], buckets[own] = places_of(hint, arrivals["size"][own])
    number = numbers[arrivals["flow"]]
    kept = number >= 0
    slack_us = np.minimum(arrivals["timeout_us"], promised_us)
    expires = (slack_us > 0) & (slack_us == arrivals["timeout_us"])
    at_us = arrivals["at_us"] + recording.start_unix_us
    return tuple(
        column[kept].astype(np.int64)
        for column in (at_us, number, arrivals["rows"], slack_us, sizes, expires, buckets)
    )
