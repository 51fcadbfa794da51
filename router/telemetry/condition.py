"""In what condition the gateway is: its build, what is ready, the settings in force, how busy slices are; as
Prometheus text."""

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

from router.telemetry.counts import escape
from router.telemetry.heading import head
from serving.compiled import is_compiled


@dataclass(frozen=True, slots=True)
class ConditionPresent:
    """Read at a scrape. `ready`: whether each served model is; `variants`: likewise, by (model, variant), of
    those with a replica. `reloaded`: whether the latest edit of the settings is in force, and the Unix time
    in seconds when the file was last found in force."""

    ready: Mapping[str, bool] = field(default_factory=dict)
    variants: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    reloaded: tuple[bool, float] = (True, 0.0)


def blocks(present: ConditionPresent, busy_us: Mapping[str, int]) -> Iterator[str]:
    """`busy_us`: what each slice has computed."""
    yield _build()
    name = "penstock_model_ready"
    yield head(name, "gauge", "1 where a variant of the model can answer, 0 where none can.")
    for model, ready in present.ready.items():
        yield f'{name}{{model="{escape(model)}"}} {ready:d}\n'
    name = "penstock_variant_ready"
    yield head(name, "gauge", "1 where a replica of the variant can take batches, 0 where none can.")
    for (model, variant), ready in present.variants.items():
        yield f'{name}{{model="{escape(model)}",variant="{escape(variant)}"}} {ready:d}\n'
    successful, in_force_s = present.reloaded
    name = "penstock_config_last_reload_successful"
    yield head(name, "gauge", "1 where the latest edit of the settings is in force, 0 where it was refused.")
    yield f"{name} {successful:d}\n"
    name = "penstock_config_last_reload_success_timestamp_seconds"
    yield head(name, "gauge", "Unix time at which the settings were last read and in force.")
    yield f"{name} {in_force_s:.3f}\n"
    name = "penstock_slice_busy_seconds_total"
    yield head(name, "counter", "Time that batches computed on the slice, from a run's start to its end.")
    yield "".join(f'{name}{{slice="{escape(each)}"}} {us / 1e6}\n' for each, us in busy_us.items())


def _build() -> str:
    name = "penstock_build_info"
    decisions = "compiled" if is_compiled() else "interpreted"
    labels = f'version="{version("penstock")}",python="{platform.python_version()}",decisions="{decisions}"'
    return f"{head(name, 'gauge', 'Always 1; its labels say what runs.')}{name}{{{labels}}} 1\n"
