"""Reliability: what happened to a node's work is added up by the epoch, and its score follows within one sweep."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy.orm import Session

from market.domain.lifecycle import UnitEvent
from market.domain.nodes.reliability import NEWCOMER_BPS
from market.domain.nodes.uptime import epoch_of
from market.domain.verification.sampling import Fault
from market.providers.record import repository


def reliability_bps(session: Session, addresses: Collection[str]) -> dict[str, int]:
    """The score of each of the nodes, 0 to 10,000 (best); of one that is not known, a newcomer's."""
    return dict.fromkeys(addresses, NEWCOMER_BPS) | repository.scores(session, addresses)


def note_unit(session: Session, address: str, event: UnitEvent, *, served_bytes: int, at: datetime) -> None:
    """A unit that the node delivered was decided. Its upload is rewarded if the unit stands."""
    epoch = epoch_of(at.timestamp())
    if event is UnitEvent.PASS:
        repository.add(session, address, epoch, verified=1, served_bytes=served_bytes)
    elif event in (UnitEvent.REJECT, UnitEvent.STRIKE):
        repository.add(session, address, epoch, rejected=1)


def note_lost(session: Session, address: str, at: datetime) -> None:
    """The node did not deliver a unit: it went silent, gave the work up, or handed in what could not be accepted. Or it
    showed a drawn state late."""
    repository.add(session, address, epoch_of(at.timestamp()), lost=1)


def note_fault(session: Session, address: str, fault: Fault, at: datetime) -> None:
    """The verifier gave no result of a replay."""
    column = {Fault.REFUSED: "refused", Fault.SILENT: "lost", Fault.WITHHELD: "rejected"}[fault]
    repository.add(session, address, epoch_of(at.timestamp()), **{column: 1})


def note_served(session: Session, address: str, size: int, at: datetime) -> None:
    """The node proved that it holds ``size`` bytes, and served them."""
    repository.add(session, address, epoch_of(at.timestamp()), served_bytes=size)


def note_replay(session: Session, address: str, replayed_wei: int, at: datetime) -> None:
    """A replay of the verifier's agreed with the decision that it led to; the segment costs its payer that much."""
    repository.add(session, address, epoch_of(at.timestamp()), replays=1, replayed_wei=replayed_wei)
