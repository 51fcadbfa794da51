"""How GPUs are divided: instances at their places, shares side by side, and what is free."""

from itertools import pairwise

import pytest

from router.observing.status.devices import layout_lines
from router.observing.status.layouts import layouts_of
from serving.values.slice_specs import Share, SliceSpec

H200 = "gpu-nvidia-h200"


def on(name: str, share: str, device: str = "h-1", instance: str = "") -> tuple[SliceSpec, str]:
    return SliceSpec(name, (), device=device, part=Share.parse(share), kind=H200, instance=instance), H200


def test_instances_are_at_places_that_the_gpu_has_and_overlap_nowhere() -> None:
    (found,) = layouts_of([on("a", "mig:2g.35gb"), on("b", "mig:3g.71gb"), on("c", "mig:2g.35gb")])
    assert (found["how"], found["width"], found["placed"]) == ("mig", 8, False)
    ends = [(part["start"], part["start"] + part["size"]) for part in found["parts"]]
    assert ends == sorted(ends)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    assert {name for part in found["parts"] for name in part["slices"]} == {"a", "b", "c"}


def test_a_slice_that_a_placement_has_made_says_where_it_is() -> None:
    (found,) = layouts_of([on("h-1/mig:2g.35gb@4", "mig:2g.35gb"), on("h-1/mig:2g.35gb@2", "mig:2g.35gb")])
    assert [(part["start"], part["size"]) for part in found["parts"]] == [(2, 2), (4, 2)]
    assert found["placed"]


def test_processes_of_one_instance_share_its_place() -> None:
    shared = [on(name, "mig:2g.35gb*2", instance="i") for name in ("a", "b")]
    (found,) = layouts_of(shared)
    assert [part["slices"] for part in found["parts"]] == [["a", "b"]]
    assert found["parts"][0]["share"] == "mig:2g.35gb"


def test_mps_shares_stand_side_by_side_and_may_be_more_than_the_whole() -> None:
    (found,) = layouts_of([on("a", "mps:60"), on("b", "mps:70")])
    assert [(part["start"], part["size"]) for part in found["parts"]] == [(0, 60), (60, 70)]
    assert found["width"] == 130


@pytest.mark.parametrize("share", ["mig:9g.999gb", "time:2", "whole:1"])
def test_what_has_no_picture_has_no_layout(share: str) -> None:
    assert layouts_of([on("a", share)]) == []


def test_instances_that_do_not_fit_have_no_layout() -> None:
    assert layouts_of([on(str(number), "mig:3g.71gb") for number in range(4)]) == []


def test_a_line_says_of_each_gpu_what_is_where_and_what_is_free() -> None:
    found = layouts_of([on("a", "mig:2g.35gb"), on("m", "mps:30", device="h-2")])
    assert [*layout_lines(found)] == [
        " h-1: 2g.35gb (a) | 6 of 8 memory slices free",
        " h-2: 30 % (m) | 70 % free",
    ]
