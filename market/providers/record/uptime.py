"""Uptime: heartbeats by the minute, evaluated per epoch against on-chain commitments.

A heartbeat sets one bit of its hour's row. After an epoch, its minutes are counted into one row per node, and its
heartbeats are deleted. A breach of the tier's uptime in a committed period costs the downtime penalty, once per epoch.
The evidence is published first.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import ProviderStaking
from market.chain.contracts.codec import ChainEvent
from market.chain.service import request_call
from market.domain.lifecycle import ProviderStatus
from market.domain.network import EPOCH_SECONDS, NetworkParameters
from market.domain.nodes import uptime
from market.domain.nodes.reliability import OLDEST_EPOCHS
from market.domain.verification.sampling import OFFENCE_IDS
from market.platform.db.base import from_unix
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.providers import repository as providers_repository
from market.providers.models import DowntimePenalty, Provider
from market.providers.record import repository as record_repository
from zoo_protocol.content.cid import digest_of
from zoo_protocol.hashing import canonical_json, to_hex

_log = structlog.get_logger(__name__)

_SETTLED = timedelta(minutes=2)
"""Delay of the evaluation after the end of an epoch, so that all heartbeats are stored."""

_EXEMPT = (ProviderStatus.JAILED, ProviderStatus.EXITED)  # they get no work, so no uptime is due


@dataclass(frozen=True, slots=True)
class _NodeEpoch:
    """Epoch of one node: minutes as bits, and the sum of stake in wei over minutes seen."""

    provider: Provider
    seen: int
    counted: int
    committed: int
    stake_minutes: int
    sla_bps: int

    @property
    def is_breach(self) -> bool:
        up, due = (self.seen & self.committed).bit_count(), self.committed.bit_count()
        return self.provider.status not in _EXEMPT and uptime.is_breach(up, due, self.sla_bps)


def on_committed(session: Session, event: ChainEvent) -> None:
    """Handle the final Committed event: a committed period from its block's time."""
    start, end = from_unix(event.timestamp), from_unix(event.args["until"])
    record_repository.add_period(session, event.args["provider"], start, end)


def on_slashed(session: Session, event: ChainEvent) -> None:
    """Handle the final Slashed event: count it, store the amount of a downtime penalty."""
    record_repository.add(session, event.args["provider"], uptime.epoch_of(event.timestamp), slashes=1)
    penalty = record_repository.lock_penalty(session, event.args["evidence"])
    if penalty is not None:
        penalty.amount_wei, penalty.tx = event.args["amount"], event.tx_hash


def evaluate_epochs(database: Database, storage: Storage, network: NetworkParameters, now: datetime) -> None:
    """Evaluate every past epoch, oldest first, and queue all penalties for the chain.

    Raises:
        StorageError: evidence could not be stored; the epoch stays due.
    """
    with database.advisory_lock("providers.uptime") as alone:
        if not alone:
            return
        while (epoch := _due(database, now)) is not None:
            _evaluate(database, storage, network, epoch)
        _execute_penalties(database, network, now)


def _due(database: Database, now: datetime) -> int | None:
    with database.transaction() as session:
        hour = record_repository.oldest_hour(session)
    if hour is None:
        return None
    epoch = hour // uptime.EPOCH_HOURS
    return epoch if now >= from_unix((epoch + 1) * EPOCH_SECONDS) + _SETTLED else None


