"""Dealing cores to slices, over all small machines and wishes; entries that are several slices."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.settings import Settings, load_settings
from router.settings.machine.slices import Cores, deal_cores
from tests.router.settings.samples import gateway_faults, write_gateway

machines = st.sets(st.integers(0, 7), min_size=1, max_size=6).map(sorted)


@st.composite
def wishes(draw: st.DrawFn) -> tuple[list[Cores], list[int]]:
    usable = draw(machines)
    owners = draw(st.lists(st.sampled_from(["-", "a", "b"]), min_size=len(usable), max_size=len(usable)))
    named = [tuple(core for core, owner in zip(usable, owners, strict=True) if owner == x) for x in "ab"]
    counted: list[Cores] = draw(st.lists(st.one_of(st.none(), st.integers(1, 5)), max_size=4))
    wanted: list[Cores] = [cores for cores in named if cores]
    return draw(st.permutations(wanted + counted)), usable


@given(wishes())
def test_named_cores_are_given_as_named_and_none_means_not_pinned(
    case: tuple[list[Cores], list[int]],
) -> None:
    wanted, usable = case
    for cores, dealt in zip(wanted, deal_cores(wanted, usable), strict=True):
        if not isinstance(cores, int):
            assert dealt == (cores or ())


@given(wishes())
def test_a_count_gets_that_many_distinct_usable_cores_or_all_that_are_free(
    case: tuple[list[Cores], list[int]],
) -> None:
    wanted, usable = case
    named = {core for cores in wanted if isinstance(cores, tuple) for core in cores}
    free = [core for core in usable if core not in named]
    for cores, dealt in zip(wanted, deal_cores(wanted, usable), strict=True):
        if isinstance(cores, int):
            assert len(set(dealt)) == len(dealt) == min(cores, len(free or usable))
            assert set(dealt) <= set(free or usable)


@given(wishes())
def test_no_core_is_shared_while_one_is_free(case: tuple[list[Cores], list[int]]) -> None:
    wanted, usable = case
    named = {core for cores in wanted if isinstance(cores, tuple) for core in cores}
    counted = sum(cores for cores in wanted if isinstance(cores, int))
    dealt = [core for cores in deal_cores(wanted, usable) for core in cores]
    if counted + len(named) <= len(usable):
        assert len(set(dealt)) == len(dealt)
    elif len(named) < len(usable):
        assert set(dealt) == set(usable)


def test_counts_take_cores_in_order_from_those_that_nobody_names() -> None:
    assert deal_cores([2, (1,), 1, None], [0, 1, 2, 3]) == [(0, 2), (1,), (3,), ()]
    assert deal_cores([1, 2], [4, 5]) == [(4,), (4, 5)]


COUNTED = """\
slices: [{name: cpu, count: 3, cores: 1}, {name: big, cores: 2, threads: 2}]
models:
  - {path: models/digits, slices: [cpu]}
  - {path: models/minilm, slices: [big, cpu-2, cpu]}
"""


def counted(home: Path, old: str = "", new: str = "") -> Settings:
    assert old in COUNTED
    return load_settings(write_gateway(home, COUNTED.replace(old, new, 1)))


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.settings.gateway.usable_cores", lambda: tuple(range(8)))


@pytest.mark.usefixtures("eight_cores")
def test_an_entry_with_a_count_is_as_many_slices_each_with_cores_of_its_own(home: Path) -> None:
    settings = counted(home)
    cores = {each.name: each.cores for each in settings.slices}
    assert cores == {"cpu-1": (0,), "cpu-2": (1,), "cpu-3": (2,), "big": (3, 4)}
    assert settings.warnings == ()


@pytest.mark.usefixtures("eight_cores")
def test_a_model_names_counted_slices_one_by_one_or_all_by_the_name_of_their_entry(home: Path) -> None:
    digits, minilm = counted(home).models
    assert digits.slices == ("cpu-1", "cpu-2", "cpu-3")
    assert minilm.slices == ("big", "cpu-2", "cpu-1", "cpu-3")
    assert counted(home, ", slices: [cpu]", "").models[0].slices == ("cpu-1", "cpu-2", "cpu-3", "big")


@pytest.mark.usefixtures("eight_cores")
def test_counted_slices_that_no_model_uses_are_warned_of_at_their_entry(home: Path) -> None:
    settings = counted(home, "[cpu]}\n  - {path: models/minilm, slices: [big, cpu-2, cpu]}", "[cpu-2]}")
    assert [(each.where, each.message) for each in settings.warnings] == [
        ("slices[0]", "no model uses 2 of the 3 slices 'cpu'; they stay idle"),
        ("slices[1]", "no model uses the slice 'big'; it stays idle"),
    ]


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("count: 3", "count: 0", "1:29: slices[0].count: too small; got 0, expected 1 or more"),
        ("count: 3", "count: 1025", "1:29: slices[0].count: too large; got 1025, expected 1024 or less"),
        ("count: 3, cores: 1", "count: 3, cores: [0]", "1:39: slices[0].cores: the same cores for 3 slices; "
         "got a "
         "list of 1, expected a number of cores, that each of them has to itself"),
        ("name: big", "name: cpu-3", "1:50: slices[1].name: 'cpu-3' is used twice; name each slice once"),
        ("name: big", "name: cpu", "1:50: slices[1].name: 'cpu' is used twice; name each slice once"),
        ("[cpu]", "[cpu-4]", "3:36: models[0].slices[0]: unknown slice; got 'cpu-4', expected cpu, big, "
         "cpu-1, cpu-2 or cpu-3 (did you mean cpu-3?)"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(home: Path, old: str, new: str, expected: str) -> None:
    assert old in COUNTED
    text = COUNTED.replace(old, new, 1).replace("[big, cpu-2, cpu]", "[cpu]")
    assert gateway_faults(home, text) == [f"penstock.yaml:{expected}"]
