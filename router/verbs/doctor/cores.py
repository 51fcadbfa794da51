"""The cores of the machine: how many, for how long, on which nodes, by which clock and at which speed."""

from itertools import chain

from router.settings import Settings
from router.settings.machine.cgroups import quota
from router.verbs.doctor.finding import Finding, listed, ok, warning
from router.verbs.doctor.machine import Machine, cpu_slices, text

_STEADY = {"tsc": "the processor's own", "arch_sys_counter": "the processor's own"}
_NODES = "devices/system/node"
_CLOCK = "devices/system/clocksource/clocksource0/current_clocksource"


def check_cores(machine: Machine, settings: Settings | None) -> Finding:
    """Return whether each slice has cores of its own among those that this process may use."""
    slices = cpu_slices(settings)
    pinned = list(chain.from_iterable(each.cores for each in slices))
    shared = sorted({core for core in pinned if pinned.count(core) > 1})
    count = f"{len(machine.cores)} {'core' if len(machine.cores) == 1 else 'cores'} may be used"
    if shared:
        sentence = f"{count}, and slices share core {listed([str(core) for core in shared])}"
        return warning("cores", sentence, "give each slice cores of its own, or take fewer slices")
    if not slices:
        return ok("cores", count)
    used = len(set(pinned)) if all(each.cores for each in slices) else "all of them"
    return ok("cores", f"{count}, and slices compute on {used}")


def check_quota(machine: Machine, settings: Settings | None) -> Finding:
    """Return whether the container may use as much time as the slices' cores have."""
    allowed = quota(machine.proc, machine.cgroups)
    if allowed is None:
        return ok("quota", "no control group limits the time on cores")
    pinned = {core for each in cpu_slices(settings) for core in each.cores}
    needed = len(pinned) or len(machine.cores)
    if allowed < needed:
        sentence = f"the container has the time of {allowed:g} cores, and {needed} are used"
        cure = "raise the limit (docker --cpus, resources.limits.cpu), or give slices fewer cores"
        return warning("quota", f"{sentence}: the kernel stops workers in their batches", cure)
    return ok("quota", f"the container has the time of {allowed:g} cores")


def check_nodes(machine: Machine, settings: Settings | None) -> Finding:
    """Return whether each slice stays within one memory node."""
    nodes = {
        int(folder.name.removeprefix("node")): core_list(text(folder / "cpulist"))
        for folder in sorted((machine.sys / _NODES).glob("node[0-9]*"))
    }
    nodes = {number: cores for number, cores in nodes.items() if cores}
    if len(nodes) < 2:
        return ok("numa", "all cores have the same memory node")
    across = [
        each.name
        for each in cpu_slices(settings)
        if sum(bool(cores.intersection(each.cores)) for cores in nodes.values()) > 1
    ]
    if across:
        several = len(across) > 1
        sentence = f"slice{'s' * several} {listed(across)} {'have' if several else 'has'} cores of two nodes"
        return warning(
            "numa", f"{sentence}: memory is slower from afar", "list cores of one node: cores: [0, 1]"
        )
    return ok("numa", f"{len(nodes)} memory nodes, and no slice is on two of them")


def check_clock(machine: Machine) -> Finding:
    """Return whether the kernel reads its clock without leaving the process."""
    source = text(machine.sys / _CLOCK)
    if source in _STEADY or not source:
        what = (
            f"the kernel's clock is {source}, {_STEADY[source]}"
            if source
            else "the kernel names no clock source"
        )
        return ok("clock", what)
    cure = "boot with tsc=reliable, or choose a kind of machine with a steady tsc"
    return warning("clock", f"the kernel's clock is {source}: each reading may cost a microsecond", cure)


def check_governor(machine: Machine) -> Finding:
    """Return whether cores keep their speed while they are idle."""
    governors = {
        governor
        for core in machine.cores
        if (governor := text(machine.sys / f"devices/system/cpu/cpu{core}/cpufreq/scaling_governor"))
    }
    slow = sorted(governors - {"performance"})
    if slow:
        sentence = f"the cores' governor is {listed(slow)}: the first requests after a pause take longer"
        return warning("governor", sentence, "cpupower frequency-set -g performance")
    return ok("governor", "cores keep their speed" if governors else "this machine shows no governor")


def core_list(listing: str) -> set[int]:
    """Return the cores of the kernel's "0-3,8"; none of what is no such list."""
    found: set[int] = set()
    for part in filter(None, listing.split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            return set()
        found.update(range(int(first), int(last or first) + 1))
    return found
