"""Disputed units: contested ones are settled later, those that lost are not paid.

The contract itself holds or forfeits the pay of units in a final batch. This module handles units before settlement and
units of vetoed batches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent
from market.chain.service import intent_by_key
from market.domain.lifecycle import DISPUTE_STATUSES, DisputeStatus
from market.payments.payables import service as payables
from market.payments.settlement import repository
from market.payments.settlement.models import SettlementBatch
from market.platform.db.base import from_unix
from market.platform.db.rows import from_row
from market.providers import service as providers
from market.training.commitments import service as commitments
from market.training.units.facts import UnitSummary
from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import UnitCommitment
from zoo_protocol.payments.job_record import PaidUnit, unit_leaf
from zoo_protocol.payments.settlement_batch import JobLine, unit_proof

LOST = "dispute_lost"


def undisputed(session: Session, units: Sequence[UnitSummary]) -> tuple[list[UnitSummary], bool]:
    """Return (undisputed units, are others contested); reject units that lost a dispute.

    All units of a provider in a dispute of the market are contested: it may end with their new sampling.
    """
    keys = {_key(unit): unit for unit in units}
    lost = repository.contested(session, keys.keys())
    for key in (key for key, is_lost in lost.items() if is_lost):
        payables.forfeit_unit(session, keys[key].id, LOST)
    disputed = providers.disputed_among(session, {unit.provider for unit in units})
    uncontested = [unit for key, unit in keys.items() if key not in lost and unit.provider not in disputed]
    return uncontested, bool(disputed) or not all(lost.values())


@dataclass(frozen=True, slots=True)
class Paid:
    """Payment of a unit by a batch: ``Disputes.withhold``'s arguments (contract's numbers)."""

    batch_id: int
    commitment: UnitCommitment
    price: int
    proof: list[str]


def lost_in_batches(session: Session, now: datetime) -> set[str]:
    """Return keys of lost units in final batches whose claims open after ``now``.

    Their disputes ended while the batch was pending.
    """
    batches = repository.not_claimable(session, now)
    return payables.leaves_in_batches(session, repository.lost_units(session), batches) if batches else set()


def paying_batch(session: Session, unit_key: str, time: int) -> int | None:
    """Return the number of the final batch that pays a unit, if claims open after ``time``."""
    found = _paying(session, unit_key, time)
    return None if found is None else found[1].batch_id


def paid(session: Session, unit_key: str, time: int) -> Paid | None:
    """Return the payment of a unit by :func:`paying_batch`, with its proof over the batch."""
    found = _paying(session, unit_key, time)
    if found is None:
        return None
    unit, batch = found
    assert batch.batch_id is not None
    intent = intent_by_key(session, batch.intent_key or "")
    assert intent is not None, "a batch is written with the call that posts it"
    claims_root, _, posted = cast(tuple[str, str, list[dict[str, Any]]], tuple(intent.arguments))
    lines = [_line(fields) for fields in posted]
    prices = {line.job_id: line.price for line in lines}
    paid_units = payables.units_in_batch(session, batch.id)
    units = {one.id: from_row(PaidUnit, one, price=str(prices[one.job_id])) for one in paid_units}
    proof = unit_proof(lines, list(units.values()), claims_root, units[unit.id])
    return Paid(batch.batch_id, unit.commitment, prices[unit.job_id], proof)


def _paying(session: Session, unit_key: str, time: int) -> tuple[UnitSummary, SettlementBatch] | None:
    found = commitments.acknowledged_unit(session, unit_key)
    batch = None if found is None else repository.batch_of_units(session, payables.batch_of(session, found[1].id))
    if found is None or batch is None or batch.batch_id is None or batch.claimable_at is None:
        return None
    return None if from_unix(time) >= batch.claimable_at else (found[1], batch)


def _line(fields: Mapping[str, Any]) -> JobLine:
    price, units, first, after = (int(fields[name]) for name in ("price", "units", "fromRound", "toRound"))
    return JobLine(fields["jobId"], price, units, first, after, fields["last"], fields["record"])


def on_unit_withheld(session: Session, event: ChainEvent) -> None:
    """Mark a unit whose payout is held as contested."""
    repository.mark_contested(session, event.args["unitId"], lost=False)


def on_unit_restored(session: Session, event: ChainEvent) -> None:
    """Clear the mark of a unit whose payout is not held any more; the outcome stays open."""
    repository.clear_contested(session, event.args["unitId"])


def on_dispute_ended(session: Session, event: ChainEvent) -> None:
    """Store a dispute's outcome. An inconclusive dispute leaves the unit unpaid."""
    # A moot dispute follows another.
    outcome = DISPUTE_STATUSES[event.args["outcome"]]
    if outcome in (DisputeStatus.PROVIDER_LOST, DisputeStatus.UNDECIDED):
        repository.mark_contested(session, event.args["unitId"], lost=True)
    elif outcome is DisputeStatus.CHALLENGER_LOST:
        repository.clear_contested(session, event.args["unitId"])


def _key(unit: UnitSummary) -> str:
    return to_hex(unit_leaf(unit.job_id, unit.round, unit.slot, unit.provider, unit.trace_root, unit.payload_hash))
