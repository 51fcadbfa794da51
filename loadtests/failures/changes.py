"""Live changes of a gateway that serves `digits` and `minilm`, each from its order to its end."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtests.harness.gateway import ROOT, model_entry
from loadtests.harness.report import OK
from loadtests.stand.living import ACCEPTED, POLL_S, Living, kill

DIGITS, MINILM = "digits", "minilm"
DONE, GIVEN_UP = "done", "given up"
SLO_MS = {DIGITS: 50.0, MINILM: 400.0}
TIGHTER_MS = 40.0  # that `digits` is promised after its settings were changed
KILL_AFTER_S = 0.7  # after the order: workers are starting or loading then
TRIES = 5  # to do something in the midst of a move
LOADED = "loaded"  # a file that the new code of `digits` writes
BROKEN = "broken on purpose"


@dataclass(frozen=True, slots=True)
class Layout:
    """Slices, as `slices:` of penstock.yaml, and the one that each model is on."""

    slices: Sequence[Mapping[str, Any]]
    on: Mapping[str, str]

    @property
    def shares(self) -> dict[str, tuple[int, int]]:
        """Cores and threads by slice."""
        return {each["name"]: (each["cores"], each.get("threads", 1)) for each in self.slices}


_NARROW = {"name": "a", "cores": 1}, {"name": "b", "cores": 1}
ALONE = Layout(_NARROW, {DIGITS: "a", MINILM: "b"})
SWAPPED = Layout(_NARROW, {DIGITS: "b", MINILM: "a"})
WIDE = Layout([{"name": "wide", "cores": 2, "threads": 2}], {DIGITS: "wide", MINILM: "wide"})


@dataclass(slots=True)
class Move:
    """What became of a change. Instants are seconds of `time.monotonic`; 0 where there is none.

    `faults_s`: when a process was killed; `down_s`: from when to when no gateway took requests in full.
    """

    order_s: float = 0.0
    end_s: float = 0.0
    ended: str = ""
    reasons: tuple[str, ...] = ()
    faults_s: list[float] = field(default_factory=list)
    down_s: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Scenario:
    """`carry_out` orders the change and returns when it has ended, which should be with `ends`; `after`: what
    is to be in force then. `slo_ms`: what is promised of `digits` throughout."""

    name: str
    carry_out: Callable[[Living, Move], None]
    ends: str
    after: Layout
    slo_ms: float = SLO_MS[DIGITS]


def settings(folder: Path, profiles: Path) -> dict[str, Any]:
    """Return the settings before every change. `digits` is a copy in `folder`, so its files may be
    touched."""
    own = folder / DIGITS
    shutil.copytree(ROOT / "models" / DIGITS, own, ignore=shutil.ignore_patterns("__pycache__"))
    return {
        "server": {"host": "127.0.0.1"},
        "slices": list(ALONE.slices),
        "models": [_entry(DIGITS, "a", "cnn") | {"path": str(own)}, _entry(MINILM, "b", "fp32-128")],
        "profiles": str(profiles),
        "cache": False,
    }


def untrue(there: Living, after: Layout) -> list[str]:
    """Return a sentence for each part of the layout that is not in force."""
    told = there.placement()
    shares = {each["name"]: (each["cores"], each["threads"]) for each in told["slices"]}
    found = [] if told["progress"]["state"] == "steady" else [f"it is {told['progress']['state']} still"]
    if shares != after.shares:
        found.append(f"slices are {shares}, wanted are {after.shares}")
    for model, wanted in after.on.items():
        on = told["models"].get(model, {}).get("slices")
        if on != [wanted]:
            found.append(f"{model} is on {on}, wanted on {wanted}")
    if there.workers().keys() != after.shares.keys():
        found.append(f"workers run for slices {sorted(there.workers())}")
    return found


def _entry(model: str, slice_name: str, variant: str, **more: object) -> dict[str, object]:
    stated = {"slo_ms": SLO_MS[model], "slices": [slice_name], "variants": [variant]}
    return model_entry(model, default_variant=variant, **(stated | more))


# the changes


def _place(there: Living, move: Move, layout: Layout) -> str:
    """Order the layout; the move's id."""
    models = {model: {"slices": [name]} for model, name in layout.on.items()}
    move.order_s = time.monotonic()
    return there.place({"slices": layout.slices, "models": models})


def _follow(there: Living, move: Move, order: str) -> None:
    """Wait until the placement ordered has ended, and note how."""
    there.until(lambda: there.outcome(order) is not None, "end the move")
    outcome = there.outcome(order) or {}
    _end(move, DONE if outcome["result"] == "done" else GIVEN_UP, outcome["reasons"])


def _end(move: Move, ended: str, reasons: Sequence[str] = ()) -> None:
    move.end_s, move.ended, move.reasons = time.monotonic(), ended, tuple(reasons)


def _share(there: Living, move: Move) -> None:
    _follow(there, move, _place(there, move, WIDE))


def _migration(there: Living, move: Move) -> None:
    _follow(there, move, _place(there, move, SWAPPED))


