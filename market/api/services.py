"""What every request handler may need, built once per process by the composition root."""

from dataclasses import dataclass

from redis import Redis

from market.accounts.callers import Callers
from market.chain.contracts import Deployment
from market.chain.views import ChainViews
from market.db.session import Database
from market.domain.network import NetworkParameters
from market.jobs.acknowledgements import Acknowledger
from market.jobs.offers import Offers
from market.jobs.presence import Presence
from market.observability.metrics import Metrics
from market.providers.liveness import Liveness
from market.settings import Settings
from market.storage.service import Storage
from zoo_protocol.messages import Domain


@dataclass(frozen=True, slots=True)
class Services:
    """The process's connections and fixed facts. All of them may be used from several threads."""

    settings: Settings
    database: Database
    callers: Callers
    offers: Offers
    presence: Presence
    network: NetworkParameters
    deployment: Deployment
    chain: ChainViews
    acknowledger: Acknowledger
    liveness: Liveness
    storage: Storage
    redis: Redis
    metrics: Metrics

    @property
    def domain(self) -> Domain:
        """The EIP-712 domain of everything that is signed for this deployment."""
        return Domain(self.deployment.chain_id, self.deployment.address("JobEscrow"))
