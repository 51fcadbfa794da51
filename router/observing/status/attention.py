"""What an operator should look at first, as sentences: broken promises, what is away, what waits for a
person."""

from collections.abc import Iterator, Mapping
from typing import Final, TypedDict

from router.observing.reasons import ending
from router.observing.rollout_status import rollout_sentence
from router.observing.status.document import ModelStatus, SliceStatus, Status

WINDOW: Final = "5m"
"""The window of the burn rate that is looked at: the shortest that is kept."""
BAD, DOUBTFUL, KNOWN = "bad", "doubtful", "known"
"""The ranks, the worst first: clients notice it; they will; a person may want to know."""
RANKS: Final = (BAD, DOUBTFUL, KNOWN)
NORMAL: Final = ("ready", "standing by")
"""States of slices and replicas that need no look."""
HOT_PERCENT: Final = 95
SHIFTED: Final = 0.2
"""From this distance on, requests have shifted. 500 requests in six buckets differ by 0.04 by chance."""
SHOWN_MAX: Final = 50


class Notice(TypedDict):
    """A sentence. `rank`: one of RANKS. `model`, `slice`: what it is about, "" if it is not of one."""

    rank: str
    text: str
    model: str
    slice: str


def attention(status: Status, before: Mapping[str, Mapping[str, int]] | None = None) -> list[Notice]:
    """Return the sentences, the worst first. `before`: the `missed` counters of models at an earlier reading;
    without them, all since the start count."""
    found = [*_gateway(status)]
    for model in status["models"]:
        found += _model(model, (before or {}).get(model["name"], {}))
    for one in status["slices"]:
        found += _slice(one)
    found += [_notice(KNOWN, text, name) for name, text in shift_sentences(status)]
    found += _machines(status)
    found.sort(key=lambda each: RANKS.index(each["rank"]))
    return found[:SHOWN_MAX]


def _gateway(status: Status) -> Iterator[Notice]:
    if not status["ready"]:
        yield _notice(BAD, "the gateway is not ready: a model has no replica, or it is shutting down")
    for edge in status.get("edges", ()):
        if not edge["listening"]:
            yield _notice(BAD, f"the {edge['name']} port is closed")
    move = status.get("move")
    if move is not None:
        for why in move["refused"]:
            yield _notice(DOUBTFUL, f"an edit is not in force: {why}")
        if move["state"] != "steady":
            yield _notice(KNOWN, f"{move['state']}: step {move['step']} of {move['steps']}")
    proposal = status.get("proposal")
    if proposal is not None and proposal["state"] == "proposed":
        yield _notice(KNOWN, f"there is another plan: {proposal['sentence']}")
    for each in status.get("rollouts", ()):
        rank = DOUBTFUL if each["state"] == "rolled back" else KNOWN
        if each["state"] != "aborted":
            yield {**_notice(rank, rollout_sentence(each)), "model": each["candidate"]}
    if (tls := status.get("tls")) is not None and tls["fault"]:
        yield _notice(DOUBTFUL, f"the renewed certificate is not in force: {tls['fault']}")


def _model(model: ModelStatus, before: Mapping[str, int]) -> Iterator[Notice]:
    name = model["name"]
    reasons = {each.get("reason", ""): None for each in model["replicas"] if each.get("reason")}
    if not model["ready"]:
        why = f": {'; '.join(reasons)}" if reasons else ""
        yield _notice(BAD, f"{name} has no replica that is ready{why}", name)
    elif reasons:
        yield _notice(DOUBTFUL, f"{name}: {'; '.join(reasons)}", name)
    yield from promise_notices(model, before)
    scaling = model.get("scaling")
    if scaling is not None and scaling["held"]:
        wished = f"{scaling['desired']} replicas are wished, {scaling['wanted']} can be had"
        yield _notice(DOUBTFUL, f"{name}: {wished}: {scaling['held']}", name)
    stale = [each for each in model["replicas"] if each["profile"] != "fresh"]
    if stale:
        worst = max(stale, key=lambda each: max(each["profile_ratio"], 1 / each["profile_ratio"]))
        took = f"batches take {worst['profile_ratio']:.2f} times their profile on {worst['slice']}"
        yield _notice(KNOWN, f"{name} {worst['variant']}: {took} ({worst['profile']})", name, worst["slice"])


def promise_notices(model: ModelStatus, before: Mapping[str, int]) -> Iterator[Notice]:
    """Yield that the promise burns, with the ending that most of its missed requests had. `before`: the
    `missed` counters at an earlier reading."""
    burn, objective = model["counters"]["burn"].get(WINDOW, 0.0), model.get("objective", 0.0)
    if burn <= 1 or not objective:
        return
    kept = 1 - burn * (1 - objective)
    missed = {why: count - before.get(why, 0) for why, count in model["counters"]["missed"].items()}
    most = max(missed, key=missed.__getitem__, default="")
    why = f"; most of the others were {ending(most)}" if most and missed[most] > 0 else ""
    promised = f"{objective * 100:.4g} % within {model['slo_us'] / 1000:g} ms are promised"
    text = f"{model['name']} answers {max(kept, 0) * 100:.1f} % in time ({WINDOW}), {promised}{why}"
    yield _notice(BAD, text, model["name"])


def shift_sentences(status: Status) -> Iterator[tuple[str, str]]:
    """Yield each model with requests or answers that have shifted, and what of them has."""
    for name, kinds in status.get("shifts", {}).items():
        if far := [f"{kind} ({each:.2f})" for kind, each in kinds.items() if each >= SHIFTED]:
            yield name, f"requests or answers of {name} are others than in the last days: {', '.join(far)}"


def _slice(one: SliceStatus) -> Iterator[Notice]:
    if one["state"] not in NORMAL:
        yield _notice(DOUBTFUL, f"slice {one['name']} is {one['state']}", "", one["name"])
    if "notice" in one:
        yield _notice(DOUBTFUL, f"slice {one['name']}: {one['notice']}", "", one["name"])


def _machines(status: Status) -> Iterator[Notice]:
    for gpu in status.get("gpus", ()):
        if gpu["state"] != "ok":
            rank = BAD if gpu["state"] == "lost" else DOUBTFUL
            yield _notice(rank, f"GPU {gpu['name']} {gpu['uuid']} is {gpu['state']}: {gpu['reason']}")
        used, held = gpu["memory_used_bytes"], gpu["memory_bytes"]
        if used and held and used > HOT_PERCENT / 100 * held:
            full = f"{used / held * 100:.0f} % of its memory is used"
            yield _notice(DOUBTFUL, f"GPU {gpu['name']} {gpu['uuid']}: {full}")
    for node in status.get("nodes", ()):
        if node["state"] == "lost":
            yield _notice(BAD, f"node {node['name']} is lost: {node['reason']}")
    rehearsed = [one["name"] for one in status["slices"] if one.get("rehearsed")]
    if rehearsed:
        yield _notice(KNOWN, f"rehearsal: answers of {len(rehearsed)} slices are made up")


def _notice(rank: str, text: str, model: str = "", slice_name: str = "") -> Notice:
    return {"rank": rank, "text": text, "model": model, "slice": slice_name}
