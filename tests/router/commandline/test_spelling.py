"""A mistyped name is met with the one that was meant, wherever it is typed."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from router.commandline.spelling import nearest
from router.settings.values import schema
from router.settings.values.problems import one_of, unknown_name
from router.settings.values.schema import Section
from router.tensors.parts.wording import suggestion

names = st.text("abcdefgh", min_size=4, max_size=8)


@pytest.mark.parametrize(
    ("typed", "known", "meant"),
    [
        ("mpl", ["simple", "mlp", "identity"], "mlp"),
        ("up", ["xy", "pu"], "pu"),
        ("MPL", ["simple", "mlp"], "mlp"),
        ("slo", ["slo_ms", "path"], "slo_ms"),
        ("digit", ["digits", "minilm"], "digits"),
        ("A", ["B"], ""),
        ("X3", ["X1", "X2"], ""),
        ("weather", ["mlp", "digits"], ""),
        ("x", [], ""),
    ],
)
def test_the_name_that_was_meant_is_found_in_settings_and_in_requests(
    typed: str, known: list[str], meant: str
) -> None:
    assert nearest(typed, known) == meant
    assert (f"did you mean {meant}?" in unknown_name("unknown model", typed, known)) == bool(meant)
    assert suggestion(typed, known) == (f"; did you mean '{meant}'?" if meant else "")


@given(names, st.lists(names, max_size=5), st.data())
def test_two_exchanged_letters_are_always_found(name: str, others: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name) - 2))
    typed = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    assume(typed not in others)
    found = nearest(typed, [*others, name])
    slips = [
        each for each in (*others, name) if sorted(each) == sorted(typed) or abs(len(each) - len(typed)) < 2
    ]
    assert found in slips


def test_all_names_are_listed_but_for_hundreds() -> None:
    few = [f"n{number}" for number in range(16)]
    assert unknown_name("unknown key", "n99", few).count("n1") == 7
    many = [f"name{number}" for number in range(201)]
    assert one_of(many).endswith("name198, name199, ... (201 names)")
    assert one_of(many[:200]).endswith("name198 or name199")


def test_an_unknown_key_is_answered_with_every_key_of_its_section() -> None:
    sections = [
        each for each in vars(schema).values() if isinstance(each, type) and issubclass(each, Section)
    ]
    assert len(sections) > 20
    for section in sections:
        said = one_of(section.model_fields)
        assert not [name for name in section.model_fields if name not in re.split(r", | or ", said)]
