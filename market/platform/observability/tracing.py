"""Whether this process sends traces: only if an OTLP endpoint is configured, by OpenTelemetry's own variables.

Without one, nothing of it is imported and nothing is wrapped.
"""

import logging
import os
from collections.abc import Sequence

from structlog.typing import Processor

UNTRACED = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths of the API that machines ask all the time."""


_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


_log = logging.getLogger(__name__)


def configure_tracing(service: str) -> Sequence[Processor]:
    """Send traces as ``service`` if an endpoint is configured; the processors that put trace ids into log lines.

    ``OTEL_SERVICE_NAME`` overrides the name. A second call changes nothing. Packages that are missing are no reason not
    to serve: that is said in the log.
    """
    if not _wanted():
        return ()
    try:
        from market.platform.observability import spans
    except ModuleNotFoundError as error:
        _log.warning("no traces are sent: %s is missing; install zoo-compute[otel]", error.name)
        return ()
    spans.install(service)
    return (spans.add_trace_ids,)


def _wanted() -> bool:
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    return not off and any(os.environ.get(name) for name in _ENDPOINTS)
