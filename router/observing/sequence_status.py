"""What status and metrics say of the sequences of models."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:  # a reader of JSON needs none of it
    from serving.runtime.calls.gateway import Gateway

HEADING: Final = " sequences:"


class SequenceStatus(TypedDict):
    """The sequences of a model. `live`: those with one of the `slots` of its replicas; `waiting`: those that
    wait for one. Since the start, `started` have begun; `ended` ended by END or a new START, `idle` for want
    of requests, and `lost` because their state is gone or a request of them did not run."""

    strategy: str
    slots: int
    live: int
    waiting: int
    started: int
    ended: int
    idle: int
    lost: int


def sequence_status(gateway: "Gateway", models: Collection[str]) -> dict[str, SequenceStatus]:
    """Return the sequences of those of the models that have some."""
    found: dict[str, SequenceStatus] = {}
    for name in models:
        now = gateway.sequences(name)
        if now is not None:
            found[name] = {
                "strategy": now.strategy,
                "slots": now.slots,
                "live": now.live,
                "waiting": now.waiting,
                "started": now.started,
                "ended": now.ended,
                "idle": now.idle,
                "lost": now.lost,
            }
    return found


def sequence_lines(models: Mapping[str, SequenceStatus]) -> Iterator[str]:
    """Yield a line of each model with sequences; else none."""
    if models:
        width = max(map(len, models))
        yield HEADING
        yield from (f"   {name:{width}}   {sequence_sentence(each)}" for name, each in models.items())
        yield ""


def sequence_sentence(now: SequenceStatus) -> str:
    """Return how many sequences there are, and how others ended."""
    waiting = f", {now['waiting']} wait for one" if now["waiting"] else ""
    return (
        f"{now['live']} live in {now['slots']} slots ({now['strategy']}){waiting};"
        f" of {now['started']} started {now['ended']} ended, {now['idle']} were idle, {now['lost']} were lost"
    )
