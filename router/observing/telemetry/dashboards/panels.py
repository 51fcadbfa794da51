"""The panels of the dashboard, by rows: what each shows, and by which queries.

`$model` and `$instance` are the dashboard's variables; `$__rate_interval` is Grafana's.
"""

from dataclasses import dataclass
from typing import Final

WIDE, HALF, THIRD, QUARTER = 24, 12, 8, 6
"""Widths of panels; a row has 24."""
SHARE, SECONDS, PER_SECOND, BYTES, PLAIN = "percentunit", "s", "reqps", "bytes", "short"
"""Units, as Grafana names them."""

_HERE: Final = 'instance=~"$instance"'
_OF: Final = f'model=~"$model",{_HERE}'
_OURS: Final = 'job=~".*penstock.*"'
_RATE: Final = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL query; `legend`: how Grafana names each series."""

    promql: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """`kind`: timeseries, stat or state-timeline. `stacked`: the series add up. `bad_above`, `bad_below`:
    from where a value is shown as bad."""

    title: str
    meaning: str
    queries: tuple[Query, ...]
    unit: str = PLAIN
    width: int = HALF
    kind: str = "timeseries"
    stacked: bool = False
    bad_above: float | None = None
    bad_below: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A heading with its panels; `open`: whether the panels are shown at first."""

    title: str
    panels: tuple[Panel, ...]
    open: bool = True


def _rate(metric: str, by: str, more: str = "", of: str = _OF) -> str:
    matchers = ",".join(filter(None, (of, more)))
    return f"sum by ({by}) (rate({metric}{{{matchers}}}[{_RATE}]))"


def _quantile(share: float, metric: str, by: str = "model", of: str = _OF) -> str:
    inner = f"sum by (le,{by}) (rate({metric}_bucket{{{of}}}[{_RATE}]))" if by else (
        f"sum by (le) (rate({metric}_bucket{{{of}}}[{_RATE}]))"
    )  # fmt: skip
    return f"histogram_quantile({share:g}, {inner})"


def _mean(metric: str, by: str) -> str:
    return f"{_rate(f'{metric}_sum', by)} / {_rate(f'{metric}_count', by)}"


def _burn(window: str) -> str:
    return f'max by (model) (penstock_slo_burn_rate{{{_OF},window="{window}"}})'


_GOOD, _OFFERED = "penstock_goodput_requests_total", "penstock_offered_requests_total"

