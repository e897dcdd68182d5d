"""The contract's list of referees: who of them can be drawn, and who is taken off it.

A draw looks at ten entries for each seat. Entries of those who cannot be drawn any more (unstaked, jailed, not renewed,
struck for their silence) take such looks in vain: where they are most of the list, committees stay incomplete and
disputes undecided. Who moves one stake from address to address could add them for gas alone. Anybody may take them off,
so the market does.
"""

from collections.abc import Collection

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import Disputes, ProviderStaking
from market.chain.requests import request_call
from market.chain.service import final_events_named
from market.chain.views import ChainViews
from market.platform.db.session import Database

EVICTIONS_AT_ONCE = 20


_VERIFIER_TIER = 0


_log = structlog.get_logger(__name__)


def eligible(database: Database, chain: ChainViews, parties: Collection[str]) -> list[str]:
    """The registered referees that can be drawn now and are none of these parties.

    Raises:
        ChainError: the chain does not answer.
    """
    with database.transaction() as session:
        entries = _listed(session)
    now = chain.client.head().timestamp
    listed = sorted(who for who, until in entries.items() if until >= now and who not in parties)
    return [who for who, qualifies in zip(listed, chain.all_qualify(listed), strict=True) if qualifies]


def evict_idle(database: Database, chain: ChainViews) -> None:
    """Ask for everybody who cannot be drawn any more to be taken off the list, some at a time; nothing while another
    worker is at it.

    Not while a committee waits to be drawn: the list stays as it is then, and the contract would refuse.

    Raises:
        ChainError: the chain does not answer; nothing was asked for.
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
        qualify = chain.many([ProviderStaking.qualifies(who, _VERIFIER_TIER) for who in entries], head.hash)
        staked = dict(zip(entries, qualify, strict=True))
        idle = [who for who, until in entries.items() if until < head.timestamp or not staked[who]]
        with database.transaction() as session:
            for who in idle[:EVICTIONS_AT_ONCE]:
                _log.info("a referee cannot be drawn any more", referee=who, until=entries[who])
                key = f"evict:{who}:{entries[who]}"
                request_call(session, key=key, kind="evict_referee", subject=f"referee:{who}", **Disputes.evict(who))


def _listed(session: Session) -> dict[str, int]:
    """The last second of each entry, by referee, as final events have the list."""
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
