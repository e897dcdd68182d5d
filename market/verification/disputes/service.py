"""What the parties of a dispute tell each other through us: the referees' verdicts, and where the start state is.

Nothing here decides anything. A verdict counts by its signature, a state by its digest on chain; both are public.
"""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy.orm import Session

from market.domain.lifecycle import DISPUTE_OPEN, UNIT_DECIDED, DisputeStatus
from market.jobs import service as jobs
from market.platform.db.session import Database
from market.platform.storage.client import Storage
from market.training.commitments import service as commitments
from market.training.uploads import service as uploads
from market.training.uploads.service import Asked, Expected, of_disputed_unit
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
    """A dispute.

    Raises:
        DisputeNotFound: no final block has it.
    """
    found = repository.dispute(session, dispute_id)
    if found is None:
        raise DisputeNotFound(f"No final block has a dispute {dispute_id}.", field="dispute_id")
    return found


def case(session: Session, unit_key: str) -> CaseView | None:
    """What the unit is and what it started from; None if its commitment was never given to us."""
    found = commitments.acknowledged_unit(session, unit_key)
    if found is None:
        return None
    unit = found[1]
    job = jobs.get(session, unit.job_id)
    return CaseView(
        order={name: str(value) for name, value in asdict(job.order).items()},
        round=unit.round,
        slot=unit.slot,
        trace_root=unit.trace_root,
        payload_hash=unit.payload_hash,
        environment_class=unit.environment_class,
        spec_cid=job.spec_cid,
        checkpoint_cid=unit.start_checkpoint_cid,
        slot_state_cid=unit.start_slot_state_cid,
        restored_payload_cid=unit.start_restored_payload_cid,
        eager_payload_cid=unit.start_eager_payload_cid,
        top_k=unit.top_k,
        salt=unit.salt or None if unit.status in UNIT_DECIDED else None,
    )


def give(session: Session, domain: Domain, dispute_id: str, given: VerdictRequest) -> Verdict:
    """Store a referee's verdict unless it is here already.

    Args:
        domain: of the contract Disputes.

    Raises:
        DisputeNotFound: no final block has the dispute.
        CommitteeNotJudging: the committee of that draw is not the present one.
        NotInCommittee: the signature is none of a member, for what is given.
        VerdictDiffers: the member has signed something else before. Where both are verdicts, that costs it its stake.
    """
    dispute = repository.lock_dispute(session, get(session, dispute_id).id)
    assert dispute is not None
    if dispute.status != DisputeStatus.JUDGING or dispute.draw != given.draw or dispute.committee is None:
        raise CommitteeNotJudging(
            f"Committee {given.draw} of the dispute is not at work: it is {dispute.status}, at draw {dispute.draw}.",
            field="draw",
        )
    try:
        message = messages.finding_of(dispute_id, given.draw, given.provider_correct, given.reason)
        referee = messages.recover_strictly(messages.typed_data(domain, message), given.signature)
    except ValueError as error:
        raise NotInCommittee(str(error), field="signature") from error
    if referee not in dispute.committee:
        raise NotInCommittee(f"{referee} is not in committee {given.draw}.", field="signature")
    known = repository.verdict(session, dispute_id, given.draw, referee)
    if known is None:
        known = Verdict(
            dispute_id=dispute_id,
            draw=given.draw,
            referee=referee,
            provider_correct=given.provider_correct,
            reason=given.reason,
            signature=given.signature,
        )
        session.add(known)
        session.flush()
        referee_evidence.prove_wrong_verdict(
            session, dispute.committee, repository.verdicts(session, dispute_id, given.draw)
        )
    elif messages.finding_of(dispute_id, given.draw, known.provider_correct, known.reason) != message:
        if isinstance(message, messages.Verdict):
            referee_evidence.of_contradiction(session, known, given.signature)
            session.commit()  # it stays, though the answer is a refusal
        raise VerdictDiffers(f"{referee} has signed otherwise for committee {given.draw}.", field="provider_correct")
    return known


def given(session: Session, dispute_id: str, draw: int | None) -> Sequence[Verdict]:
    """The verdicts of a committee, by default the present one's. Raises DisputeNotFound."""
    dispute = get(session, dispute_id)
    return repository.verdicts(session, dispute_id, dispute.draw if draw is None else draw)


def report_state(session: Session, dispute_id: str, provider: str, state_cid: str) -> Dispute:
    """Note where the provider says that the start state of the named step is; it may say so anew.

    Raises:
        DisputeNotFound: no final block has the dispute.
        NotDisputedProvider: the caller is not whose unit is disputed.
        StepNotNamed: no state is wanted.
    """
    dispute = repository.lock_dispute(session, get(session, dispute_id).id)
    assert dispute is not None
    _require_wanted(dispute, provider)
    dispute.state_cid = state_cid
    return dispute


def asked_of(dispute_id: str, provider: str, cid: str) -> Asked:
    """What the file ``cid`` would be for the disputed unit's provider.

    Raises as :func:`report_state`, and FileNotAsked: the named step does not start from such a file.
    """

    def asked(session: Session) -> Expected:
        dispute = get(session, dispute_id)
        _require_wanted(dispute, provider)
        return of_disputed_unit(session, dispute.unit_key, dispute.step or 0, cid)

    return asked


def release_states(database: Database, storage: Storage) -> int:
    """Forget what was uploaded for disputes, of every unit whose disputes are all over, as final blocks have them."""
    with database.transaction() as session:
        disputed = [dispute.unit_key for dispute in repository.open_disputes(session)]
    return uploads.release_disputed(database, storage, disputed)


def _require_wanted(dispute: Dispute, provider: str) -> None:
    if dispute.provider != provider:
        raise NotDisputedProvider(f"The unit is one of {dispute.provider}.")
    if dispute.step is None or dispute.status not in DISPUTE_OPEN:
        raise StepNotNamed(f"The dispute is {dispute.status}.", field="dispute_id")
