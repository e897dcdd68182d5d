"""Unit commitments: their inclusion acknowledgements and their commitment windows.

An acknowledgement is a signed deadline for including a commitment. It is stored in the transaction that takes the
commitment and returned unchanged to repeated calls. A missed deadline costs the operator's bond (contract Omissions).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.chain.transactions.signer import Signer
from market.platform.db.base import utc_now
from market.training.commitments import repository
from market.training.commitments.errors import CommitmentRepeated
from market.training.commitments.models import Acknowledgement
from market.training.commitments.schemas import AcknowledgementView
from market.training.units import repository as units_repository
from market.training.units.facts import UnitSummary, facts
from market.training.units.models import Unit
from zoo_protocol import messages
from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import Domain, UnitCommitment
from zoo_protocol.payments.job_record import leaf_of


def windowless_units(session: Session, limit: int) -> list[UnitSummary]:
    """Lock and return units due to enter a window, oldest first; skip locked ones."""
    return [facts(job, unit) for job, unit in repository.lock_windowless_units(session, limit)]


def assign_window(session: Session, rates: Mapping[int, int | None], window_id: int) -> None:
    """Put locked units into a window; their order gives the leaf index.

    ``rates`` has minimum sampling rates in basis points by unit id; None: not sampled.
    """
    units = units_repository.units_by_id(session, rates)
    for index, (unit_id, sampling_bps) in enumerate(rates.items()):
        unit = units[unit_id]
        unit.window_id, unit.window_index, unit.sampling_bps = window_id, index, sampling_bps


def window_units(session: Session, window_id: int) -> list[UnitSummary]:
    return [facts(job, unit) for job, unit in repository.units_of_window(session, window_id)]


def window_leaves(session: Session, window_id: int) -> list[bytes]:
    return [leaf_of(commitment) for commitment in repository.commitments_of_window(session, window_id)]


def acknowledged_unit(session: Session, leaf: str) -> tuple[Acknowledgement, UnitSummary] | None:
    found = repository.acknowledged_unit(session, leaf)
    if found is None:
        return None
    given, job, unit = found
    return given, facts(job, unit)


def outstanding_acknowledgements(session: Session, open_windows: Collection[int]) -> tuple[int, int]:
    """Return (all, late) acknowledged commitments not included; ``open_windows`` not final."""
    return repository.count_outstanding(session, open_windows, utc_now())


@dataclass(frozen=True, slots=True)
class Acknowledger:
    """Signer of acknowledgements valid for ``inclusion_deadline_seconds`` (contract Omissions)."""

    signer: Signer
    domain: Domain
    inclusion_deadline_seconds: int

    def sign(self, leaf: str, include_by: datetime) -> str:
        message = messages.Acknowledgement(leaf, int(include_by.timestamp()))
        return self.signer.sign_typed_data(messages.typed_data(self.domain, message))


def acknowledge(
    session: Session, acknowledger: Acknowledger, unit: Unit, commitment: UnitCommitment
) -> AcknowledgementView:
    """Return the acknowledgement of a unit's commitment, once signed. The unit is locked.

    Raises:
        CommitmentRepeated: an earlier unit has the same commitment, including the salted hash.
    """
    given = session.get(Acknowledgement, unit.id)
    if given is None:
        leaf = to_hex(leaf_of(commitment))
        if repository.acknowledged_unit(session, leaf) is not None:
            raise CommitmentRepeated(f"The commitment {leaf} was made before.", field="payload_hash")
        include_by = utc_now().replace(microsecond=0) + timedelta(seconds=acknowledger.inclusion_deadline_seconds)
        signature = acknowledger.sign(leaf, include_by)
        given = Acknowledgement(unit_id=unit.id, leaf=leaf, include_by=include_by, signature=signature)
        session.add(given)
    return AcknowledgementView(
        unit_id=given.leaf, include_by=int(given.include_by.timestamp()), signature=given.signature
    )
