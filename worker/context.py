"""Connections of a worker process for its tasks."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from redis import Redis

import market.tables  # noqa: F401  # foreign keys cross features: a process must know all tables
from market.chain.contracts.codec import Deployment
from market.chain.indexer import Indexer
from market.chain.models import OPERATOR
from market.chain.transactions.sender import Sender
from market.chain.transactions.signer import Signer
from market.chain.views import ChainViews
from market.domain.network import NETWORKS, NetworkParameters
from market.platform.db.engine import Timeouts
from market.platform.db.redis_client import connect_redis
from market.platform.db.session import Database
from market.platform.db.task_queue import celery_sender
from market.platform.observability.logs import configure_logs
from market.platform.observability.tracing import configure_tracing
from market.platform.storage.client import Storage
from market.settings import Settings
from market.wiring import connect_features
from worker.chain_handlers import INTENT_HANDLERS, event_handlers


@dataclass(frozen=True, slots=True)
class Context:
    """Connections and constants of a worker process. All are thread-safe."""

    settings: Settings
    network: NetworkParameters
    database: Database
    chain: ChainViews
    storage: Storage
    redis: Redis
    indexer: Indexer
    senders: tuple[Sender, ...]  # one per account of the market
    challenger: str | None  # address of the challenger account, if any
    former_challengers: frozenset[str]  # addresses of accounts that only finish their disputes


@cache
def context() -> Context:
    """Return this process's context, from the environment."""
    return build_context(Settings())  # type: ignore[call-arg]  # the environment has them


def build_context(settings: Settings) -> Context:
    """Build all connections, without a request: other components may start later."""
    configure_logs(settings.log_level, as_json=settings.log_json, processors=configure_tracing("zoo-worker"))
    connect_features()
    network = NETWORKS[settings.network]
    deployment = Deployment.load(Path(settings.deployment_file))
    database = Database(settings.database_url, Timeouts.of(settings), enqueue=celery_sender(settings.redis_url))
    chain = ChainViews.connect(settings, deployment)
    challenger, former = Signer.challenger(settings), Signer.challenger(settings, previous=True)
    disputing = {signer.address: signer for signer in (challenger, former) if signer is not None}
    accounts = {OPERATOR: Signer.from_settings(settings)} | disputing
    return Context(
        settings=settings,
        network=network,
        database=database,
        chain=chain,
        storage=Storage(settings.ipfs_api),
        redis=connect_redis(settings.redis_url),
        indexer=Indexer(database, chain.client, deployment, event_handlers(network, deployment)),
        senders=tuple(
            Sender(database, chain.client, deployment, signer, settings, INTENT_HANDLERS, account)
            for account, signer in accounts.items()
        ),
        challenger=None if challenger is None else challenger.address,
        former_challengers=frozenset(disputing) - {challenger.address if challenger else ""},
    )
