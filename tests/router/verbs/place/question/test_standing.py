"""What settings place today, and the settings that place it: there and back again."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.settings import load_settings
from router.verbs.place.question.asked import PlacementTask, ask
from router.verbs.place.question.rates import RunningGateway
from router.verbs.place.question.standing import as_settings
from serving.policy.placement.terms.check import faults
from serving.policy.placement.terms.plan import PlacedReplica, Placement, Slot
from serving.policy.placement.terms.problem import Option
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import Share
from tests.router.settings.samples import write_gateway
from tests.router.verbs.place.deployments import CORES, GATEWAY, HERE, HOST, MODELS, deployment, four_cores

Layout = list[tuple[int, list[str]]]
"""Of each slice: cores, models."""


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    four_cores(monkeypatch)


def asked(path: Path, rates: str = "digits=100,minilm=5") -> PlacementTask:
    return ask(path, [rates], 0.2, RunningGateway(), None)


def layout(placement: Placement) -> Layout:
    (slots,) = placement.values()
    return [(int(slot.share.amount), [each.model for each in slot.residents]) for slot in slots]


def placed(found: PlacementTask, wanted: Layout) -> Placement:
    """On the host, of the problem's own options."""
    options = {
        (each.model, option.share.amount): option for each in found.problem.demands for option in each.options
    }
    return {
        "host": tuple(
            Slot(
                Share("cores", float(cores)),
                tuple(PlacedReplica(model, options[model, float(cores)], 1, 100.0) for model in models),
            )
            for cores, models in wanted
        )
    }


def test_slices_and_the_models_that_list_them_are_what_is_placed_today(tmp_path: Path) -> None:
    found = asked(deployment(tmp_path)).current
    assert layout(found) == [(1, ["digits", "minilm"]), (2, ["minilm"])]


def test_today_each_replica_runs_the_largest_batch_with_which_all_keep_their_slos(tmp_path: Path) -> None:
    found = asked(deployment(tmp_path))
    first, second = found.current["host"]
    assert not faults(found.problem, found.current)
    digits, minilm = first.residents
    # a third of 2 x 0.45 x 25 ms is 7.5 ms: 4 rows of digits take 5, 8 would take 9; 1 row of minilm takes 6
    assert (digits.rows, minilm.rows) == (4, 1)
    assert [digits.capacity, minilm.capacity] == pytest.approx([4e6 / 11e3, 1e6 / 11e3])
    assert second.residents[0].rows == 16  # 41 of 90 ms


def test_an_slo_that_is_missed_today_is_seen_as_a_fault(tmp_path: Path) -> None:
    path = deployment(tmp_path, HOST + GATEWAY.replace("slo_ms: 25", "slo_ms: 6"))
    found = asked(path)
    assert [each.rows for each in found.current["host"][0].residents] == [1, 1]
    assert any(fault.startswith("host: digits:") for fault in faults(found.problem, found.current))


def test_a_model_without_a_rate_is_not_part_of_it(tmp_path: Path) -> None:
    assert layout(asked(deployment(tmp_path), "minilm=5").current) == [(1, ["minilm"]), (2, ["minilm"])]


def test_shares_that_were_never_measured_are_left_out_and_named(tmp_path: Path) -> None:
    three = GATEWAY.replace("cores: 2, threads: 2", "cores: 3, threads: 3")
    found = asked(deployment(tmp_path, HOST + three))
    assert layout(found.current) == [(1, ["digits", "minilm"])]
    assert "left out of what is placed today, as never measured: minilm on cores:3 (cpu-b)" in found.notes


@pytest.mark.parametrize("other", ["kind: cpu-other, cores: 4", f"kind: {HERE}, cores: 64"])
def test_of_another_machine_nothing_is_known(tmp_path: Path, other: str) -> None:
    path = deployment(tmp_path, HOST.replace(f"kind: {HERE}, cores: 4", other) + GATEWAY)
    store = ProfileStore(tmp_path / "profiles")
    for profile in [profile for each in store.sets(HERE) for profile in each.profiles]:
        store.write(replace(profile, device_kind="cpu-other"))
    found = asked(path)
    assert not found.current
    assert "what is placed today is not known: the devices are not this machine's" in found.notes
    assert as_settings(found, placed(found, [(1, ["digits"])])) is None


