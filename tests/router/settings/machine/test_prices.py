"""`prices:`: what slices and devices cost that state no price, and what is wrong with entries."""

from pathlib import Path

import pytest

from router.settings import Settings, load_settings
from router.settings.machine.prices import machine_kind
from tests.router.settings.samples import gateway_faults, write_gateway

HERE = machine_kind()
TEXT = """\
prices: [{on_demand: 0.05, spot: 0.02}, {kind: gpu-nvidia-h200, on_demand: 4}]
slices:
  - {name: one, cores: 1}
  - {name: two, cores: 2, spot: true}
  - {name: own, cores: 2, spot: true, price: 0.7}
  - {name: free, cores: 2, price: 0}
  - {name: any, threads: 3}
devices:
  - {name: host, cores: 8}
  - {name: gpu, kind: gpu-nvidia-h200}
  - {name: dear, kind: gpu-nvidia-h200, price: 9}
models: [{path: models/digits}]
"""


def read(home: Path, old: str = "", new: str = "", text: str = TEXT) -> Settings:
    assert old in text
    return load_settings(write_gateway(home, text.replace(old, new, 1)))


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.settings.gateway.usable_cores", lambda: tuple(range(8)))


def test_a_core_has_its_price_and_what_an_entry_says_of_its_own_wins(home: Path) -> None:
    settings = read(home)
    assert {each.name: each.price for each in settings.slices} == {
        "one": 0.05, "two": 0.04, "own": 0.7, "free": 0.0, "any": pytest.approx(0.15)
    }  # fmt: skip
    assert [each.name for each in settings.slices if each.spot] == ["two", "own"]
    assert [each.price for each in settings.devices] == [0.4, 4.0, 9.0]


def test_a_slice_that_may_be_taken_away_is_lost_by_itself(home: Path) -> None:
    assert [each.domain for each in read(home).slices] == ["cpu", "spot two", "spot own", "cpu", "cpu"]


def test_without_prices_nothing_costs_anything_but_what_says_so(home: Path) -> None:
    settings = read(home, TEXT.splitlines()[0] + "\n")
    assert [each.price for each in settings.slices] == [0.0, 0.0, 0.7, 0.0, 0.0]
    assert [each.price for each in settings.devices] == [0.0, 0.0, 9.0]


def test_each_slice_of_a_file_without_slices_has_the_price_of_a_core(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.settings.machine.slices.quota", lambda: None)
    text = "prices: [{on_demand: 0.05}]\nmodels: [{path: models/digits}]"
    assert [each.price for each in read(home, text=text).slices] == [0.05] * 8


def test_spot_slices_without_a_spot_price_are_warned_of_and_cost_what_they_do_on_demand(home: Path) -> None:
    settings = read(home, ", spot: 0.02", "")
    assert [each.price for each in settings.slices][:3] == [0.05, 0.1, 0.7]
    (warning,) = [each for each in settings.warnings if each.where.endswith("spot")]
    assert (warning.line, warning.where) == (4, "slices[1].spot")
    assert warning.message == f"`prices:` has no spot price of {HERE}; 0.05 counts, that on demand"


@pytest.mark.parametrize(
    ("old", "new", "where", "message"),
    [
        ("spot: 0.02", "spot: 0.2", "prices[0].spot",
         "spot is dearer than on_demand (0.2 to 0.05): are the two the wrong way round?"),
        ("kind: gpu-nvidia-h200, on", "kind: gpu-nvidia-l4, on", "prices[1].kind",
         f"no slice or device is of this kind; the slices are on {HERE}"),
    ],
)  # fmt: skip
def test_prices_that_hardly_are_meant_are_warned_of(
    home: Path, old: str, new: str, where: str, message: str
) -> None:
    warnings = {each.where: each.message for each in read(home, old, new).warnings}
    assert warnings[where] == message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("on_demand: 0.05", "on_demand: -1",
         "1:22: prices[0].on_demand: too small; got -1, expected 0 or more"),
        ("on_demand: 0.05, ", "", "1:10: prices[0].on_demand: this key is required"),
        ("kind: gpu-nvidia-h200, on", "kind: h200, on",
         "1:48: prices[1].kind: no kind of device; got 'h200', expected a device kind as profiles/ has "
         "folders "
         f"of, such as {HERE} or gpu-nvidia-h200"),
        ("kind: gpu-nvidia-h200, on", "on", f"1:41: prices[1]: '{HERE}' has a price already; list each kind "
         f"once"),
        ("spot: 0.02", "spots: 0.02", "1:28: prices[0].spots: unknown key; got 'spots', "
         "expected kind, on_demand or spot (did you mean spot?)"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(home: Path, old: str, new: str, expected: str) -> None:
    assert old in TEXT
    assert gateway_faults(home, TEXT.replace(old, new, 1)) == [f"penstock.yaml:{expected}"]
