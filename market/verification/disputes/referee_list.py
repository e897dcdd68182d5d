"""The contract's list of referees: eligible entries, and eviction of others.

A draw looks at ten entries per seat. Entries that cannot be drawn (unstaked, jailed, expired, delisted) waste these
looks: if they dominate the list, committees stay incomplete and disputes inconclusive. Moving one stake between
addresses would add such entries for gas alone. Any account may evict them, so the market does.
"""

from collections.abc import Collection

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import Disputes, ProviderStaking
from market.chain.service import final_events_named, request_call
from market.chain.views import ChainViews
from market.platform.db.session import Database

MAX_EVICTIONS = 20
_VERIFIER_TIER = 0

_log = structlog.get_logger(__name__)


def eligible(database: Database, chain: ChainViews, parties: Collection[str]) -> list[str]:
    """Return the referees that can be drawn now, without ``parties``. Raises ChainError."""
    with database.transaction() as session:
        entries = _listed(session)
    now = chain.client.head().timestamp
    listed = sorted(referee for referee, until in entries.items() if until >= now and referee not in parties)
    return [referee for referee, qualifies in zip(listed, chain.all_qualify(listed), strict=True) if qualifies]


def evict_idle(database: Database, chain: ChainViews) -> None:
    """Request the eviction of entries that cannot be drawn, under an advisory lock.

    No-op while a draw is pending: the contract refuses changes of the list then. Raises ChainError.
    """
    with database.advisory_lock("referees") as alone:
        if not alone:
            return
        with database.transaction() as session:
            entries = _listed(session)
        if not entries:
            return
        head = chain.client.head()
        [pending] = chain.many([Disputes.pendingDraws()], head.hash)
        if pending:
            return
        qualify = chain.many([ProviderStaking.qualifies(referee, _VERIFIER_TIER) for referee in entries], head.hash)
        staked = dict(zip(entries, qualify, strict=True))
        idle = [referee for referee, until in entries.items() if until < head.timestamp or not staked[referee]]
        with database.transaction() as session:
            for referee in idle[:MAX_EVICTIONS]:
                _log.info("referee_eviction_requested", referee=referee, until=entries[referee])
                key, subject = f"evict:{referee}:{entries[referee]}", f"referee:{referee}"
                request_call(session, key=key, kind="evict_referee", subject=subject, **Disputes.evict(referee))


def _listed(session: Session) -> dict[str, int]:
    events = [
        event
        for name in ("RefereeRegistered", "RefereeStruck", "RefereeRemoved")
        for event in final_events_named(session, "Disputes", name)
    ]
    found: dict[str, int] = {}
    for event in sorted(events, key=lambda event: (event.block_number, event.log_index)):
        if event.name == "RefereeRemoved":
            found.pop(event.args["referee"], None)
        else:
            found[event.args["referee"]] = event.args["until"]
    return found