LAYOUTS = st.lists(
    st.tuples(
        st.sampled_from([int(cores) for cores in CORES]),
        st.sampled_from([["digits"], ["minilm"], ["digits", "minilm"]]),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=LAYOUTS)
def test_a_placement_written_as_settings_and_read_again_is_the_same(tmp_path: Path, wanted: Layout) -> None:
    found = asked(deployment(tmp_path))
    text = as_settings(found, placed(found, wanted))
    assert text is not None
    path = write_gateway(tmp_path, HOST + taken_over(text))
    rates = ",".join(f"{model.name}=1" for model in load_settings(path).models)
    assert layout(asked(path, rates).current) == wanted


def taken_over(text: str) -> str:
    """The deployment's settings with these lines instead of their own; models that are not in them go."""
    slices, _, models = text.partition("models:")
    lists = dict(re.findall(r"^  - path: (\S+)\n    slices: (\[.*\])$", models, re.MULTILINE))
    kept = [
        re.sub(r"slices: \[.*?\]", f"slices: {lists[path]}", line)
        for line in MODELS.splitlines()
        for path in re.findall(r"path: ([\w/]+)", line)
        if path in lists
    ]
    return f"{slices}models:\n" + "\n".join(kept) + "\n"


def test_settings_say_what_each_slice_carries_and_who_has_no_place(tmp_path: Path) -> None:
    path = deployment(tmp_path)
    found = asked(path, "digits=100,minilm=0")
    assert as_settings(found, placed(found, [(2, ["digits"]), (1, ["digits"])])) == (
        "slices:\n"
        "  - {name: cpu-1, cores: 2, threads: 2}  # carries digits 100 rows/s\n"
        "  - {name: cpu-2, cores: 1}  # carries digits 100 rows/s\n"
        "models:  # other keys of a model stay as they are\n"
        "  - path: models/digits\n"
        "    slices: [cpu-1, cpu-2]\n"
        "  # - path: models/minilm  # it has no replica here: leave it out\n"
    )
    unasked = as_settings(asked(path, "digits=100"), placed(found, [(1, ["digits"])])) or ""
    assert unasked.endswith("# no rate was given: give it slices of these, or leave it out\n")


def test_a_folder_whose_name_yaml_would_misread_is_quoted(tmp_path: Path) -> None:
    path = deployment(tmp_path)
    for name in ("1.5", "a: b # é"):
        folder = tmp_path / name
        (tmp_path / "models" / "digits").rename(folder)
        path = write_gateway(tmp_path, HOST + GATEWAY.replace("models/digits", f"'{name}'"))
        found = asked(path)
        text = as_settings(found, placed(found, [(1, ["digits"])])) or ""
        assert [each.name for each in load_settings(write_gateway(tmp_path, text)).models] == ["digits"]
        folder.rename(tmp_path / "models" / "digits")


def slot(kind: str = HERE, share: str = "cores:1", processes: int = 1) -> Slot:
    parsed = Share.parse(share)
    option = Option(kind, parsed, "linear", ((1, 1000.0),), processes=processes)
    return Slot(parsed, (PlacedReplica("digits", option, 1, 1.0),))


@pytest.mark.parametrize(
    "placement",
    [
        {},
        {"host": ()},
        {"host": (slot(), Slot(Share("cores", 1.0), ()))},
        {"host": (slot(processes=2),)},  # a worker on cores computes alone
        {"host": (slot(share="cores:1.5"),)},
        {"host": (slot(),), "elsewhere": (slot(),)},
        {"elsewhere": (slot(),)},
    ],
)
def test_what_no_settings_can_say_is_none(tmp_path: Path, placement: Placement) -> None:
    assert as_settings(asked(deployment(tmp_path)), placement) is None
