"""The processes of one MIG instance: clients of an MPS daemon that computes there (ParvaGPU, SC 2024)."""

from dataclasses import replace
from typing import Final

from serving.runtime.slicing.contract import Actuator, Setting
from serving.runtime.slicing.mps.mps import MpsPercentages
from serving.runtime.slicing.mps.mps_daemon import CONTROL
from serving.values.slice_specs import Share, SliceSpec

_HOLDER: Final = "instance"
"""The name under which the instance itself is open."""


class InstanceProcesses(MpsPercentages):
    """Gives each slice a place in one instance, which `instances` opens. No process has a cap there."""

    def __init__(self, instances: Actuator, share: Share, control: str = CONTROL) -> None:
        """Open an instance of the share. Raises SlicingError if there is none."""
        self._instances = instances
        whole = SliceSpec(_HOLDER, (), part=share.with_processes(1), device="cuda:0")
        uuid = dict(instances.open(whole).environment)["CUDA_VISIBLE_DEVICES"] or ""
        super().__init__(uuid, control)

    def open(self, spec: SliceSpec) -> Setting:
        return super().open(replace(spec, part=Share("mps", 100.0)))

    def stop(self) -> None:
        super().stop()
        self._instances.stop()
