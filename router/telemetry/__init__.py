"""Every metric of the gateway and its labels, in one place; docs/metrics.md says what each of them means."""

from router.telemetry.condition import AuthPresent, ConditionPresent
from router.telemetry.counts import UNKNOWN, Counters
from router.telemetry.exposition import Present, RedisPresent
from router.telemetry.lag import LoopLag
from router.telemetry.observer import Telemetry
from router.telemetry.scaling import ScalePresent, demand
from router.telemetry.server import MetricsServer

__all__ = [
    "UNKNOWN",
    "AuthPresent",
    "ConditionPresent",
    "Counters",
    "LoopLag",
    "MetricsServer",
    "Present",
    "RedisPresent",
    "ScalePresent",
    "Telemetry",
    "demand",
]
