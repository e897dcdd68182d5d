"""Prometheus metrics of one API process, in a registry of their own."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector


class Metrics:
    """What an API process counts. Routes are labelled by their template, never by the path that was asked for."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._requests = Counter(
            "zoo_http_requests_total", "Requests answered.", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "zoo_http_request_seconds", "Time to the end of the response.", ["method", "route"], registry=self.registry
        )
        self._ready = Gauge("zoo_ready", "1 where the last readiness check passed.", ["check"], registry=self.registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)

    def checked(self, check: str, ok: bool) -> None:
        """Keep the result of one readiness check."""
        self._ready.labels(check).set(ok)

    def render(self) -> bytes:
        """All metrics in the text format."""
        return generate_latest(self.registry)
