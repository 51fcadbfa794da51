"""The slices on GPUs in sentences, device by device, for `penstock check` and the start of the gateway."""

from collections import Counter
from collections.abc import Iterator, Sequence

from router.settings import Settings
from serving.values.slice_specs import SliceSpec


def gpu_lines(settings: Settings) -> Iterator[str]:
    """Yield a line for each device that slices are on; rehearsed devices that are alike have one line."""
    by_device: dict[str, list[SliceSpec]] = {}
    for each in settings.slices:
        if each.device != "cpu" and not each.node:
            by_device.setdefault(each.device, []).append(each)
    alike: dict[tuple[str, str], list[str]] = {}
    for device, specs in by_device.items():
        if specs[0].rehearsed:
            alike.setdefault((specs[0].kind, _shares(specs)), []).append(device)
        else:
            yield f"{device} ({specs[0].kind}): {_shares(specs)}, as {_named(specs)}"
    for (kind, shares), devices in alike.items():
        several = devices[0] if len(devices) == 1 else f"{devices[0]} to {devices[-1]}, each"
        yield f"rehearsed, {several} ({kind}): {shares}; no model is loaded, answers come as profiles say"


def _shares(specs: Sequence[SliceSpec]) -> str:
    counts = Counter(str(each.share) for each in specs)
    return ", ".join(share if count == 1 else f"{count} times {share}" for share, count in counts.items())


def _named(specs: Sequence[SliceSpec]) -> str:
    names = [each.name for each in specs]
    return ", ".join(names) if len(names) < 4 else f"{names[0]} to {names[-1]}"
