"""MIG instances: a GPU divided in hardware, memory and caches included, by `nvidia-smi mig`.

By default nothing is changed: existing instances are given out, and what would have to be run is said. MIG
mode is the operator's to switch, and so is what shall be lost with a destroyed instance.
"""

import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from serving.policy.placement.terms.geometry import Geometry
from serving.runtime.slicing.contract import FaultDomain, Guarantee, Resize, Setting, SlicingError
from serving.runtime.slicing.mig.layout import MigLayout
from serving.runtime.slicing.mig.mig_plan import Argv, MigPlan, plan
from serving.runtime.slicing.mig.mig_text import Instance, geometry, instances
from serving.runtime.slicing.timeslice import on_device
from serving.values.slice_specs import Share, SliceSpec

Run = Callable[[Argv], str]
"""Runs a command and returns all that it printed; SlicingError where it failed."""

_ANSWER_S = 60.0


def run_command(argv: Argv) -> str:
    """Run a command, as `Run` says. nvidia-smi ends with 6 if there is nothing to list, which counts as an
    answer."""
    try:
        done = subprocess.run(  # noqa: S603  # nothing of it comes from a client
            argv, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=_ANSWER_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlicingError(f"{' '.join(argv)}: {error}") from None
    listing = argv[-1].startswith("-l")
    if done.returncode != 0 and not (listing and done.returncode == _NOTHING_FOUND):
        raise SlicingError(f"{' '.join(argv)}: {done.stdout.strip() or f'status {done.returncode}'}")
    return done.stdout


_NOTHING_FOUND = 6  # nvidia-smi(1), return value


class MigGpu:
    """The instances of the GPU of that index, as nvidia-smi counts."""

    def __init__(self, gpu: int, run: Run = run_command, dry_run: bool = True, known: Geometry = ()) -> None:
        """Create the device. `known`: its geometry as read from NVML; () to ask nvidia-smi."""
        self.gpu = gpu
        self._known = known
        self.dry_run = dry_run
        self._run = run

    def geometry(self) -> Geometry:
        return self._known or geometry(self._ask("-lgip"), self._ask("-lgipp"), self.gpu)

    def instances(self) -> tuple[Instance, ...]:
        return instances(self._ask("-lgi"), self.gpu)

    def apply(self, wanted: MigPlan) -> tuple[Argv, ...]:
        """Run the plan's commands, or none in a dry run, and return them.

        SlicingError where one fails or what is listed afterwards is not what was planned: instances may then
        have been destroyed or created, as the message says.
        """
        commands = wanted.commands(self.gpu)
        if self.dry_run or not commands:
            return commands
        expected = {(each.start, each.profile) for each in set(self.instances()) - set(wanted.destroy)}
        expected |= {(each.start, each.profile.name) for each in wanted.create}
        said = ""
        try:
            for command in commands:
                self._run(command)
        except SlicingError as error:
            said = f"; {error}"
        listed = {(each.start, each.profile) for each in self.instances()}
        if listed != expected:
            raise SlicingError(f"GPU {self.gpu} has {_layout(listed)}, not {_layout(expected)}{said}")
        return commands

    def _ask(self, listing: str) -> str:
        return self._run(("nvidia-smi", "mig", "-i", str(self.gpu), listing))


class MigInstances:
    """Gives each slice an instance of its own; `uuids` says the MIG device of a GPU instance's id (NVML)."""

    def __init__(self, device: MigGpu, uuids: Callable[[], dict[int, str]]) -> None:
        self._device = device
        self._uuids = uuids
        self._open: dict[str, Share] = {}
        self._instances: dict[str, int] = {}
        self._listed: tuple[Instance, ...] = ()
        self.coming: tuple[str, ...] = ()
        """Profiles of slices that are to be opened next: an instance leaves room for theirs."""
        self._geometry = device.geometry()
        shares = {Share.parse(f"mig:{each.name}"): each.memory_gib for each in self._geometry}
        smallest_first = sorted(shares, key=lambda share: (share.amount, shares[share], share.label))
        tenants = max(profile.instances_max for profile in self._geometry)
        self.guarantee = Guarantee(
            True, tuple(smallest_first), Resize.NEW_INSTANCE, FaultDomain.PROCESS, tenants
        )

    def open(self, spec: SliceSpec) -> Setting:
        """Return an instance that no slice has, else one created beside all others; SlicingError says in a
        dry run what would have to be run."""
        self.guarantee.require(spec, self._open)
        chosen = self._instances.get(spec.name)
        there = self._list()
        if chosen is None or chosen not in {each.id for each in there}:
            free = self._free(spec, there)
            chosen = self._create(spec) if free is None else free
        uuid = self._uuids().get(chosen)
        if uuid is None:
            raise SlicingError(f"slice {spec.name}: GPU instance {chosen} has no MIG device")
        self._open[spec.name] = spec.share
        self._instances[spec.name] = chosen
        return on_device(spec, uuid)

    def close(self, name: str) -> None:
        """Close the slice; its instance stays for the next slice of its size."""
        self._open.pop(name, None)
        self._instances.pop(name, None)

    def stop(self) -> None:
        """Forget the slices; the instances belong to the device, so they stay."""
        self._open.clear()
        self._instances.clear()

    @property
    def layout(self) -> MigLayout:
        """The instances as they were last listed, and those that slices have. Another thread may ask."""
        return MigLayout(self._geometry, self._listed, dict(self._instances))

    def rearrange(self, want: Sequence[str]) -> tuple[Argv, ...]:
        """Give the GPU exactly the profiles `want`, keeping what open slices have; what was run, or in a dry
        run would be."""
        done = self._device.apply(plan(self._geometry, self._list(), want, self._taken()))
        self._list()
        return done

    def _list(self) -> tuple[Instance, ...]:
        self._listed = self._device.instances()
        return self._listed

    def _beside(self, before: Sequence[Instance], spec: SliceSpec) -> MigPlan:
        """Return the plan for one more instance, and for those that are coming if all fit.

        All that are there stay; if there is no room, those that a slice has. Raise SlicingError if none fits.
        """
        taken = [each for each in before if each.id in self._taken()]
        free = Counter(each.profile for each in before if each not in taken)
        kept = [(before, free)] if self._device.dry_run else [(before, free), (taken, Counter[str]())]
        first: SlicingError | None = None
        for coming in (self.coming, ()) if self.coming else ((),):
            for stay, unused in kept:
                want = [each.profile for each in stay] + [spec.share.profile]
                want += (Counter(coming) - unused).elements()
                try:
                    return plan(self._geometry, before, want, [each.id for each in stay])
                except SlicingError as error:
                    first = first or error
        raise first or SlicingError(f"slice {spec.name}: no layout has {spec.share.profile}")

    def _taken(self) -> Collection[int]:
        return self._instances.values()

    def _free(self, spec: SliceSpec, there: Sequence[Instance]) -> int | None:
        taken = self._taken()
        free = (each for each in there if each.id not in taken)
        return next((each.id for each in free if each.profile == spec.share.profile), None)

    def _create(self, spec: SliceSpec) -> int:
        """Create an instance beside all others. If there is no room, replace instances that no slice uses."""
        before = self._listed
        commands = self._device.apply(self._beside(before, spec))
        if self._device.dry_run:
            said = "; ".join(" ".join(command) for command in commands)
            raise SlicingError(
                f"slice {spec.name}: no {spec.share.profile} is free; this would make one: {said}"
            )
        new = {*self._list()} - {*before}
        return next(each.id for each in sorted(new) if each.profile == spec.share.profile)


class GivenInstance:
    """Gives the one MIG device that is visible to one slice: nothing of its GPU is listed or changed."""

    def __init__(self, uuid: str, share: Share) -> None:
        self._uuid = uuid
        self._open: dict[str, Share] = {}
        self.guarantee = Guarantee(True, (share,), Resize.NEW_INSTANCE, FaultDomain.PROCESS, 1)

    def open(self, spec: SliceSpec) -> Setting:
        self.guarantee.require(spec, self._open)
        self._open[spec.name] = spec.share
        return on_device(spec, self._uuid)

    def close(self, name: str) -> None:
        """Let another slice have the instance."""
        self._open.pop(name, None)

    def stop(self) -> None:
        """Let another slice have the instance, which stays."""
        self._open.clear()


def _layout(placed: Collection[tuple[int, str]]) -> str:
    return ", ".join(f"{profile} at {start}" for start, profile in sorted(placed)) or "no instance"
