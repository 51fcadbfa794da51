"""What a request is promised, whichever way it says so: never less than it asks for, and else a clear no."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.protocol.oip import name_request
from router.protocol.promises import promise
from router.protocol.rest import apply_fields, fields_of
from router.tensors.parts.errors import RequestError
from router.tensors.request.decoded import Decoded
from router.tensors.request.parameters import Stated
from serving.ports import Call
from serving.values.objectives import Needs
from serving.values.specs import ServedModel
from serving.values.vocabulary import BAD_INPUT
from tests.builders import graded

SHARES: dict[str, float | None] = {"base": 0.91, "large": 0.95, "tiny": 0.8, "new": None}
TIERS = (
    Needs("gold", slo_us=20_000, accuracy_min=0.94),
    Needs("cheap", tolerance=0.1, optimize="cheapest"),
    Needs("quick", slo_us=5_000),
)
MODEL = graded(SHARES, tiers=TIERS)


def asked(
    tier: str = "", floor: float = 0.0, variant: str = "", model: ServedModel = MODEL, by_field: bool = False
) -> tuple[Decoded, str, str]:
    """A request that says so in its parameters, or in its header fields."""
    call = Call(model, [], 1)
    call.variant = variant
    if by_field:
        return Decoded(call, "", ()), tier, str(floor) if floor else ""
    return Decoded(call, "", (), Stated(tier, floor) if tier or floor else None), "", ""


def promised(decoded: Decoded, tier: str = "", accuracy: str = "", tenant_tier: str = "") -> Call:
    promise(decoded, tier, accuracy, tenant_tier)
    return decoded.call


def refusal(decide: Callable[[], object]) -> str:
    with pytest.raises(RequestError) as caught:
        decide()
    assert caught.value.outcome is BAD_INPUT
    assert len(caught.value.message) < 300
    return caught.value.message


def test_who_says_nothing_has_what_the_model_promises() -> None:
    assert promised(*asked()).objective is MODEL.own
    assert MODEL.own.variants == ("base",)


@pytest.mark.parametrize("by_field", [False, True])
def test_a_tier_and_a_floor_may_come_as_parameters_and_as_fields(by_field: bool) -> None:
    gold = promised(*asked("gold", by_field=by_field)).objective
    assert (gold.tier, gold.slo_us, gold.variants) == ("gold", 20_000, ("large",))
    floored = promised(*asked(floor=0.9, by_field=by_field)).objective
    assert (floored.tier, floored.accuracy_min, floored.variants) == ("", 0.9, ("large", "base"))


def test_a_tier_of_the_request_counts_before_its_tenants() -> None:
    assert promised(*asked(), tenant_tier="cheap").objective is MODEL.by_tier["cheap"]
    assert promised(*asked("gold"), tenant_tier="cheap").objective is MODEL.by_tier["gold"]
    floored = promised(*asked(floor=0.9), tenant_tier="cheap").objective
    assert (floored.tier, floored.optimize, floored.variants) == ("cheap", "cheapest", ("large", "base"))


def test_two_ways_of_one_request_name_one_tier() -> None:
    decoded, _, _ = asked("gold")
    assert promised(decoded, " gold ").objective.tier == "gold"
    sentence = refusal(lambda: promised(decoded, "cheap"))
    assert sentence == "a request has one tier, but x-tier says 'cheap' and parameter 'tier' 'gold'"


@given(st.floats(0, 0.95), st.floats(0, 0.95))
def test_of_two_floors_the_higher_counts(one: float, other: float) -> None:
    decoded, _, _ = asked(floor=one)
    assert promised(decoded, accuracy=repr(other)).objective.accuracy_min == max(one, other)


def test_equal_requests_share_one_objective() -> None:
    first, second = (promised(*asked("cheap", 0.93)).objective for _ in range(2))
    assert first is second
    assert promised(*asked("cheap", 0.5)).objective is MODEL.by_tier["cheap"], "its own floor is higher"


@pytest.mark.parametrize(
    ("tier", "sentence"),
    [
        ("glod", "model 'm' has no tier 'glod'; did you mean 'gold'?"),
        ("best", "model 'm' has no tier 'best'; its tiers are 'gold', 'cheap', 'quick'"),
    ],
)
def test_an_unknown_tier_is_refused_with_those_that_there_are(tier: str, sentence: str) -> None:
    assert refusal(lambda: promised(*asked(tier))) == sentence
    plain = graded(SHARES)
    assert refusal(lambda: promised(*asked(tier, model=plain))).endswith("; it has none")


@pytest.mark.parametrize(
    ("floor", "model", "sentence"),
    [
        (0.951, MODEL, "model 'm' reaches at most 0.95 (large); accuracy_min 0.951 cannot be met"),
        (
            0.1,
            graded({"a": None}),
            "model 'm' has no variant with a measured accuracy; accuracy_min 0.1 cannot be met",
        ),
    ],
)
def test_a_floor_that_no_variant_reaches_is_refused_with_what_they_reach(
    floor: float, model: ServedModel, sentence: str
) -> None:
    assert refusal(lambda: promised(*asked(floor=floor, model=model))) == sentence


def test_a_tier_that_no_variant_reaches_is_refused_by_its_name() -> None:
    model = graded({"a": 0.5}, tiers=(Needs("gold", accuracy_min=0.9),))
    sentence = refusal(lambda: promised(*asked("gold", model=model)))
    assert sentence == "model 'm' reaches at most 0.5 (a); the 0.9 of tier 'gold' cannot be met"
    assert refusal(lambda: promised(*asked(model=model), tenant_tier="gold")) == sentence
    hopeless = graded({"a": 0.5}, Needs(accuracy_min=0.9))
    sentence = refusal(lambda: promised(*asked(floor=0.4, model=hopeless)))
    assert sentence == "model 'm' reaches at most 0.5 (a); its own floor of 0.9 cannot be met"


@pytest.mark.parametrize("stated", ["soon", "", "nan", "-0.1", "1.1", "95", "inf", "9" * 10_000])
def test_an_accuracy_field_that_is_no_share_is_refused(stated: str) -> None:
    decoded, _, _ = asked()
    if not stated:
        assert promised(decoded, accuracy=stated).objective is MODEL.own
        return
    sentence = refusal(lambda: promised(decoded, accuracy=stated))
    assert sentence.startswith("x-accuracy-min must be a number from 0 to 1 (0.95 for 95 %), got ")


def test_a_pinned_variant_may_lie_below_all_floors_but_what_the_request_says_itself() -> None:
    strict = graded(SHARES, Needs(accuracy_min=0.94), TIERS)
    assert promised(*asked(variant="tiny", model=strict)).variant == "tiny"
    assert promised(*asked(variant="tiny", model=strict), tenant_tier="gold").objective.slo_us == 20_000
    assert promised(*asked(variant="base", floor=0.9, model=strict)).variant == "base"
    sentence = refusal(lambda: promised(*asked(variant="tiny", floor=0.9)))
    assert sentence == (
        "variant 'tiny' of model 'm' has an accuracy of 0.8; accuracy_min 0.9 asks for more, "
        "reached by 0.95 (large), 0.91 (base)"
    )
    sentence = refusal(lambda: promised(*asked("gold", variant="base")))
    assert sentence == (
        "variant 'base' of model 'm' has an accuracy of 0.91; the 0.94 of tier 'gold' asks for more, "
        "reached by 0.95 (large)"
    )
    sentence = refusal(lambda: promised(*asked(floor=0.99, variant="new")))
    assert "'new' of model 'm' has no measured accuracy" in sentence
    assert sentence.endswith("which no variant reaches")


def test_a_tier_without_a_floor_lets_any_variant_be_pinned() -> None:
    call = promised(*asked("quick", variant="tiny"))
    assert (call.objective.slo_us, call.variant) == (5_000, "tiny")


shares = st.none() | st.integers(0, 10).map(lambda tenths: tenths / 10)
floors = st.none() | st.integers(0, 10).map(lambda tenths: tenths / 10)
models = st.builds(
    lambda accuracy, own, tier: graded(accuracy, Needs(accuracy_min=own), (Needs("t", accuracy_min=tier),)),
    st.dictionaries(st.sampled_from("abc"), shares, min_size=1, max_size=3),
    floors,
    floors,
)


@given(
    models, st.booleans(), floors, floors, st.sampled_from(["", "a", "b", "c"]), st.sampled_from(["", "t"])
)
def test_no_variant_may_answer_that_is_below_what_was_said_by_anybody(
    model: ServedModel,
    tiered: bool,
    by_parameter: float | None,
    by_field: float | None,
    variant: str,
    tenant_tier: str,
) -> None:
    variant = variant if variant in model.variants else ""
    decoded, _, _ = asked("t" if tiered else "", by_parameter or 0.0, variant, model)
    floor = max(by_parameter or 0.0, by_field or 0.0)
    own_floor = model.needs.accuracy_min or 0.0
    stated = model.tiers[0].accuracy_min
    tier_floor = own_floor if stated is None else stated
    if tiered:
        floor = max(floor, tier_floor)
    elif not variant:
        floor = max(floor, tier_floor if tenant_tier else own_floor)
    said = tiered or by_parameter or by_field or tenant_tier
    reach = [name for name in model.variants if not floor or (model.accuracy(name) or -1.0) >= floor]
    try:
        call = promised(decoded, accuracy="" if by_field is None else str(by_field), tenant_tier=tenant_tier)
    except RequestError:
        assert said
        assert variant not in reach if variant else not reach
        return
    allowed = (call.variant,) if call.variant else call.objective.variants
    assert set(allowed) <= set(reach)
    assert allowed or not said


def test_of_a_field_that_comes_twice_the_higher_floor_counts_and_tiers_must_be_one() -> None:
    for stated in ("0.93,0.9", "0.9,0.93", "0.93,", " ,0.93"):
        assert promised(*asked()[:1], accuracy=stated).objective.accuracy_min == 0.93
    assert promised(*asked()[:1], "gold,gold").objective.tier == "gold"
    assert "one tier, but x-tier says 'gold' and 'cheap'" in refusal(
        lambda: promised(*asked()[:1], "gold, cheap")
    ).replace('"', "'")


def test_no_field_of_a_floor_or_a_tier_gets_lost_behind_another() -> None:
    fields = fields_of([(b"x-accuracy-min", b"0.995"), (b"x-accuracy-min", b"0.9"), (b"x-tier", b"best")])
    assert fields == {b"x-accuracy-min": b"0.995,0.9", b"x-tier": b"best"}


def test_a_trace_is_kept_with_the_whole_of_its_state_and_names_what_has_no_name() -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    headers = [(b"tracestate", b"rojo=1"), (b"traceparent", trace.encode()), (b"tracestate", b"congo=2")]
    decoded = asked()[0]
    apply_fields(decoded, fields_of(headers), "")
    call = decoded.call
    assert (call.trace, call.trace_state, call.name) == (trace, "rojo=1,congo=2", "a" * 32)
    name_request(call, "mine", "00-of nothing", "rojo=1")
    assert (call.trace, call.trace_state, call.name) == ("", "", "mine")
