"""All tables in one metadata. Every process loads it, because foreign keys cross packages."""

# ruff: noqa: F401  # an import adds the tables

import market.accounts.models
import market.accounts.organisations.models
import market.auctions.models
import market.chain.models
import market.console.sessions.models
import market.governance.models
import market.jobs.models
import market.ledger.models
import market.orders.models
import market.payments.rewards.models
import market.payments.settlement.models
import market.platform.events.models
import market.platform.storage.models
import market.providers.models
import market.training.aggregation.models
import market.training.checkpoints.models
import market.training.commitments.models
import market.training.generation.models
import market.training.leases.models
import market.training.units.models
import market.training.uploads.models
import market.verification.disputes.models
import market.verification.penalties.models
import market.verification.samples.models
import market.verification.windows.models
import market.webhooks.models
from market.platform.db.base import Base

metadata = Base.metadata
