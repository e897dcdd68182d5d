"""Counts of a node's work per epoch. The next sweep updates its reliability score."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy.orm import Session

from market.domain.lifecycle import UnitEvent
from market.domain.nodes.reliability import NEWCOMER_BPS
from market.domain.nodes.uptime import epoch_of
from market.domain.verification.sampling import Fault
from market.providers.record import repository


def reliability_bps(session: Session, addresses: Collection[str]) -> dict[str, int]:
    """Return the scores of the nodes, 0 to 10,000 (best); an unknown node has a newcomer's."""
    return dict.fromkeys(addresses, NEWCOMER_BPS) | repository.scores(session, addresses)


def record_unit(session: Session, address: str, event: UnitEvent, *, served_bytes: int, at: datetime) -> None:
    """Record the decision on a delivered unit. A verified one adds its upload to the rewards."""
    epoch = epoch_of(at.timestamp())
    if event is UnitEvent.PASS:
        repository.add(session, address, epoch, verified=1, served_bytes=served_bytes)
    elif event in (UnitEvent.REJECT, UnitEvent.STRIKE):
        repository.add(session, address, epoch, rejected=1)


def record_lost_unit(session: Session, address: str, at: datetime) -> None:
    """Record an undelivered unit or a state that was revealed late."""
    repository.add(session, address, epoch_of(at.timestamp()), lost=1)


def record_fault(session: Session, address: str, fault: Fault, at: datetime) -> None:
    """Record a replay without a result."""
    column = {Fault.REFUSED: "refused", Fault.SILENT: "lost", Fault.WITHHELD: "rejected"}[fault]
    repository.add(session, address, epoch_of(at.timestamp()), **{column: 1})


def record_served_bytes(session: Session, address: str, size: int, at: datetime) -> None:
    """Record ``size`` bytes that the node proved to have and served."""
    repository.add(session, address, epoch_of(at.timestamp()), served_bytes=size)


def record_replay(session: Session, address: str, replayed_wei: int, at: datetime) -> None:
    """Record a replay that agreed with the decision, at the segment's gross price."""
    repository.add(session, address, epoch_of(at.timestamp()), replays=1, replayed_wei=replayed_wei)
