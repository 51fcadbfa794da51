"""`nvidia-smi mig` of one GPU in MIG mode: the lists that the real one prints, and what its commands do."""

import re
from pathlib import Path

from serving.policy.placement.terms.geometry import Geometry
from serving.runtime.slicing.contract import SlicingError
from serving.runtime.slicing.mig.mig_plan import Argv
from serving.runtime.slicing.mig.mig_text import geometry

CAPTURED = Path(__file__).parent / "captured"
RULE = "+-------------------------------------------------------+\n"


def captured(name: str) -> str:
    return (CAPTURED / f"{name}.txt").read_text()


def table(device: str) -> Geometry:
    """The geometry of "h100", "h200", "a100" or "b200"."""
    return geometry(captured(f"{device}-lgip"), captured("lgipp"), 0)


class Smi:
    """Runs argument lists as `Run` does. It refuses what the hardware refuses: a start that the profile does
    not have, memory slices that are taken, a profile that is used up, the end of an instance in use."""

    def __init__(self, device: str = "h200", index: int = 0, first: int = 0) -> None:
        """`index`: of the GPU; `first`: the id of the instance that is made first."""
        self.device = device
        self.index = index
        self.ran: list[Argv] = []
        self.placed: dict[int, tuple[str, int]] = {}
        self.computing: set[int] = set()  # instances that have their compute instance
        self.in_use: set[int] = set()
        self._ids = iter(range(first, 1000))

    def __call__(self, argv: Argv) -> str:
        *smi, verb = argv[:5]
        assert smi == ["nvidia-smi", "mig", "-i", str(self.index)]
        if verb == "-lgip":
            return captured(f"{self.device}-lgip").replace("|   0  MIG", f"|   {self.index}  MIG")
        if verb == "-lgipp":
            return captured("lgipp").replace("GPU  0 ", f"GPU  {self.index} ")
        if verb == "-lgi":
            return self.listed()
        self.ran.append(argv)
        if verb == "-cgi":
            assert argv[6:] == ("-C",)
            return "".join(self._create(each) for each in argv[5].split(","))
        assert argv[5] == "-gi"
        return self._end(verb, int(argv[6]))

    def listed(self) -> str:
        if not self.placed:
            return "No GPU instances found: Not Found\n"
        profiles = {profile.name: profile for profile in table(self.device)}
        rows = [
            f"|   {self.index}  MIG {name:<12} {profiles[name].id:>4} {each:>8} {start:>10}"
            f":{profiles[name].size}    |\n"
            for each, (name, start) in self.placed.items()
        ]
        return RULE + "| GPU instances: |\n" + RULE + RULE.join(rows) + RULE

    def _create(self, where: str) -> str:
        match = re.fullmatch(r"(\d+):(\d+)", where)
        assert match is not None
        profiles = {profile.name: profile for profile in table(self.device)}
        profile = next(each for each in profiles.values() if each.id == int(match[1]))
        start = int(match[2])
        wanted = set(range(start, start + profile.size))
        taken = {
            memory
            for name, first in self.placed.values()
            for memory in range(first, first + profiles[name].size)
        }
        as_many = sum(name == profile.name for name, _ in self.placed.values())
        if start not in profile.starts or wanted & taken or as_many >= profile.instances_max:
            raise SlicingError(
                f"Unable to create a GPU instance using profile {profile.id}: Insufficient Resources"
            )
        number = next(self._ids)
        self.placed[number] = (profile.name, start)
        self.computing.add(number)
        where = f"GPU instance ID {number} on GPU  {self.index}"
        return f"Successfully created {where} using profile MIG {profile.name}\n"

    def _end(self, verb: str, number: int) -> str:
        busy = self.in_use if verb == "-dci" else self.computing | self.in_use
        if number in busy:
            raise SlicingError(f"Unable to destroy GPU instance ID {number}: In use by another client")
        if verb == "-dci":
            self.computing.remove(number)
        else:
            del self.placed[number]
        return "Successfully destroyed\n"
