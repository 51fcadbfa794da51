"""Every metric of the gateway and its labels, in one place; docs/metrics.md says what each of them means."""

from router.observing.telemetry.counting.counts import UNKNOWN, Counters
from router.observing.telemetry.counting.lag import LoopLag
from router.observing.telemetry.counting.tenants import TenantCounters
from router.observing.telemetry.exposition import Present, RedisPresent
from router.observing.telemetry.families.cells import CellsPresent
from router.observing.telemetry.families.condition import AuthPresent, ConditionPresent
from router.observing.telemetry.families.scaling import ScalePresent, demand
from router.observing.telemetry.observer import Telemetry
from router.observing.telemetry.server import MetricsServer

__all__ = [
    "UNKNOWN",
    "AuthPresent",
    "CellsPresent",
    "ConditionPresent",
    "Counters",
    "LoopLag",
    "MetricsServer",
    "Present",
    "RedisPresent",
    "ScalePresent",
    "Telemetry",
    "TenantCounters",
    "demand",
]
