"""Routes of liveness, readiness and metrics."""

import hmac
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, SecretStr
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from market.accounts.errors import NotAuthenticated
from market.chain.service import indexed_head, waiting_intents
from market.chain.views import ChainViews
from market.governance import service as governance
from market.jobs import service as jobs
from market.ledger.reconciliation import last_reconciliation
from market.payments.rewards import service as rewards
from market.payments.settlement.service import void_batches
from market.platform.db.base import utc_now
from market.platform.http.deps import ServicesDep
from market.platform.http.refusals import refusals
from market.platform.http.services import Services
from market.platform.http.shared_result import SharedResult
from market.platform.storage.client import Storage
from market.providers import service as providers
from market.verification.windows.omissions import outstanding

router = APIRouter(tags=["operations"])

MAX_INDEXER_LAG_BLOCKS = 100


class Alive(BaseModel):
    status: str = "alive"


class Check(BaseModel):
    ok: bool
    detail: str


class Readiness(BaseModel):
    ready: bool
    checks: dict[str, Check]


@router.get("/healthz")
def check_alive() -> Alive:
    """Return a constant answer while the process runs."""
    return Alive()


class ReadinessProbe(SharedResult[Readiness]):
    """Checks of all parts."""

    def __init__(self) -> None:
        super().__init__(_check_parts)


@router.get("/readyz", responses={503: {"model": Readiness, "description": "At least one part does not work."}})
async def check_ready(services: ServicesDep, response: Response) -> Readiness:
    """Check database, Redis, storage, chain and the indexer's lag, at most once a second."""
    readiness = await services.part(ReadinessProbe).get(services)
    response.status_code = 200 if readiness.ready else 503
    return readiness


def _check_parts(services: Services) -> Readiness:
    probes: dict[str, Callable[[Services], str]] = {
        "database": _database,
        "redis": _redis,
        "storage": _storage,
        "chain": _chain,
        "indexer": _indexer,
    }
    checks = {name: _run(probe, services) for name, probe in probes.items()}
    for name, check in checks.items():
        services.metrics.checked(name, check.ok)
    return Readiness(ready=all(check.ok for check in checks.values()), checks=checks)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **refusals(NotAuthenticated)},
)
def get_metrics(services: ServicesDep, request: Request) -> Response:
    """Return the metrics in the Prometheus text format, with the operator's token for metrics."""
    _require_scraper(request, services.settings.metrics_token)
    with suppress(SQLAlchemyError):  # without the database, the process's own metrics remain
        with services.database.transaction() as session:
            services.metrics.transactions_wait(waiting_intents(session))
            services.metrics.acknowledgements(*astuple(outstanding(session)))
            services.metrics.settlements_void(void_batches(session))
            services.metrics.rewards(rewards.void_posts(session), rewards.unposted_epochs(session, utc_now()))
            services.metrics.governance_alarms(governance.alarm_count(session))
            services.metrics.market_holds(jobs.count_by_status(session), providers.count_by_status(session))
            last = last_reconciliation(session)
        if last is not None:
            services.metrics.reconciled(last.agrees, last.difference_wei, last.block_number, last.at)
    return Response(services.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _require_scraper(request: Request, token: SecretStr | None) -> None:
    """Raise NotAuthenticated for other tokens; without a token, for other hosts and proxies."""
    if token is not None:
        expected = f"Bearer {token.get_secret_value()}".encode()
        is_allowed = hmac.compare_digest(request.headers.get("authorization", "").encode(), expected)
    else:
        is_local = request.client is not None and request.client.host in ("127.0.0.1", "::1")
        is_allowed = is_local and "x-forwarded-for" not in request.headers
    if not is_allowed:
        raise NotAuthenticated(
            "metrics are for the operator only",
            remedy="Set ZOO_METRICS_TOKEN, and send it as 'Authorization: Bearer TOKEN'.",
        )


class _NotReady(Exception):
    """A component does not work well enough; the message is the reason."""


def _run(probe: Callable[[Services], str], services: Services) -> Check:
    try:
        return Check(ok=True, detail=probe(services))
    except Exception as error:  # any error of a component means "not ready"
        detail = str(error) if isinstance(error, _NotReady) else type(error).__name__
        return Check(ok=False, detail=detail)


def _database(services: Services) -> str:
    with services.database.transaction() as session:
        session.execute(text("SELECT 1"))
    return "answers"


def _redis(services: Services) -> str:
    services.redis.ping()
    return "answers"


def _storage(services: Services) -> str:
    if not services.part(Storage).healthy():
        raise _NotReady("does not answer")
    return "answers"


def _chain(services: Services) -> str:
    return f"head is block {services.part(ChainViews).head_number()}"


def _indexer(services: Services) -> str:
    with services.database.transaction() as session:
        indexed = indexed_head(session)
    if indexed is None:
        raise _NotReady("has not begun")
    lag = max(0, services.part(ChainViews).head_number() - indexed)
    if lag > MAX_INDEXER_LAG_BLOCKS:
        raise _NotReady(f"{lag} blocks behind")
    return f"{lag} blocks behind"
