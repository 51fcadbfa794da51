"""`penstock check`: everything that is wrong with a settings file, and what it would serve."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from router.operations.standing import standing
from router.settings import Problem, Settings, SettingsError, read_settings
from serving.specs import DEFAULT_TENANT, RecordingSpec, ServedModel, SliceSpec, TenantSpec

Measured = Callable[[ServedModel, SliceSpec, str], float | None]
"""The measured latency in microseconds of one row (of the largest size) of a variant on a slice, or None."""


@dataclass(frozen=True, slots=True)
class Report:
    """What `check` found. `notes` and `plan` (one line a model, one each for tenants, cache and recording
    where there are any) are sentences for the operator."""

    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether the gateway would start with this file and can keep its promises."""
        return not self.errors

    def __str__(self) -> str:
        lines = [f"error: {problem}" for problem in self.errors]
        lines += [f"warning: {problem}" for problem in self.warnings]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, *self.plan])


def check(path: Path, measured_in: Callable[[Path], Measured]) -> Report:
    """Read the file as `penstock serve` would and hold its SLOs against what was measured.

    `measured_in` opens the settings' folder of profiles.
    """
    try:
        settings, findings = read_settings(path)
    except SettingsError as error:
        return Report(error.problems, error.warnings)
    applied = standing(settings)[1]
    notes = [applied] if applied else []
    measured = measured_in(settings.profiles)
    slices = {each.name: each for each in settings.slices}
    for index, model in enumerate(settings.models):
        latencies = _Latencies(model, [slices[name] for name in model.slices], measured)
        loc = ("models", index, "slo_ms")
        if latencies.none_in_time:
            findings.add(loc, latencies.slow_sentence(model.answering_variant))
        else:
            for variant in latencies.slow_variants:
                findings.warn(loc, latencies.slow_sentence(variant))
        if unmeasured := latencies.unmeasured_sentence():
            notes.append(unmeasured)
    return Report(
        errors=tuple(sorted(findings.problems)),
        warnings=tuple(sorted(findings.warnings)),
        notes=tuple(notes),
        plan=(
            *map(plan_line, settings.models),
            *tenant_lines(settings.tenants),
            *cache_lines(settings),
            *recording_lines(settings.recording),
        ),
    )


class _Latencies:
    """What one row of a model costs on its slices, beside the model's SLO."""

    def __init__(self, model: ServedModel, slices: Sequence[SliceSpec], measured: Measured) -> None:
        self._model = model
        self._names = [each.name for each in slices]
        self._table_us = {
            variant.name: {each.name: measured(model, each, variant.name) for each in slices}
            for variant in model.spec.variants
        }

    @property
    def none_in_time(self) -> bool:
        """Whether the answering variant was measured on every slice and is too slow on each."""
        answering = self._table_us[self._model.answering_variant]
        return all(us is not None and us > self._model.slo_us for us in answering.values())

    @property
    def slow_variants(self) -> list[str]:
        """The served variants that are too slow on some slice."""
        return [name for name in self._model.variants if self._slowest(name)[0] > self._model.slo_us]

    def slow_sentence(self, variant: str) -> str:
        """Names the SLO and the latency, and what would help."""
        model = self._model
        latency_us, place = self._slowest(variant)
        text = (
            f"{_slo(model)} is below {model.name} {variant}'s measured {_ms(latency_us)} "
            f"for one row on slice {place}"
        )
        if variant != model.answering_variant:
            return f"{text}; a request that pins this variant will be late"
        fast = [
            (each.accuracy or 0.0, each.name)
            for each in model.spec.variants
            if 0 < self._slowest(each.name)[0] <= model.slo_us
        ]
        other = ""
        if fast:
            name = max(fast)[1]
            other = f" or answer with a faster variant ({name}: {_ms(self._slowest(name)[0])})"
        return f"{text}; raise it above {_ms(latency_us)}{other}"

    def unmeasured_sentence(self) -> str:
        """Which served variants have no profile on which slices; "" where all have one."""
        model = self._model
        missing = [
            f"{variant} on {place}"
            for variant in model.variants
            for place in self._names
            if self._table_us[variant][place] is None
        ]
        if not missing:
            return ""
        what = ", ".join(missing) if len(missing) < len(model.variants) * len(self._names) else "all variants"
        return f"{model.name}: not yet measured ({what}): will be swept at the first start"

    def _slowest(self, variant: str) -> tuple[float, str]:
        known = [(us, place) for place, us in self._table_us[variant].items() if us is not None]
        return max(known, default=(0.0, ""))


def plan_line(model: ServedModel) -> str:
    """One line of the plan: SLO, largest batch, slices, variants with accuracy; `*` answers by default."""
    variants = []
    for name in model.variants:
        accuracy = model.spec.variant(name).accuracy
        star = "*" if name == model.answering_variant else ""
        variants.append(f"{name}{star}" + (f" {accuracy:.3f}" if accuracy is not None else ""))
    rows = min(model.batching.size or model.spec.batch_max, model.spec.batch_max)
    metric = f" ({model.spec.accuracy_metric})" if model.spec.accuracy_metric else ""
    return (
        f"{model.name}: SLO {_slo(model)}, batches of up to {rows} rows, on {', '.join(model.slices)}; "
        f"variants {', '.join(variants)}{metric}"
    )


def tenant_lines(tenants: Sequence[TenantSpec]) -> list[str]:
    """One line with all tenants, the default one too; none where the settings list none."""
    if not tenants:
        return []
    default = [] if any(each.name == DEFAULT_TENANT for each in tenants) else [TenantSpec(DEFAULT_TENANT)]
    shares = [
        f"{each.name} (weight {each.weight:g}, priority {each.priority})" for each in (*tenants, *default)
    ]
    return [f"tenants: {', '.join(shares)}"]


def cache_lines(settings: Settings) -> list[str]:
    """One line that says of which models answers are kept; none where of none."""
    names = [model.name for model in settings.models if model.cache]
    if settings.cache is None or not names:
        return []
    size_mb, ttl_s = settings.cache.memory_bytes / (1 << 20), settings.cache.ttl_us / 1e6
    shared = ", shared by all tenants" if settings.cache.shared else ""
    redis = settings.cache.redis
    if redis is not None:
        shared += f"; with other gateways through {redis.place} as {redis.namespace}"
    return [f"cache: answers of {', '.join(names)}, at most {size_mb:g} MB, for {ttl_s:g} s{shared}"]


def recording_lines(recording: RecordingSpec | None) -> list[str]:
    """One line that says where arrivals are recorded; none where they are not."""
    if recording is None:
        return []
    size_mb = recording.file_bytes / (1 << 20)
    return [f"recording: arrivals to {recording.folder}, at most {recording.files} files of {size_mb:g} MB"]


def _slo(model: ServedModel) -> str:
    return f"{model.slo_us / 1000:.10g} ms"


def _ms(latency_us: float) -> str:
    """Milliseconds to three digits, which is more than a measurement repeats to."""
    return f"{float(f'{latency_us / 1000:.3g}'):.10g} ms"