def _evaluate(database: Database, storage: Storage, network: NetworkParameters, epoch: int) -> None:
    with database.transaction() as session:
        before = record_repository.evaluated_epoch(session, epoch - 1)
        is_evaluated = record_repository.evaluated_epoch(session, epoch) is not None
        nodes, counted, usual = _read(session, network, epoch, before.usual_nodes if before else 0)
    documents = [] if is_evaluated else [(node, _evidence(node, epoch)) for node in nodes if node.is_breach]
    stored = [(node, storage.put_block(canonical_json(document)).cid) for node, document in documents]
    with database.transaction() as session:
        record_repository.delete_hours(session, epoch)
        if is_evaluated:
            return  # later heartbeats do not count
        record_repository.add_evaluated_epoch(session, epoch, usual_nodes=usual, counted_minutes=counted.bit_count())
        for node in nodes:
            record_repository.add(
                session,
                node.provider.address,
                epoch,
                up_minutes=(node.seen & node.counted).bit_count(),
                counted_minutes=node.counted.bit_count(),
                committed_up_minutes=(node.seen & node.committed).bit_count(),
                committed_minutes=node.committed.bit_count(),
                stake_minutes=node.stake_minutes,
            )
        for node, cid in stored:
            address = node.provider.address
            evidence = to_hex(digest_of(cid))
            session.add(DowntimePenalty(provider=address, epoch=epoch, evidence=evidence, evidence_cid=cid))
            _log.warning("downtime_penalty", provider=address, epoch=epoch, evidence=cid)
        record_repository.mark_all_for_review(session)
        record_repository.delete_epochs(session, epoch - OLDEST_EPOCHS)


def _read(session: Session, network: NetworkParameters, epoch: int, usual: int) -> tuple[list[_NodeEpoch], int, int]:
    """Return (nodes that were seen or committed, minutes that count, usual number of nodes)."""
    hours: dict[str, dict[int, int]] = {}
    at_stake: dict[str, dict[int, int]] = {}
    stake_minutes: dict[str, int] = {}
    for row in record_repository.hours_of(session, epoch):
        hours.setdefault(row.provider, {})[row.hour] = row.minutes
        if row.stake_wei:  # wallets without stake are free, so switching many off could fake an outage
            at_stake.setdefault(row.provider, {})[row.hour] = row.minutes
        earned = stake_minutes.get(row.provider, 0) + row.minutes.bit_count() * row.stake_wei
        stake_minutes[row.provider] = earned
    seen = {address: uptime.seen_minutes(own) for address, own in hours.items()}
    counted, usual = uptime.counted_minutes([uptime.seen_minutes(own) for own in at_stake.values()], usual)
    start, end = (from_unix(EPOCH_SECONDS * number) for number in (epoch, epoch + 1))
    periods = record_repository.periods_between(session, start, end)
    slas = {tier.id: tier.uptime_sla_bps for tier in network.tiers}
    nodes = []
    for provider in record_repository.all_nodes(session):
        address = provider.address
        if address not in seen and address not in periods:
            continue
        here = counted & uptime.minutes_between(epoch, provider.created_at.timestamp(), end.timestamp())
        nodes.append(
            _NodeEpoch(
                provider=provider,
                seen=seen.get(address, 0),
                counted=here,
                committed=here & uptime.committed_minutes(epoch, periods.get(address, [])),
                stake_minutes=stake_minutes.get(address, 0),
                sla_bps=slas.get(provider.tier_id or 0, 0),  # no tier, no required uptime
            )
        )
    return nodes, counted, usual


def _evidence(node: _NodeEpoch, epoch: int) -> dict[str, Any]:
    return {
        "kind": "zoo-downtime/1",
        "provider": node.provider.address,
        "starts_at": epoch * EPOCH_SECONDS,
        "ends_at": (epoch + 1) * EPOCH_SECONDS,
        "sla_bps": node.sla_bps,
        "grace_minutes": uptime.GRACE_MINUTES,
        "committed_and_counted": f"{node.committed:x}",
        "seen": f"{node.seen:x}",
        "due_minutes": node.committed.bit_count(),
        "up_minutes": (node.seen & node.committed).bit_count(),
    }


def _execute_penalties(database: Database, network: NetworkParameters, now: datetime) -> None:
    """Queue the penalties that the chain has not executed, within one unbonding delay."""
    oldest = uptime.epoch_of(now.timestamp() - network.unbonding_seconds) + 1
    with database.transaction() as session:
        for penalty in record_repository.open_penalties(session, oldest):
            request_call(
                session,
                key=f"slash:{penalty.evidence}",
                kind="slash",
                subject=penalty.provider,
                **ProviderStaking.slash(penalty.provider, OFFENCE_IDS["downtime"], penalty.evidence),
                amount=providers_repository.at_risk(
                    session, penalty.provider
                ),  # an upper bound: the penalty table may change before the execution
            )
