"""Tracing as the settings have it, connected with what counts requests."""

from collections.abc import Callable

from router.observing.telemetry import Telemetry
from router.observing.tracing.spans import Spans
from router.observing.tracing.tracing import Tracing
from router.observing.tracing.writer import Writer
from router.settings.door.tracing import TracingSettings
from serving.runtime.calls.outgoing import Outgoing


def begin_tracing(
    settings: TracingSettings | None,
    telemetry: Telemetry,
    outgoing: Outgoing,
    version_of: Callable[[str], str],
) -> Tracing | None:
    """Trace the requests that `telemetry` counts from now on; its epoch is known. Their traces go out by
    `outgoing`. None without settings. `version_of`: returns the version of a served model, as answers state
    it."""
    if settings is None:
        return None
    sender = Spans(settings.otlp, settings.service) if settings.otlp else None
    tracing = Tracing(settings, telemetry.epoch_us, Writer(sender))
    tracing.version_of = version_of
    telemetry.trace, outgoing.below = tracing.ended, tracing.below
    return tracing
