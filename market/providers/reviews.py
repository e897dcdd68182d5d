"""Reviews of scores: who is too unreliable for new work, and who is not any more."""

from datetime import datetime

from sqlalchemy.orm import Session

from market.db.session import Database
from market.domain.lifecycle import ProviderEvent, ProviderStatus
from market.domain.network import NetworkParameters
from market.domain.reliability import DEMOTION_BPS, reliability_bps
from market.domain.uptime import epoch_of
from market.providers import records, repository, service

UNRELIABLE, RECOVERED = "unreliable", "reliability_recovered"


def review(database: Database, network: NetworkParameters, now: datetime) -> None:
    """Bring every score up to date of which something new is known, each in its own transaction."""
    with database.exclusive("providers.review") as alone:
        if not alone:
            return
        with database.transaction() as session:
            due = records.unreviewed(session)
        for address in due:
            with database.transaction() as session:
                _review(session, network, address, epoch_of(now.timestamp()))


def _review(session: Session, network: NetworkParameters, address: str, epoch: int) -> None:
    """Set the score. Below the threshold a provider gets no new work until it recovers or passes a benchmark anew.

    A benchmark forgives the score that the node then had: only a lower one demotes it again.
    """
    provider = repository.lock_provider(session, address)
    score = reliability_bps(records.take_history(session, address, epoch))
    if provider is None:
        return
    provider.reliability_bps = score
    is_low = score < DEMOTION_BPS
    if not is_low:
        provider.forgiven_bps = None
    if is_low and provider.status in (ProviderStatus.BENCHMARKED, ProviderStatus.ACTIVE):
        if provider.kind == "provider" and (provider.forgiven_bps is None or score < provider.forgiven_bps):
            service.advance(session, provider, ProviderEvent.DEMOTE, reason=UNRELIABLE)
    elif not is_low and provider.status == ProviderStatus.DEMOTED:
        service.advance(session, provider, ProviderEvent.RECOVER, reason=RECOVERED)
        service.review_stake(session, network, provider)
