"""Equal keys are equal questions: whatever can change an answer changes the key, and nothing else does."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.cache.keys import question_key
from serving.ports import Call
from serving.values.objectives import Needs
from serving.values.specs import ParameterValue
from serving.values.tensor import Tensor
from tests.builders import graded
from tests.cache.values import question


@dataclass(frozen=True)
class Asked:
    """All that may change an answer, in a form that Python compares type by type."""

    model: str
    variant: str
    tenant: str
    parameters: tuple[tuple[str, str, ParameterValue], ...]
    inputs: tuple[tuple[str, str, tuple[int, ...], bytes], ...]

    def key(self, shared: bool = False) -> bytes:
        parameters = tuple((name, value) for name, _, value in self.parameters)
        tensors = [Tensor(*fields) for fields in self.inputs]
        return question_key(question(tensors, self.model, self.variant, self.tenant, parameters), shared)


# few values that are easily taken for one another, so that pairs are often equal or nearly so
names = st.sampled_from(["", "m", "mm", "m'", "(", "m\x00", "\u00fc", "\udc80"])
values = st.sampled_from(["1", 1, 1.0, True, 0, 0.0, -0.0, False, "", "True"])
parameter = st.tuples(names, values).map(lambda pair: (pair[0], type(pair[1]).__name__, pair[1]))
inputs = st.tuples(
    names, st.sampled_from(["INT8", "BYTES"]), st.sampled_from([(1,), (1, 1), (2,)]), st.binary(max_size=2)
)
asked = st.builds(
    Asked,
    st.sampled_from(["m", "m1"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["t", "", "None"]),
    st.lists(parameter, max_size=2).map(tuple),
    st.lists(inputs, min_size=1, max_size=2).map(tuple),
)


@given(asked, asked)
def test_two_keys_are_equal_exactly_where_the_questions_are(one: Asked, other: Asked) -> None:
    same = repr(one) == repr(other)  # == takes 0.0 for -0.0, which some models do not
    assert (one.key() == other.key()) == same
    assert len(one.key()) == 32


INPUTS = (("x", "BYTES", (1,), b"ab"), ("y", "BYTES", (1,), b"cd"))
ASKED = Asked("m", "a", "t", (("top", "int", 1),), INPUTS)


@pytest.mark.parametrize(
    "other",
    [
        Asked("m2", "a", "t", ASKED.parameters, INPUTS),
        Asked("m", "b", "t", ASKED.parameters, INPUTS),
        Asked("m", "a", "u", ASKED.parameters, INPUTS),
        Asked("m", "a", "t", (), INPUTS),
        Asked("m", "a", "t", (("top", "float", 1.0),), INPUTS),
        Asked("m", "a", "t", (("top", "bool", True),), INPUTS),
        Asked("m", "a", "t", (("top", "str", "1"),), INPUTS),
        Asked("m", "a", "t", ASKED.parameters, (("z", *INPUTS[0][1:]), INPUTS[1])),
        Asked("m", "a", "t", ASKED.parameters, (("x", "UINT8", (1,), b"ab"), INPUTS[1])),
        Asked("m", "a", "t", ASKED.parameters, (("x", "BYTES", (1, 1), b"ab"), INPUTS[1])),
        Asked("m", "a", "t", ASKED.parameters, (("x", "BYTES", (1,), b"aB"), INPUTS[1])),
        Asked("m", "a", "t", ASKED.parameters, (("x", "BYTES", (1,), b"abc"), ("y", "BYTES", (1,), b"d"))),
        Asked("m", "a", "t", ASKED.parameters, INPUTS[::-1]),
    ],
)
def test_a_change_of_any_one_part_makes_another_question(other: Asked) -> None:
    assert other.key() != ASKED.key()


@given(asked, st.sampled_from(["t", "u", "None", ""]))
def test_tenants_share_answers_only_where_they_are_to(one: Asked, tenant: str) -> None:
    other = Asked(one.model, one.variant, tenant, one.parameters, one.inputs)
    assert other.key(shared=True) == one.key(shared=True)
    assert (other.key() == one.key()) == (tenant == one.tenant)


def test_who_pins_the_variant_that_answers_anyway_asks_the_same() -> None:
    x = [Tensor("X", "FP32", (1, 4), bytes(16))]
    free, own, other = (question_key(question(x, variant=name), False) for name in ("", "a", "b"))
    assert free == own != other


def test_calls_that_the_same_variants_may_answer_ask_the_same_whatever_else_they_are_promised() -> None:
    tiers = (Needs("gold", slo_us=1, optimize="cheapest"), Needs("low", accuracy_min=0.5))
    model = graded({"a": 0.9, "b": 0.8, "c": 0.4}, tiers=tiers)
    keys: dict[tuple[str, ...], set[bytes]] = {}
    for objective in (
        model.own,
        *model.by_tier.values(),
        model.objective("", 0.8),
        model.objective("", 0.85),
    ):
        call = Call(model, [Tensor("X", "FP32", (1, 4), bytes(16))], 1)
        call.objective = objective
        keys.setdefault(objective.variants, set()).add(question_key(call, False))
        pinned = Call(model, call.inputs, 1)
        pinned.variant, pinned.objective = "a", objective
        keys.setdefault(("a",), set()).add(question_key(pinned, False))
    assert set(keys) == {("a",), ("a", "b", "c"), ("a", "b")}
    assert [len(found) for found in keys.values()] == [1, 1, 1]
    assert len(set.union(*keys.values())) == 3


def test_another_build_of_any_variant_that_may_answer_is_another_question() -> None:
    model = graded({"a": 0.9, "b": 0.8, "c": 0.4})
    keys = []
    for changed in ("", "a", "b", "c"):
        variants = tuple(
            replace(each, build="2" if each.name == changed else "1") for each in model.spec.variants
        )
        call = Call(
            replace(model, spec=replace(model.spec, variants=variants)), [Tensor("X", "INT8", (1,), b"a")], 1
        )
        call.objective = call.model.objective("", 0.8)
        keys.append(question_key(call, False))
    assert keys[0] == keys[3]
    assert len(set(keys)) == 3


def test_another_build_of_a_variant_is_another_question() -> None:
    keys = set()
    for build in ("", "1", "2"):
        call = question([Tensor("X", "FP32", (1, 4), bytes(16))])
        variants = tuple(replace(each, build=build) for each in call.model.spec.variants)
        call.model = replace(call.model, spec=replace(call.model.spec, variants=variants))
        keys.add(question_key(call, False))
    assert len(keys) == 3


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_the_kind_of_buffer_does_not_matter(buffer: type[bytes | bytearray | memoryview]) -> None:
    keys = {
        question_key(question([Tensor("X", "INT8", (2,), kind(b"ab"))]), False) for kind in (bytes, buffer)
    }
    assert len(keys) == 1
