"""All tables in one metadata: what Alembic compares and what tests create."""

from market.accounts import models as accounts
from market.auctions import models as auctions
from market.chain import models as chain
from market.db.base import Base
from market.disputes import challenger_models as challenges
from market.disputes import models as disputes
from market.events import models as events
from market.jobs import ddl as jobs_ddl
from market.jobs import models as jobs
from market.ledger import models as ledger
from market.organisations import models as organisations
from market.outages import models as outages
from market.providers import models as providers
from market.rewards import models as rewards
from market.settlement import models as settlement
from market.storage import models as storage
from market.verification import models as verification
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
