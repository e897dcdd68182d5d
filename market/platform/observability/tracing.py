"""Configuration of traces: sent only if OpenTelemetry's variables name an OTLP endpoint."""

import logging
import os
from collections.abc import Sequence

from structlog.typing import Processor

UNTRACED = frozenset({"/healthz", "/readyz", "/metrics"})
"""API paths that monitoring polls."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_log = logging.getLogger(__name__)


def configure_tracing(service: str) -> Sequence[Processor]:
    """Send traces as ``service`` if an endpoint is configured; return processors for trace ids.

    ``OTEL_SERVICE_NAME`` overrides the name. A second call has no effect. A missing package only logs a warning.
    """
    if not _wanted():
        return ()
    try:
        from market.platform.observability import spans
    except ModuleNotFoundError as error:
        _log.warning("traces_not_sent: %s is missing; install zoo-compute[otel]", error.name)
        return ()
    spans.install(service)
    return (spans.add_trace_ids,)


def _wanted() -> bool:
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    return not off and any(os.environ.get(name) for name in _ENDPOINTS)
