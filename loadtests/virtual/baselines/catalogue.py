"""Published placement algorithms to compare with, each a small file to be read next to its paper."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from loadtests.virtual.baselines import first_fit, gpulet, mig_serving, nexus, parvagpu
from serving.policy.placement.terms.plan import Draft
from serving.policy.placement.terms.problem import PlacementProblem

BASELINES: Mapping[str, Callable[[PlacementProblem], Draft]] = MappingProxyType(
    {
        "first-fit decreasing": first_fit.solve,
        "ParvaGPU": parvagpu.solve,
        "MIG-Serving": mig_serving.solve,
        "gpulet": gpulet.solve,
        "Nexus": nexus.solve,
    }
)
"""The algorithms by name. ParvaGPU and MIG-Serving divide GPUs by MIG, gpulet and Nexus by amounts; first fit
does either. None knows failure domains or the placement that is in force."""
