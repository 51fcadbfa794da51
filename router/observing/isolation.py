"""What `check`, `status` and `explain` say of models with a worker process of their own, and of deaths."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypedDict

from serving.values.slice_specs import SliceSpec, place_of
from serving.values.specs import ServedModel

if TYPE_CHECKING:  # a reader of JSON needs none of it
    from serving.control.isolating import Isolation

HEADING: Final = " worker processes of models:"


class IsolationStatus(TypedDict):
    """The isolation of a model. `isolate`: as stated; `processes`: the processes that the model has to
    itself, by name; `moved`: the gateway gave it these, for the reason in `why`. `deaths`: of worker
    processes that were busy with the model, in the last 5 minutes; under `auto` it may have fewer than
    `limit`. `died`: since the start."""

    isolate: str
    processes: list[str]
    moved: bool
    why: str
    deaths: int
    limit: int
    died: int


def isolation_status(isolation: "Isolation") -> IsolationStatus:
    """Return the isolation as control has it."""
    return {
        "isolate": isolation.stated,
        "processes": list(isolation.processes),
        "moved": bool(isolation.why),
        "why": isolation.why,
        "deaths": isolation.deaths,
        "limit": isolation.limit,
        "died": isolation.died,
    }


def isolation_lines(models: Mapping[str, IsolationStatus]) -> Iterator[str]:
    """Yield a line of each model with a process of its own, or with deaths; else none."""
    told = {name: each for name, each in models.items() if each["processes"] or each["deaths"]}
    if told:
        width = max(map(len, told))
        yield HEADING
        yield from (f"   {name:{width}}   {isolation_sentence(each)}" for name, each in told.items())
        yield ""


def isolation_sentence(now: IsolationStatus) -> str:
    """Return where the model runs, why, and how many processes died."""
    where, deaths = _where(now), now["deaths"]
    if not deaths:
        return where
    times = f"{deaths} worker {'process' if deaths == 1 else 'processes'} died busy with it in 5 minutes"
    if now["isolate"] == "auto" and not now["moved"]:
        times += f"; from {now['limit']} on it gets a process of its own, where others share with it"
    return f"{where}; {times}"


def _where(now: IsolationStatus) -> str:
    if not now["processes"]:
        never = " (isolate: never)" if now["isolate"] == "never" else ""
        return f"it shares its slices' processes{never}"
    slices = ", ".join(map(place_of, now["processes"]))
    why = now["why"] or "isolate: always"
    return f"it has a process of its own on {slices} ({why})"


def isolate_lines(model: ServedModel, beside: Mapping[str, int]) -> Iterator[str]:
    """Yield what `check` says of the slices on which a model has its own process; nothing under `auto`.
    `beside`: how many models may be on each slice."""
    if model.isolate == "never":
        yield "  isolate: never; whatever it does, it shares its slices' processes"
    if model.isolate != "always":
        return
    own = [name for name in model.slices if beside[name] > 1]
    if own:
        yield f"  isolate: a process of its own on {', '.join(own)}, on the same cores as the slice's"
    else:
        yield "  isolate: always, as it is alone on its slices"


def shared_out(models: "tuple[ServedModel, ...]", slices: "tuple[SliceSpec, ...]") -> dict[str, int]:
    """Return how many models may be on each slice."""
    return {each.name: sum(each.name in model.slices for model in models) for each in slices}
