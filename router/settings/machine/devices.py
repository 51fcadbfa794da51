"""`devices:` as DeviceSpecs: what `penstock place` may use. Without it that is this machine."""

from collections.abc import Sequence

from router.settings.machine.memory import usable_memory_bytes
from router.settings.machine.prices import Prices, device_price, machine_kind
from router.settings.machine.rehearsal import read_rehearsal
from router.settings.machine.slices import usable_cores
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, fault, one_of, shown
from router.settings.values.schema import DeviceSection
from serving.policy.placement.terms.geometry import known_geometry
from serving.values.slice_specs import DeviceSpec
from serving.values.specs import ServedModel

MIG_KINDS = "an A30, A100, H100, GH200, H200 or RTX PRO 6000 (gpu-nvidia-h200), or divide: mps or whole"
_CPU, _GPU = "cpu-", "gpu-"
_WAYS = {_CPU: ("cores",), _GPU: ("mps", "mig", "whole")}
"""How devices can be divided, by how their kind begins; the first is the default."""


def read_devices(findings: Findings, prices: Prices) -> tuple[DeviceSpec, ...]:
    """Return the entries that are sound, in the order of the file; none without `devices:`. `prices`: for
    those that state none."""
    entries = findings.document.at(("devices",))
    count = len(entries) if isinstance(entries, list) else 0
    found: list[DeviceSpec] = []
    owners: dict[str, int] = {}  # of each device's name, the entry
    for index in range(count):
        loc: Loc = ("devices", index)
        section = findings.parse(DeviceSection, loc)
        spec = _read_device(findings, loc, section, prices) if section else None
        if spec is None:
            continue
        twice = next((name for name in spec.names if name in owners), None)
        if twice is not None:
            message = f"{shown(twice)} is a device of devices[{owners[twice]}] already; expected another name"
            findings.add((*loc, "name"), message)
        for name in spec.names:
            owners.setdefault(name, index)
        found.append(spec)
    return tuple(found)


def _read_device(findings: Findings, loc: Loc, section: DeviceSection, prices: Prices) -> DeviceSpec | None:
    """Return the device with what its entry leaves out; None where its kind is none."""
    here = machine_kind()
    kind = section.kind or here
    ways = next((ways for prefix, ways in _WAYS.items() if kind.startswith(prefix)), None)
    if ways is None:
        expected = "a device kind as profiles/ has folders of, such as cpu-amd-epyc-f25m17 or gpu-nvidia-h200"
        findings.add((*loc, "kind"), fault("no kind of device", kind, expected))
        return None
    divide = section.divide or ways[0]
    if divide not in ways:
        what = "no way to divide a CPU" if ways == _WAYS[_CPU] else "no way to divide a GPU"
        findings.add((*loc, "divide"), fault(what, divide, one_of(ways)))
    elif divide == "mig" and known_geometry(kind) is None:
        message = fault("no MIG instances are known of this kind", kind, MIG_KINDS)
        findings.add((*loc, "divide"), message)
    _check_sizes(findings, loc, section, kind, divide)
    cores, memory_bytes = section.cores or 0, round((section.memory_gb or 0) * (1 << 30))
    if kind == here:
        cores, memory_bytes = cores or len(usable_cores()), memory_bytes or usable_memory_bytes()
    price = device_price(prices, kind, cores) if section.price is None else section.price
    rehearsed = section.rehearse is not False or (findings.rehearse and kind.startswith(_GPU))
    rehearsal = read_rehearsal(findings, (*loc, "rehearse"), section.rehearse)
    return DeviceSpec(
        section.name, kind, divide, section.count, cores, memory_bytes, price, section.domain or "",
        rehearsed, rehearsal,
    )  # fmt: skip


def _check_sizes(findings: Findings, loc: Loc, section: DeviceSection, kind: str, divide: str) -> None:
    """Check that there are cores if they count, and no numbers if they do not."""
    if kind.startswith(_GPU) and section.cores is not None:
        message = fault("a GPU has no cores that could be shared out", section.cores, "no such key")
        findings.add((*loc, "cores"), message, at_key=True)
    elif kind.startswith(_CPU) and section.cores is None and kind != machine_kind():
        message = f"{kind} is not this machine's CPU; expected a key `cores`, how many one of them has"
        findings.add(loc, message)
    if divide == "mig" and section.memory_gb is not None:
        expected = "no such key: each MIG instance has the memory of its profile"
        message = fault("memory of a device that is divided by mig", section.memory_gb, expected)
        findings.add((*loc, "memory_gb"), message, at_key=True)


def check_domains(
    findings: Findings, models: Sequence[ServedModel | None], devices: Sequence[DeviceSpec]
) -> None:
    """Warn of models that need more failure domains than `devices:` has."""
    if not devices or not findings.sound(("devices",)):
        return
    there = len({each.domain or name for each in devices for name in each.names})
    for index, model in enumerate(models):
        if model is not None and model.domains_min > there:
            message = f"the devices are in {there} failure domains; no placement can put {model.name} into "
            findings.warn(("models", index, "domains"), f"{message}{model.domains_min}")
