"""`replicas:`, `scaling:` and `memory_mb` are played: the live controller runs in the simulation."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serving.profile.device import device_kind
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import Share, SliceSpec
from tests.router.verbs.simulate.conftest import Simulate, measured

pytestmark = pytest.mark.in_turn(2)

THREE = """\
slices: [{{name: cpu, cores: 1, count: 3, price: 0.5{slice}}}]
cache: false
models:
  - {{path: models/digits, slo_ms: 25, variants: [linear], default_variant: linear{model}}}
{more}"""
MINILM = "  - {path: models/minilm, slo_ms: 200, variants: [fp32]}\n"

Found = dict[str, Any]


def write(home: Path, name: str, model: str = "", of_slice: str = "", more: str = "") -> str:
    extra = {"model": f", {model}" if model else "", "slice": f", {of_slice}" if of_slice else ""}
    (home / name).write_text(THREE.format(more=more, **extra))
    return name


def played(simulate: Simulate, config: str, *arguments: str) -> Found:
    ended = simulate(*arguments, "--json", config=config)
    assert ended.exit_code == 0, ended.output
    (found,) = json.loads(ended.stdout)["results"]
    result: Found = found
    return result


def weigh(home: Path, model: str, variant: str, megabytes: int) -> None:
    """What the variant takes of memory, and 0.3 s to load."""
    store, kind = ProfileStore(home / "profiles"), device_kind(SliceSpec("any", (0,)))
    known = store.read(kind, model, variant, Share("cores", 1.0))
    assert known is not None
    store.write_local(replace(known, memory_bytes=megabytes << 20, load_us=300_000))


@pytest.fixture(autouse=True)
def quick(home: Path) -> None:
    """Models load within 0.3 s."""
    weigh(home, "digits", "linear", 20)
    weigh(home, "minilm", "fp32", 20)


def test_one_replica_carries_what_one_slice_does(simulate: Simulate, home: Path) -> None:
    write(home, "all.yaml")
    write(home, "one.yaml", "replicas: 1")
    asked = ("--rate", "digits=1500")
    everywhere, one = (played(simulate, name, *asked)["total"] for name in ("all.yaml", "one.yaml"))
    assert everywhere["attainment"] > 0.99
    (alone,) = json.loads(simulate(*asked, "--slices", "1", "--json", config="all.yaml").stdout)["results"]
    assert one["goodput"] == pytest.approx(alone["total"]["goodput"], rel=0.05)


@pytest.mark.slow
def test_replicas_follow_the_load_and_what_is_not_held_costs_nothing(simulate: Simulate, home: Path) -> None:
    write(home, "scaled.yaml", "replicas: {min: 1, max: 3}")
    low = played(simulate, "scaled.yaml", "--rate", "digits=100", "--seconds", "5")
    assert (low["models"]["digits"]["replicas"]["most"], low["total"]["cost"]["per_hour"]) == (1, 0.5)
    assert sorted(low["held_slices"].values()) == [0, 0, 1]
    high = played(simulate, "scaled.yaml", "--rate", "digits=100:5+1500:15", "--seconds", "20")
    replicas = high["models"]["digits"]["replicas"]
    assert (replicas["least"], replicas["most"]) == (1, 3)
    assert 1.5 < replicas["mean"] < 3
    assert high["total"]["cost"]["per_hour"] == pytest.approx(0.5 * sum(high["held_slices"].values()))
    assert 0.75 < high["total"]["cost"]["per_hour"] < 1.5


@pytest.mark.slow
def test_the_ceiling_of_costs_and_the_policy_hold(simulate: Simulate, home: Path) -> None:
    asked = ("--rate", "digits=1500", "--seconds", "8")
    (home / "dear.yaml").write_text(
        THREE.format(model=", replicas: {min: 1, max: 3}", slice="", more="scaling: {cost_max_per_hour: 1}\n")
    )
    (home / "fixed.yaml").write_text(
        THREE.format(model=", replicas: {min: 1, max: 3}", slice="", more="scaling: {policy: fixed}\n")
    )
    dear, fixed = (played(simulate, name, *asked) for name in ("dear.yaml", "fixed.yaml"))
    assert dear["models"]["digits"]["replicas"]["most"] == 2
    assert fixed["models"]["digits"]["replicas"]["mean"] == pytest.approx(3, abs=0.3)
    assert dear["total"]["attainment"] < fixed["total"]["attainment"]


def test_where_memory_is_short_models_come_and_go(simulate: Simulate, home: Path) -> None:
    """One model is asked for, then the other: on 30 MB only one of 20 MB is there at a time, and what takes
    longer to load than the SLO is refused meanwhile."""
    asked = ("--rate", "digits=5:10+0:110,minilm=0:10+10:110", "--seconds", "120")
    write(home, "room.yaml", of_slice="memory_mb: 60", more=MINILM)
    write(home, "short.yaml", of_slice="memory_mb: 30", more=MINILM)
    room, short = (
        json.loads(simulate(*asked, "--slices", "1", "--json", config=name).stdout)["results"][0]
        for name in ("room.yaml", "short.yaml")
    )
    assert room["models"]["minilm"]["attainment"] == 1
    minilm = short["models"]["minilm"]
    assert 0.3 < minilm["attainment"] < 1  # once it is worth more than what is there, it is loaded
    assert minilm["endings"]["not_loaded"] > 10
    assert (minilm["replicas"]["least"], minilm["replicas"]["most"]) == (0, 1)
    assert short["models"]["digits"]["replicas"]["least"] == 0


@pytest.mark.slow
def test_a_model_that_nobody_asks_for_holds_memory_and_slices(simulate: Simulate, home: Path) -> None:
    more = "  - {path: models/minilm, slo_ms: 2000, variants: [fp32], replicas: 2}\n"
    write(home, "alone.yaml", "replicas: {min: 1, max: 3}")
    write(home, "beside.yaml", "replicas: {min: 1, max: 3}", more=more)
    asked = ("--rate", "digits=2300", "--seconds", "8")
    alone, beside = (played(simulate, name, *asked)["models"] for name in ("alone.yaml", "beside.yaml"))
    assert alone["digits"]["replicas"]["most"] == 3
    assert beside["digits"]["replicas"]["most"] == 1
    assert [*beside] == ["digits"]


@pytest.mark.slow
def test_workers_die_and_come_back_there_too(simulate: Simulate, home: Path) -> None:
    write(home, "two.yaml", "replicas: 2")
    asked = ("--rate", "digits=600", "--seconds", "10")
    sound = played(simulate, "two.yaml", *asked)
    broken = played(simulate, "two.yaml", *asked, "--crash-every", "2", "--stall-every", "3")
    assert (sound["crashes"], sound["stalls"]) == (0, 0)
    assert broken["crashes"] > 3
    assert broken["stalls"] > 1
    assert 0.3 < broken["total"]["attainment"] < sound["total"]["attainment"]
    assert broken == played(simulate, "two.yaml", *asked, "--crash-every", "2", "--stall-every", "3")


@pytest.mark.slow
def test_capacity_is_searched_with_replicas(simulate: Simulate, home: Path) -> None:
    """Two of three slices carry some 1,800 requests a second."""
    write(home, "two.yaml", "replicas: 2")
    asked = ("--rate", "digits=1200", "--capacity", "--seconds", "0.4", "--attainment", "0.9")
    assert 1200 < played(simulate, "two.yaml", *asked)["capacity"]["rate"] < 2400


@pytest.mark.slow
def test_what_is_ignored_is_named_in_the_first_line(simulate: Simulate, home: Path) -> None:
    write(home, "one.yaml", "replicas: 1")
    write(home, "all.yaml")
    asked = ("--rate", "digits=1500")
    ended = simulate(*asked, "--ignore", "replicas", config="one.yaml")
    assert ended.exit_code == 0, ended.output
    first = " ".join(ended.stdout.split("Batches take")[0].split())
    assert (
        first == "Not simulated: left out by --ignore: replicas of digits: one stands on each slice, always."
    )
    ignored = played(simulate, "one.yaml", *asked, "--ignore", "replicas,memory_mb")
    assert ignored["total"] == played(simulate, "all.yaml", *asked)["total"]
    wrong = simulate(*asked, "--ignore", "replica", config="one.yaml")
    assert wrong.exit_code == 2
    assert (
        "--ignore: no key that can be left out; got 'replica', expected replicas or memory_mb" in wrong.stderr
    )


def test_what_cannot_be_simulated_is_refused_by_name(simulate: Simulate, home: Path) -> None:
    write(home, "two.yaml", "replicas: 2")
    few = simulate("--rate", "digits=100", "--slices", "1", config="two.yaml")
    assert few.exit_code == 2
    assert (
        "--slices 1: digits has at least 2 replicas, one to a slice; expected --slices 2 or more"
        in few.stderr
    )
    (home / "unlike.yaml").write_text(
        "slices: [{name: small, cores: 1}, {name: large, threads: 2}]\n"
        "models:\n  - {path: models/digits, slo_ms: 25, replicas: 1, accuracy_min: 0.1}\n"
    )
    measured(home, "digits", "cnn", 1500)
    store = ProfileStore(home / "profiles")
    known = store.read(device_kind(SliceSpec("any", (0,))), "digits", "linear", Share("cores", 1.0))
    assert known is not None
    store.write_local(replace(known, share=Share("cores", 2.0)))
    half = simulate("--rate", "digits=100", config="unlike.yaml")
    assert half.exit_code == 2
    assert "never measured there: cnn on slice large" in half.stderr
    assert "--ignore replicas,memory_mb" in half.stderr
    rows = simulate("--rate", "digits=1", "--rows", "digits=5000", config="two.yaml")
    assert rows.exit_code == 2
    assert "--rows: digits has requests of 5,000 rows" in rows.stderr
    assert "at most its limits.rows_per_request, 4,096" in rows.stderr


def test_what_replicas_carry_is_a_guess_until_a_gateway_has_simulated_it(
    simulate: Simulate, home: Path
) -> None:
    write(home, "one.yaml", "replicas: 1")
    ended = simulate("--rate", "digits=100", config="one.yaml")
    assert "note: what replicas of digits linear carry was guessed from profiles" in ended.stderr
