"""Inclusion acknowledgements: signed deadlines for including unit commitments.

One is stored in the transaction that takes its commitment and returned unchanged to repeated calls. A missed deadline
costs the operator's bond (contract Omissions).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.chain.transactions.signer import Signer
from market.training.commitments import repository
from market.training.commitments.errors import CommitmentRepeated
from market.training.commitments.models import Acknowledgement
from market.training.commitments.schemas import AcknowledgementView
from market.training.units.models import Unit
from zoo_protocol import messages
from zoo_protocol.hashing import to_hex
from zoo_protocol.messages import Domain, UnitCommitment
from zoo_protocol.payments.job_record import leaf_of


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
    session: Session, acknowledger: Acknowledger, unit: Unit, commitment: UnitCommitment, now: datetime
) -> Acknowledgement:
    """Return the acknowledgement of a unit's commitment, once signed. The unit is locked.

    Raises:
        CommitmentRepeated: an earlier unit has the same commitment, including the salted hash.
    """
    given = repository.acknowledgement(session, unit.id)
    if given is not None:
        return given
    leaf = to_hex(leaf_of(commitment))
    if repository.acknowledged_unit(session, leaf) is not None:
        raise CommitmentRepeated(f"The commitment {leaf} was made before.", field="payload_hash")
    include_by = now.replace(microsecond=0) + timedelta(seconds=acknowledger.inclusion_deadline_seconds)
    signature = acknowledger.sign(leaf, include_by)
    made = Acknowledgement(unit_id=unit.id, leaf=leaf, include_by=include_by, signature=signature)
    session.add(made)
    return made


def view(acknowledgement: Acknowledgement) -> AcknowledgementView:
    return AcknowledgementView(
        unit_id=acknowledgement.leaf,
        include_by=int(acknowledgement.include_by.timestamp()),
        signature=acknowledgement.signature,
    )
