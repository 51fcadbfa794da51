"""What is promised of layouts: what is listed, the instance of each slice, and one on paper that is legal."""

from serving.policy.placement.terms.geometry import H200_141, place
from serving.runtime.slicing.mig.layout import MigLayout, layout_on_paper
from serving.runtime.slicing.mig.mig import MigGpu, MigInstances
from serving.values.slice_specs import Share, SliceSpec
from tests.runtime.slicing.smi import Smi, table


def test_a_gpu_tells_its_instances_and_those_that_slices_have() -> None:
    smi = Smi()
    there = MigInstances(MigGpu(0, smi, dry_run=False), lambda: {n: f"MIG-{n}" for n in smi.computing})
    assert there.layout == MigLayout(table("h200"), (), {})
    for name, profile in (("a", "3g.71gb"), ("b", "1g.18gb")):
        there.open(SliceSpec(name, (), device="cuda:0", part=Share.parse(f"mig:{profile}")))
    told = there.layout
    assert {(each.start, each.profile) for each in told.instances} == {
        (start, profile) for profile, start in smi.placed.values()
    }
    by_id = {each.id: each.profile for each in told.instances}
    assert {name: by_id[number] for name, number in told.taken.items()} == {"a": "3g.71gb", "b": "1g.18gb"}
    there.close("a")
    assert there.layout.taken.keys() == {"b"}
    assert len(there.layout.instances) == 2, "an instance stays for the next slice"


def test_on_paper_each_slice_has_an_instance_of_its_own_profile() -> None:
    wanted = {"a": "1g.18gb", "b": "3g.71gb", "c": "1g.18gb"}
    found = layout_on_paper(H200_141, wanted)
    assert found is not None
    by_id = {each.id: each for each in found.instances}
    assert {name: by_id[number].profile for name, number in found.taken.items()} == wanted
    assert len({*found.taken.values()}) == 3
    assert tuple((each.start, each.profile) for each in found.instances) == place(
        H200_141, [*wanted.values()]
    )
    assert {each.profile: each.size for each in found.instances} == {"3g.71gb": 4, "1g.18gb": 1}


def test_what_does_not_fit_or_is_unknown_has_no_layout() -> None:
    assert layout_on_paper(H200_141, {"a": "7g.141gb", "b": "1g.18gb"}) is None
    assert layout_on_paper(H200_141, {"a": "1g.5gb"}) is None
    assert layout_on_paper((), {"a": "1g.18gb"}) is None
