"""Composition root of the API: settings in, application out."""

import asyncio
import gc
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import Depends, FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware

import market.tables  # noqa: F401  # foreign keys cross features: a process must know all tables
from market.accounts.deps import Callers, Registry
from market.accounts.organisations.router import router as organisations
from market.accounts.router import router as accounts
from market.api import health, network, problem_pages
from market.api.error_handlers import install_handlers
from market.api.openapi.document import COMMON, TAGS, install_openapi, operation_id
from market.auctions.router import router as auctions
from market.chain.contracts.codec import Deployment
from market.chain.transactions.signer import Signer
from market.chain.views import ChainViews
from market.console.app import mount_console
from market.console.chain_facts import ChainFactsReader
from market.domain.network import NETWORKS
from market.governance.router import router as governance
from market.ledger.router import TreasuryReads
from market.ledger.router import router as ledger
from market.orders.events_router import router as events
from market.orders.router import router as jobs
from market.payments.rewards.router import router as rewards
from market.payments.settlement.router import router as settlement
from market.platform.db.engine import Timeouts
from market.platform.db.redis_client import connect_redis
from market.platform.db.session import Database
from market.platform.db.task_queue import celery_sender
from market.platform.http.deps import only_known_parameters
from market.platform.http.etag import ConditionalGet
from market.platform.http.middleware import BodyLimit, RequestContext
from market.platform.http.ratelimit import RateLimit
from market.platform.http.services import Services
from market.platform.observability.logs import configure_logs
from market.platform.observability.metrics import Metrics
from market.platform.observability.tracing import UNTRACED, configure_tracing
from market.platform.storage.client import Storage
from market.providers.attestation.router import router as attestations
from market.providers.benchmarks.router import router as benchmarks
from market.providers.benchmarks.service import Workload
from market.providers.liveness import Liveness
from market.providers.router import router as providers
from market.providers.service import kind_of
from market.settings import Settings
from market.training.commitments.service import Acknowledger
from market.training.deliveries.router import router as leases
from market.training.leases.api_liveness import ApiLivenessReporter
from market.training.leases.long_poll import LeaseWaiters
from market.training.leases.service import is_at_work
from market.training.uploads.router import PIECE_PATH, UPLOAD_PATH
from market.training.uploads.router import blobs_router as storage
from market.training.uploads.router import router as uploads
from market.verification.disputes.router import PIECE_PATH as DISPUTED_PIECE_PATH
from market.verification.disputes.router import router as disputes
from market.verification.samples.router import router as verification
from market.webhooks.router import router as webhooks
from market.wiring import connect_features
from zoo_protocol.messages import Domain, omissions_domain

STREAMED = re.compile(f"{UPLOAD_PATH}|{PIECE_PATH}|{DISPUTED_PIECE_PATH}")

DESCRIPTION = """A marketplace for AI training compute: pay only for verified work, settled on a blockchain.

Amounts are strings of decimal digits in wei of ZEN (1 ZEN = 10^18 wei). Every refusal is a problem document
(`application/problem+json`) with a stable `code`, the invalid `field` and a `remedy`. `/problems` lists all codes.
"""


def build_services(settings: Settings) -> Services:
    """Build all connections, without a request: other components may start later.

    Raises:
        ValueError: the deployment file or an address is malformed.
        OSError: the deployment file cannot be read.
        UnusableKey: the acknowledger has no usable key.
    """
    connect_features()
    deployment = Deployment.load(Path(settings.deployment_file))
    database = Database(settings.database_url, Timeouts.of(settings), enqueue=celery_sender(settings.redis_url))
    domain = Domain(deployment.chain_id, deployment.address("JobEscrow"))
    acknowledger = Signer.acknowledger(settings)
    return Services(
        settings=settings,
        database=database,
        network=NETWORKS[settings.network],
        domain=domain,
        redis=connect_redis(settings.redis_url),
        metrics=Metrics(),
        parts={
            Callers: Callers(database, settings.admin_addresses),
            Registry: Registry(kind_of),
            Workload: Workload(is_at_work),
            LeaseWaiters: LeaseWaiters(database),
            health.ReadinessProbe: health.ReadinessProbe(),
            TreasuryReads: TreasuryReads(),
            ChainFactsReader: ChainFactsReader(),
            ApiLivenessReporter: ApiLivenessReporter(database, settings.lease_seconds),
            Deployment: deployment,
            ChainViews: ChainViews.connect(settings, deployment, for_requests=True),
            Storage: Storage(settings.ipfs_api),
            Acknowledger: Acknowledger(
                acknowledger,
                omissions_domain(deployment.chain_id, deployment.address("Omissions")),
                settings.inclusion_deadline_seconds,
            ),
            Liveness: Liveness(acknowledger.derived(b"zoo-liveness-1"), domain, settings.heartbeat_timeout_seconds),
        },
    )


async def _report(app: FastAPI) -> None:
    while True:
        reporter = app.state.services.part(ApiLivenessReporter)
        await reporter.report_soon()
        await asyncio.sleep(reporter.period)


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the API; default settings come from the environment."""
    settings = settings or Settings()  # type: ignore[call-arg]  # the environment has them
    configure_logs(settings.log_level, as_json=settings.log_json, processors=configure_tracing("zoo-api"))
    services = build_services(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        gc.freeze()  # excludes permanent objects from garbage collection, which saves 0.1 s each time
        reports = asyncio.create_task(_report(app))
        yield
        reports.cancel()
        services.database.dispose()
        services.redis.close()

    app = FastAPIOffline(  # /docs without a CDN, for closed networks
        redoc_url=None,  # it would load a picture from another host
        static_url="/docs/static",
        title="Zoo Compute",
        version="0.1.0",
        description=DESCRIPTION,
        lifespan=lifespan,
        dependencies=[Depends(only_known_parameters)],
        responses=COMMON,
        openapi_tags=TAGS,
        telemetry={"operation_spans": False, "exclude": lambda scope: scope["path"] in UNTRACED},
        generate_unique_id_function=operation_id,
    )
    app.state.services = services
    install_handlers(app)
    install_openapi(app)
    # The last middleware added is the outermost.
    app.add_middleware(ConditionalGet)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes, streamed=STREAMED)
    app.add_middleware(
        RateLimit,
        redis_url=settings.redis_url,
        per_account=settings.requests_per_minute,
        per_address=settings.requests_per_minute_ip,
    )
    if settings.cors_origin_list:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origin_list,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID"],
            expose_headers=[
                "ETag",
                "Idempotent-Replayed",
                "RateLimit",
                "RateLimit-Policy",
                "Retry-After",
                "X-Request-ID",
            ],
        )
    app.add_middleware(RequestContext, metrics=services.metrics)
    for router in (  # the order of matching: the most frequent routes first
        jobs,
        leases,
        uploads,
        providers,
        benchmarks,
        attestations,
        settlement,
        network.router,
        accounts,
        organisations,
        webhooks,
        storage,
        auctions,
        events,
        disputes,
        verification,
        rewards,
        ledger,
        governance,
        health.router,
        problem_pages.router,
    ):
        app.include_router(router)
    mount_console(app)
    return app
