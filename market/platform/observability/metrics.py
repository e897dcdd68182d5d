"""Prometheus metrics of one API process."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector


class Metrics:
    """Metrics with their registry; routes are labelled by template, never by path."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        self._requests = Counter(
            "zoo_http_requests_total", "Requests answered.", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "zoo_http_request_seconds", "Time to the end of the response.", ["method", "route"], registry=self.registry
        )
        self._ready = gauge("zoo_ready", "1 where the last readiness check passed.", ["check"])

        self._reconciled = gauge("zoo_ledger_reconciled", "1 where the ledger equals the chain.")
        self._difference = gauge("zoo_ledger_difference_wei", "Sum of all differences between ledger and chain.")
        self._reconciled_block = gauge("zoo_ledger_reconciled_block", "Final block of the last comparison.")
        self._reconciled_at = gauge("zoo_ledger_reconciled_timestamp_seconds", "Time of the last comparison.")
        self._waiting = gauge("zoo_transactions_waiting", "Blocked transactions, by reason.", ["reason"])

        self._outstanding = gauge(
            "zoo_acknowledgements_outstanding", "Acknowledged commitments whose window is not final on chain."
        )
        self._late = gauge("zoo_acknowledgements_late", "Those of them past their inclusion deadline.")
        self._claims = gauge("zoo_omission_claims_open", "Open omission claims on chain.")
        self._void = gauge("zoo_settlements_void", "Settlement batches that were vetoed or refused.", ["reason"])
        self._void_rewards = gauge("zoo_reward_posts_void", "Posts of rewards that were vetoed or refused.", ["reason"])
        self._unposted = gauge("zoo_reward_epochs_unposted", "Past epochs without a valid post.")

        self._alarms = gauge("zoo_governance_alarms", "Governance events neither sent from here nor acknowledged.")

        self._jobs = gauge("zoo_jobs", "Jobs, by status.", ["status"])
        self._providers = gauge("zoo_providers", "Providers and verifiers, by status.", ["kind", "status"])

    def market_holds(self, jobs: Mapping[str, int], providers: Mapping[tuple[str, str], int]) -> None:
        """Set the numbers of jobs by status and of nodes by (kind, status)."""
        self._jobs.clear()
        for status, count in jobs.items():
            self._jobs.labels(status).set(count)
        self._providers.clear()
        for labels, count in providers.items():
            self._providers.labels(*labels).set(count)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)

    def checked(self, check: str, ok: bool) -> None:
        self._ready.labels(check).set(ok)

    def reconciled(self, agrees: bool, difference_wei: int, block: int, at: datetime) -> None:
        """Set the result of the last comparison of ledger and chain."""
        self._reconciled.set(agrees)
        self._difference.set(difference_wei)
        self._reconciled_block.set(block)
        self._reconciled_at.set(at.timestamp())

    def transactions_wait(self, reasons: Mapping[str, int]) -> None:
        self._waiting.clear()
        for reason, count in reasons.items():
            self._waiting.labels(reason).set(count)

    def acknowledgements(self, outstanding: int, late: int, open_claims: int) -> None:
        self._outstanding.set(outstanding)
        self._late.set(late)
        self._claims.set(open_claims)

    def governance_alarms(self, count: int) -> None:
        self._alarms.set(count)

    def settlements_void(self, reasons: Mapping[str, int]) -> None:
        for reason, count in reasons.items():
            self._void.labels(reason).set(count)

    def rewards(self, void: Mapping[str, int], unposted: int) -> None:
        for reason, count in void.items():
            self._void_rewards.labels(reason).set(count)
        self._unposted.set(unposted)

    def render(self) -> bytes:
        return generate_latest(self.registry)
