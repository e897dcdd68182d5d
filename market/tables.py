"""All tables in one metadata. Every process loads it, because foreign keys cross packages."""

from market.accounts import models as accounts
from market.accounts.organisations import models as organisations
from market.auctions import models as auctions
from market.chain import models as chain
from market.jobs import models as jobs
from market.ledger import models as ledger
from market.payments.rewards import models as rewards
from market.payments.settlement import models as settlement
from market.platform.db.base import Base
from market.platform.events import models as events
from market.platform.storage import models as storage
from market.providers import models as providers
from market.providers.outages import models as outages
from market.training.aggregation import models as aggregation
from market.training.checkpoints import models as checkpoints
from market.training.commitments import models as commitments
from market.training.leases import models as leases
from market.training.units import ddl as units_ddl
from market.training.units import models as units
from market.training.uploads import models as uploads
from market.verification.disputes import challenge_models as disputes_challenge_models
from market.verification.disputes import models as disputes
from market.verification.penalties import models as penalties
from market.verification.samples import models as samples
from market.verification.windows import models as windows
from market.webhooks import models as webhooks

__all__ = [
    "accounts",
    "aggregation",
    "auctions",
    "chain",
    "checkpoints",
    "commitments",
    "disputes",
    "disputes_challenge_models",
    "events",
    "jobs",
    "leases",
    "ledger",
    "metadata",
    "organisations",
    "outages",
    "penalties",
    "providers",
    "rewards",
    "samples",
    "settlement",
    "storage",
    "units",
    "units_ddl",
    "uploads",
    "webhooks",
    "windows",
]

metadata = Base.metadata
