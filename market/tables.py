"""All tables in one metadata: what Alembic compares and what tests create."""

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
from market.verification.disputes import challenge_models as challenges
from market.verification.disputes import models as disputes
from market.webhooks import models as webhooks

__all__ = [
    "accounts",
    "auctions",
    "chain",
    "challenges",
    "disputes",
    "events",
    "jobs",
    "jobs_ddl",
    "ledger",
    "metadata",
    "organisations",
    "outages",
    "providers",
    "rewards",
    "settlement",
    "storage",
    "verification",
    "webhooks",
]

metadata = Base.metadata