def _reload(there: Living, move: Move) -> None:
    code = there.folder / DIGITS / "model.py"
    marked = f'\nPath(__file__).with_name("{LOADED}").touch()\n'
    code.write_text(code.read_text() + marked)
    move.order_s = time.monotonic()
    status, told = there.ask("POST", f"/v2/repository/models/{DIGITS}/load", {})
    _end(move, *((DONE,) if status == OK else (GIVEN_UP, [f"{status}: {told}"])))
    if status == OK and not (code.parent / LOADED).exists():
        raise RuntimeError("the load was answered 200, and the new code was loaded nowhere")


def _config(there: Living, move: Move) -> None:
    digits, minilm = there.settings["models"]
    batching = {"policy": "slo", "mode": "consolidate"}
    move.order_s = time.monotonic()
    reasons = there.edit(models=[digits | {"slo_ms": TIGHTER_MS, "batching": batching}, minilm])
    _end(move, GIVEN_UP if reasons else DONE, reasons)
    _, told = there.ask("GET", f"/v2/models/{DIGITS}")
    if told["parameters"]["slo_ms"] != TIGHTER_MS:
        raise RuntimeError(f"the edit is in force, and {DIGITS} promises {told['parameters']}")


def _failing_model(there: Living, move: Move) -> None:
    folder = there.folder / "broken"
    shutil.copytree(ROOT / "models" / "simple", folder)
    described = (folder / "model.yaml").read_text().replace("name: simple", "name: broken")
    (folder / "model.yaml").write_text(described)
    (folder / "model.py").write_text(f'def load(artifact, options):\n    raise RuntimeError("{BROKEN}")\n')
    move.order_s = time.monotonic()
    broken = {"path": str(folder), "slices": ["a"]}
    reasons = there.edit(models=[*there.settings["models"], broken])
    _end(move, GIVEN_UP if reasons else DONE, reasons)
    if BROKEN not in "".join(reasons):
        raise RuntimeError(f"the model's own error is not among the reasons: {reasons}")


def _failing_worker(there: Living, move: Move) -> None:
    """Kill at once every worker that runs for the new slice."""
    order = _place(there, move, WIDE)

    def killed_until_over() -> bool:
        worker = there.workers().get("wide")
        if worker is not None:
            kill(worker)
        return there.outcome(order) is not None

    there.until(killed_until_over, "give up a move whose worker does not start")
    _follow(there, move, order)


def _turned_back(there: Living, move: Move) -> None:
    """Turn the move back while the new slice starts, as an operator may."""
    order = _place(there, move, WIDE)
    there.until(lambda: "wide" in there.workers(), "start the new slice's worker")
    status, told = there.ask("POST", "/v2/placement/roll-back")
    if status != ACCEPTED:
        raise RuntimeError(f"the move cannot be rolled back: {status} {told}")
    _follow(there, move, order)


def _set_out(there: Living, move: Move, *slices: str) -> tuple[str, dict[str, int]]:
    """Start on the way to WIDE, with workers for these slices; return the move's id, and workers as
    `Living.workers`. If WIDE was reached before the workers were seen, start again."""
    for _ in range(TRIES):
        order = _place(there, move, WIDE)
        workers = _under_way(there, order, slices)
        if workers is not None:
            return order, workers
        _follow(there, move, order)
        _follow(there, move, _place(there, move, ALONE))
    raise RuntimeError("the move was over before anything could be killed in it")


def _under_way(there: Living, order: str, slices: Sequence[str]) -> dict[str, int] | None:
    """Return the workers a while after those of these slices were there. Return None if the move ended or
    lacked one by then."""

    def seen() -> bool:
        return there.workers().keys() >= {*slices} or there.outcome(order) is not None

    there.until(seen, f"start workers for {' and '.join(slices)}")
    time.sleep(KILL_AFTER_S)
    workers = there.workers()
    return workers if workers.keys() >= {*slices} and there.outcome(order) is None else None


def _gateway_killed(there: Living, move: Move) -> None:
    _set_out(there, move)
    move.faults_s.append(time.monotonic())
    there.kill()
    there.start()
    there.until(lambda: not untrue(there, WIDE), "come up with what was wanted")
    _end(move, DONE)
    move.down_s = move.faults_s[0], move.end_s


def _worker_killed(of_slice: str) -> Callable[[Living, Move], None]:
    def carry_out(there: Living, move: Move) -> None:
        order, workers = _set_out(there, move, "wide", of_slice)
        move.faults_s.append(time.monotonic())
        kill(workers[of_slice])
        time.sleep(POLL_S)
        _follow(there, move, order)

    return carry_out


SCENARIOS = (
    Scenario("share change", _share, DONE, WIDE),
    Scenario("migration", _migration, DONE, SWAPPED),
    Scenario("model reload", _reload, DONE, ALONE),
    Scenario("config change", _config, DONE, ALONE, TIGHTER_MS),
    Scenario("model fails to load", _failing_model, GIVEN_UP, ALONE),
    Scenario("worker cannot start", _failing_worker, GIVEN_UP, ALONE),
    Scenario("rolled back", _turned_back, GIVEN_UP, ALONE),
    Scenario("new worker killed", _worker_killed("wide"), DONE, WIDE),
    Scenario("old worker killed", _worker_killed("a"), DONE, WIDE),
    Scenario("gateway killed", _gateway_killed, DONE, WIDE),
)
