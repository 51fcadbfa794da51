"""Numbers become devices with slices, and what nobody needs is left out."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.policy.placement.formulation.bundling import carries, cost, deal, needed
from serving.policy.placement.formulation.division import divide
from serving.policy.placement.terms.plan import Bundle, Draft, PlacedReplica, Slot
from serving.policy.placement.terms.problem import PlacementProblem
from serving.values.slice_specs import Share
from tests.policy.placement.builders import demand, mig_pool, mps_pool, option
from tests.policy.placement.drafts import carried, faults
from tests.seeds import drawn

MIG = [Share.parse(f"mig:{name}") for name in ("1g.10gb", "3g.40gb", "7g.80gb")]


def slot(*carry: tuple[str, float], share: str = "mps:10") -> Slot:
    residents = tuple(PlacedReplica(model, option(share, rate), 1, rate) for model, rate in carry)
    return Slot(Share.parse(share), residents)


@given(st.lists(st.integers(0, 3), min_size=4, max_size=4), st.data())
@settings(max_examples=drawn(40))
def test_slices_are_dealt_as_the_devices_are_divided(numbers: list[int], data: st.DataObject) -> None:
    division = divide(mig_pool(99), MIG)
    asked = Counter(
        {
            size: data.draw(
                st.integers(0, int(sum(n * way[at] for n, way in zip(numbers, division.gives, strict=True))))
            )
            for size, at in division.sizes.items()
        }
    )
    bundles = deal(
        division, numbers, [slot(("a", 10.0), share=f"mig:{size}") for size in asked.elements()], "d"
    )
    problem = PlacementProblem((demand("a", 1.0),), (mig_pool(99),))
    assert faults(problem, Draft(tuple(bundles), "")) == []
    assert Counter(each.share.label for bundle in bundles for each in bundle.slots) == +asked
    assert len(bundles) <= sum(numbers)
    assert {bundle.domain for bundle in bundles} <= {"d"}


def test_slices_without_room_are_left_out() -> None:
    division = divide(mig_pool(1), MIG[2:])
    seven = slot(("a", 10.0), share="mig:7g.80gb")
    assert [len(bundle.slots) for bundle in deal(division, [1], [seven, seven])] == [1]


def test_cost_and_what_is_carried_are_of_all_bundles() -> None:
    problem = PlacementProblem((demand("a", 20.0),), (mps_pool(2, "p", 2.0), mps_pool(2, "q", 3.0)))
    bundles = [Bundle("p", (slot(("a", 10.0)),)), Bundle("q", (slot(("a", 10.0)),))]
    assert cost(problem, bundles) == 5.0
    assert carries(problem, bundles)
    assert not carries(problem, bundles[:1])


def test_large_slices_that_nobody_needs_go_first_and_empty_devices_with_them() -> None:
    problem = PlacementProblem((demand("a", 20.0), demand("b", 5.0)), (mps_pool(9),))
    bundles = [
        Bundle("gpu", (slot(("a", 15.0), share="mps:20"),)),
        Bundle("gpu", (slot(("a", 10.0)), slot(("b", 5.0)))),
        Bundle("gpu", (slot(("a", 10.0), ("b", 4.0)),)),
    ]
    assert needed(problem, bundles) == (
        Bundle("gpu", (slot(("a", 10.0)), slot(("b", 5.0)))),
        Bundle("gpu", (slot(("a", 10.0)),)),
    )


bundles_of = st.lists(
    st.tuples(
        st.sampled_from((None, "x", "y")),
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9)), min_size=1, max_size=3),
    ),
    max_size=5,
)


@given(bundles_of, st.integers(1, 20), st.integers(1, 3))
@settings(max_examples=drawn(40))
def test_rates_and_domains_stay_and_no_replica_is_one_too_many(
    drawn: list[tuple[str | None, list[tuple[str, int]]]], rate: int, domains_min: int
) -> None:
    problem = PlacementProblem(
        (demand("a", float(rate), domains_min=domains_min), demand("b", float(rate))), (mps_pool(9),)
    )
    before = [
        Bundle("gpu", tuple(slot((model, float(capacity))) for model, capacity in slots), domain)
        for domain, slots in drawn
    ]
    after = needed(problem, before)
    had, has = carried(Draft(tuple(before), "")), carried(Draft(after, ""))
    for model in "ab":
        assert has.get(model, 0.0) >= min(had.get(model, 0.0), rate * (1 - 1e-6))
    assert sites(after) >= min(sites(before), domains_min)
    left = [each for bundle in after for each in bundle.slots if each.residents[0].model == "b"]
    assert all(has["b"] - each.residents[0].capacity < rate for each in left)


def sites(bundles: Sequence[Bundle]) -> int:
    """Failure domains of a, bundles without one counted as one each."""
    found: set[str | int] = set()
    for place, bundle in enumerate(bundles):
        if any(each.residents[0].model == "a" for each in bundle.slots):
            found.add(bundle.domain or place)
    return len(found)
