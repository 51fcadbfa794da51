"""What the device kind promises: a file name, the same on every slice of the kind."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.profile.device import device_kind, gpu_kind
from serving.values.slice_specs import SliceSpec

cores = st.lists(st.integers(0, 64), max_size=4).map(tuple)


@given(cores, cores, st.integers(1, 64))
def test_all_slices_of_a_processor_are_of_one_kind_and_its_name_is_a_safe_folder(
    here: tuple[int, ...], there: tuple[int, ...], threads: int
) -> None:
    kind = device_kind(SliceSpec("s0", here, threads))
    assert kind == device_kind(SliceSpec("s1", there, threads + 1))
    assert re.fullmatch(r"cpu-[a-z0-9]+(-[a-z0-9]+)*", kind)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H200", "gpu-nvidia-h200"),
        ("NVIDIA A100-SXM4-80GB", "gpu-nvidia-a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090", "gpu-nvidia-geforce-rtx-4090"),
        ("Tesla T4", "gpu-nvidia-tesla-t4"),
        ("", "gpu-nvidia-unknown"),
    ],
)
def test_a_gpu_is_of_the_kind_that_its_driver_names(name: str, kind: str) -> None:
    assert gpu_kind(name) == kind


@given(st.text(max_size=40))
def test_any_gpus_kind_is_a_safe_folder(name: str) -> None:
    assert re.fullmatch(r"gpu-nvidia[a-z0-9]*(-[a-z0-9]+)*", gpu_kind(name))