PROMISES: Final = Row(
    "Is every promise kept?",
    (
        Panel(
            "In time", "Offered requests that were answered within their SLO.",
            (Query(f"{_rate(_GOOD, 'model')} / {_rate(_OFFERED, 'model')}", "{{model}}"),),
            SHARE, HALF, bad_below=0.99,
        ),
        Panel(
            "Burn rate", "How fast the budget of misses is used up; at 1 it lasts exactly. The worst tenant.",
            tuple(
                Query(_burn(window), f"{{{{model}}}} {window}")
                for window in ("5m", "1h", "6h")
            ),
            PLAIN, HALF, bad_above=1,
        ),
        Panel(
            "Goodput", "Requests answered in time, a second.",
            (Query(_rate(_GOOD, "model"), "{{model}}"),), PER_SECOND, THIRD,
        ),
        Panel(
            "Not completed, by reason", "Requests that were refused, given up or failed.",
            (Query(_rate("penstock_requests_total", "reason", 'outcome!="completed"'), "{{reason}}"),),
            PER_SECOND, THIRD, stacked=True,
        ),
        Panel(
            "By tenant, in time", "Each tenant's share of requests in time.",
            (Query(f"{_rate(_GOOD, 'tenant')} / {_rate(_OFFERED, 'tenant')}", "{{tenant}}"),),
            SHARE, THIRD, bad_below=0.99,
        ),
    ),
)  # fmt: skip
LOAD: Final = Row(
    "Load and capacity",
    (
        Panel(
            "Asked", "Requests a second, as they came.",
            (Query(_rate("penstock_requests_total", "model"), "{{model}}"),), PER_SECOND, THIRD,
        ),
        Panel(
            "Pressure", "What comes over what the ready replicas carry within the SLO.",
            (Query(f"max by (model) (penstock_slo_pressure{{{_OF}}})", "{{model}}"),),
            PLAIN, THIRD, bad_above=1,
        ),
        Panel(
            "Waiting rows", "Rows in the queues.",
            (Query(f"sum by (model) (penstock_queue_rows{{{_OF}}})", "{{model}}"),), PLAIN, THIRD,
        ),
        Panel(
            "Busy slices", "The share of its time in which a slice computes.",
            (Query(_rate("penstock_slice_busy_seconds_total", "instance,slice", of=_HERE), "{{slice}}"),),
            SHARE, HALF, bad_above=0.95,
        ),
        Panel(
            "Replicas", "Replicas by their state.",
            (
                Query(f"sum by (model,state) (penstock_replicas{{{_OF}}})", "{{model}} {{state}}"),
                Query(f"max by (model) (penstock_desired_replicas{{{_OF}}})", "{{model}} desired"),
            ),
            PLAIN, HALF,
        ),
    ),
)  # fmt: skip
TIME: Final = Row(
    "Where time goes",
    (
        Panel(
            "Latency", "Arrival to answer of completed requests, beside the SLO.",
            (
                Query(_quantile(0.5, "penstock_request_duration_seconds"), "{{model}} p50"),
                Query(_quantile(0.99, "penstock_request_duration_seconds"), "{{model}} p99"),
                Query(f"max by (model) (penstock_slo_latency_seconds{{{_OF}}})", "{{model}} SLO"),
            ),
            SECONDS, HALF,
        ),
        Panel(
            "Phases, mean", "Parsing, waiting for a slice, filling the batch, computing.",
            (
                Query(_mean("penstock_request_parse_seconds", "model"), "{{model}} parse"),
                Query(_mean("penstock_queue_wait_seconds", "model"), "{{model}} queue"),
                Query(_mean("penstock_batch_wait_seconds", "model"), "{{model}} fill"),
                Query(_mean("penstock_batch_compute_seconds", "model"), "{{model}} compute"),
            ),
            SECONDS, HALF, stacked=True,
        ),
        Panel(
            "Rows in a batch, mean", "How full batches are.",
            (Query(_mean("penstock_batch_rows", "model,variant"), "{{model}} {{variant}}"),), PLAIN, THIRD,
        ),
        Panel(
            "Batches over their prediction", "1 is as predicted; p50 and p99.",
            (
                Query(_quantile(0.5, "penstock_batch_observed_over_predicted_ratio"), "{{model}} p50"),
                Query(_quantile(0.99, "penstock_batch_observed_over_predicted_ratio"), "{{model}} p99"),
            ),
            PLAIN, THIRD, bad_above=2,
        ),
        Panel(
            "Profiles that are not borne out", "What batches take over their profile, where it is not fresh.",
            (
                Query(
                    f'penstock_profile_ratio{{{_OF}}} and on (instance,model,variant,slice) '
                    f'(penstock_profile_state{{{_OF},state!="fresh"}} == 1)',
                    "{{model}} {{variant}} {{slice}}",
                ),
            ),
            PLAIN, THIRD,
        ),
    ),
)  # fmt: skip
VARIANTS: Final = Row(
    "Variants and answers",
    (
        Panel(
            "Answers by variant", "Completed requests by the variant that answered.",
            (Query(_rate("penstock_answers_total", "model,variant"), "{{model}} {{variant}}"),),
            PER_SECOND, THIRD, stacked=True,
        ),
        Panel(
            "Accuracy of answers", "Mean measured accuracy of the variants that answered.",
            (
                Query(
                    f"{_rate('penstock_answer_accuracy_total', 'model')} / "
                    f"{_rate('penstock_answer_measured_rows_total', 'model')}",
                    "{{model}}",
                ),
            ),
            SHARE, THIRD,
        ),
        Panel(
            "Downgraded", "Requests that a less good variant answered, by reason.",
            (Query(_rate("penstock_downgraded_requests_total", "model,reason"), "{{model}} {{reason}}"),),
            PER_SECOND, THIRD, stacked=True,
        ),
        Panel(
            "Shift of requests", "How far the last hours are from the last days; from 0.2 on it counts.",
            (Query(f"max by (model,kind) (penstock_data_shift{{{_OF}}})", "{{model}} {{kind}}"),),
            PLAIN, WIDE, bad_above=0.2,
        ),
        Panel(
            "Cache", "Requests by what the cache did.",
            (Query(_rate("penstock_cache_requests_total", "model,result"), "{{model}} {{result}}"),),
            PER_SECOND, HALF, stacked=True,
        ),
        Panel(
            "Worth of the cache", "Time that asking the cache saves a request; below 0 it costs more.",
            (Query(f"max by (model) (penstock_cache_worth_seconds{{{_OF}}})", "{{model}}"),),
            SECONDS, HALF, bad_below=0,
        ),
    ),
    open=False,
)  # fmt: skip
MACHINES: Final = Row(
    "Machines",
    (
        Panel(
            "Workers lost", "Workers that were started again.",
            (
                Query(
                    f"sum by (instance,slice) (increase(penstock_worker_restarts_total{{{_HERE}}}[{_RATE}]))",
                    "{{slice}}",
                ),
            ),
            PLAIN, THIRD,
        ),
        Panel(
            "GPU temperature", "Of each GPU that slices use.",
            (Query(f"max by (gpu_uuid) (penstock_gpu_temperature_celsius{{{_HERE}}})", "{{gpu_uuid}}"),),
            "celsius", THIRD,
        ),
        Panel(
            "GPUs usable", "1 where slices may use a GPU.",
            (Query(f"min by (gpu_uuid) (penstock_gpu_usable{{{_HERE}}})", "{{gpu_uuid}}"),),
            PLAIN, THIRD, bad_below=1,
        ),
        Panel(
            "Cost an hour", "By model, where prices are known.",
            (Query(f"sum by (model) (penstock_model_cost_per_hour{{{_OF}}})", "{{model}}"),), PLAIN, HALF,
        ),
        Panel(
            "Nodes", "1 where a node has joined.",
            (Query(f"max by (node) (penstock_node_up{{{_HERE}}})", "{{node}}"),), PLAIN, HALF, bad_below=1,
        ),
    ),
    open=False,
)  # fmt: skip
GATEWAY: Final = Row(
    "The gateway itself",
    (
        Panel(
            "Event loop, p99 lag", "How late a timer of the event loop is.",
            (Query(_quantile(0.99, "penstock_event_loop_lag_seconds", "instance", _HERE), "{{instance}}"),),
            SECONDS, THIRD, bad_above=0.05,
        ),
        Panel(
            "Held memory", "What accepted requests and kept answers hold, beside the limit of requests.",
            (
                Query(f"sum by (of) (penstock_held_bytes{{{_HERE}}})", "{{of}}"),
                Query(f"max (penstock_held_limit_bytes{{{_HERE}}})", "limit"),
            ),
            BYTES, THIRD,
        ),
        Panel(
            "Connections", "Open connections by edge.",
            (Query(f"sum by (edge,place) (penstock_connections{{{_HERE}}})", "{{edge}} {{place}}"),),
            PLAIN, THIRD,
        ),
        Panel(
            "Settings in force", "0 where the latest edit of the file was refused.",
            (
                Query(f"min (penstock_config_last_reload_successful{{{_HERE}}})", "penstock.yaml"),
                Query(f"min (penstock_auth_last_reload_successful{{{_HERE}}})", "keys"),
                Query(f"min (penstock_tls_last_reload_successful{{{_HERE}}})", "certificate"),
            ),
            PLAIN, HALF, bad_below=1,
        ),
        Panel(
            "Processor", "Cores that the gateway's own process uses.",
            (Query(_rate("process_cpu_seconds_total", "instance", _OURS, _HERE), "{{instance}}"),),
            PLAIN, HALF,
        ),
    ),
    open=False,
)  # fmt: skip
ROWS: Final = (PROMISES, LOAD, TIME, VARIANTS, MACHINES, GATEWAY)
