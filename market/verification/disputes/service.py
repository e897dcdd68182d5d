"""Data of disputes: the referees' verdicts, and the file of the start state.

The market decides nothing here. A verdict is valid by its signature, a state by its digest on chain; both are public.
"""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy.orm import Session

from market.domain.lifecycle import DISPUTE_OPEN, UNIT_DECIDED, DisputeStatus
from market.jobs import service as jobs
from market.platform.db.rows import from_row
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.training.commitments import service as commitments
from market.training.uploads import service as uploads
from market.training.uploads.service import Expected, FindExpected, expect_for_dispute
from market.verification.disputes import referee_evidence, repository
from market.verification.disputes.errors import (
    CommitteeNotJudging,
    DisputeNotFound,
    NotDisputedProvider,
    NotInCommittee,
    StepNotNamed,
    VerdictDiffers,
)
from market.verification.disputes.models import Dispute, Verdict
from market.verification.disputes.schemas import CaseView, VerdictRequest
from zoo_protocol import messages
from zoo_protocol.messages import Domain


def get(session: Session, dispute_id: str) -> Dispute:
    """Return a dispute. Raises DisputeNotFound."""
    found = repository.dispute(session, dispute_id)
    if found is None:
        raise DisputeNotFound(f"No final block contains dispute {dispute_id}.", field="dispute_id")
    return found


def case(session: Session, unit_key: str) -> CaseView | None:
    """Return the unit and its start; None if its commitment was not acknowledged."""
    found = commitments.acknowledged_unit(session, unit_key)
    if found is None:
        return None
    unit = found[1]
    job = jobs.get(session, unit.job_id)
    return from_row(
        CaseView,
        unit,
        order={name: str(value) for name, value in asdict(job.order).items()},
        spec_cid=job.spec_cid,
        checkpoint_cid=unit.start_checkpoint_cid,
        slot_state_cid=unit.start_slot_state_cid,
        restored_payload_cid=unit.start_restored_payload_cid,
        eager_payload_cid=unit.start_eager_payload_cid,
        salt=unit.salt or None if unit.status in UNIT_DECIDED else None,
    )


def store_verdict(session: Session, domain: Domain, dispute_id: str, given: VerdictRequest) -> Verdict:
    """Store a referee's verdict. Idempotent.

    Args:
        domain: of the contract Disputes.

    Raises:
        DisputeNotFound: no final block contains the dispute.
        CommitteeNotJudging: the draw is not the current committee.
        NotInCommittee: no member of the committee signed this verdict.
        VerdictDiffers: the member has signed otherwise before. Two different verdicts are an equivocation.
    """
    dispute = repository.lock_dispute(session, get(session, dispute_id).id)
    assert dispute is not None
    if dispute.status != DisputeStatus.JUDGING or dispute.draw != given.draw or dispute.committee is None:
        raise CommitteeNotJudging(
            f"draw is {given.draw}; the dispute is {dispute.status}, at draw {dispute.draw}.", field="draw"
        )
    try:
        message = messages.finding_of(dispute_id, given.draw, given.provider_correct, given.reason)
        referee = messages.recover_strictly(messages.typed_data(domain, message), given.signature)
    except ValueError as error:
        raise NotInCommittee(str(error), field="signature") from error
    if referee not in dispute.committee:
        raise NotInCommittee(f"{referee} is not in committee {given.draw}.", field="signature")
    known = session.get(Verdict, (dispute_id, given.draw, referee))
    if known is None:
        known = Verdict(dispute_id=dispute_id, referee=referee, **given.model_dump())
        session.add(known)
        session.flush()
        verdicts = repository.verdicts(session, dispute_id, given.draw)
        referee_evidence.prove_wrong_verdict(session, dispute.committee, verdicts)
    elif messages.finding_of(dispute_id, given.draw, known.provider_correct, known.reason) != message:
        if isinstance(message, messages.Verdict):
            referee_evidence.prove_equivocation(session, known, given.signature)
            session.commit()  # keep the proof although the call fails
        raise VerdictDiffers(f"{referee} has signed otherwise for committee {given.draw}.", field="provider_correct")
    return known


def verdicts_of(session: Session, dispute_id: str, draw: int | None) -> Sequence[Verdict]:
    """Return the verdicts of a committee, by default the current one. Raises DisputeNotFound."""
    dispute = get(session, dispute_id)
    return repository.verdicts(session, dispute_id, dispute.draw if draw is None else draw)


def set_state_cid(session: Session, dispute_id: str, provider: str, state_cid: str) -> Dispute:
    """Record the provider's CID of the selected segment's start state; a later call replaces it.

    Raises:
        DisputeNotFound: no final block contains the dispute.
        NotDisputedProvider: the unit is another provider's.
        StepNotNamed: no state is requested.
    """
    dispute = repository.lock_dispute(session, get(session, dispute_id).id)
    assert dispute is not None
    _require_requested(dispute, provider)
    dispute.state_cid = state_cid
    return dispute


def expected_file(dispute_id: str, provider: str, cid: str) -> FindExpected:
    """Return the lookup of the expected file ``cid`` for the disputed unit's provider.

    It raises like :func:`set_state_cid`, and FileNotAsked: the selected segment does not start from such a file.
    """

    def asked(session: Session) -> Expected:
        dispute = get(session, dispute_id)
        _require_requested(dispute, provider)
        return expect_for_dispute(session, dispute.unit_key, dispute.step or 0, cid)

    return asked


def release_states(database: Database, storage: Storage) -> int:
    """Delete dispute files of units without an open dispute; return their number."""
    with database.transaction() as session:
        disputed = [dispute.unit_key for dispute in repository.open_disputes(session)]
    return uploads.delete_disputed(database, storage, disputed)


def _require_requested(dispute: Dispute, provider: str) -> None:
    if dispute.provider != provider:
        raise NotDisputedProvider(f"The disputed unit belongs to {dispute.provider}.")
    if dispute.step is None or dispute.status not in DISPUTE_OPEN:
        raise StepNotNamed(f"The dispute is {dispute.status}.", field="dispute_id")
