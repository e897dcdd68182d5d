"""Node deliveries: commitments first, then results that are checked against them.

Every call is idempotent. Storage is read with no session open; the outcome applies only if the lease is still held.
"""

import hmac
from collections.abc import Sequence

from eth_utils.address import to_checksum_address
from sqlalchemy.orm import Session

from market.domain.lifecycle import LeaseEvent, LeaseStatus, UnitEvent, UnitStatus
from market.domain.network import NetworkParameters
from market.jobs.models import Job, Slot
from market.platform.db.base import utc_now
from market.platform.db.session import Database, enqueue_after_commit
from market.platform.http.errors import InvalidSignature, StorageDown
from market.platform.storage.client import Storage
from market.platform.storage.errors import StorageError
from market.training.commitments.errors import CommitmentChanged, CommitmentTooEarly
from market.training.commitments.schemas import AcknowledgementView
from market.training.commitments.service import Acknowledger, acknowledge
from market.training.deliveries.checks import Completion, Refusal, check, requested_digest, require_kind
from market.training.leases import evaluations
from market.training.leases import repository as leases_repository
from market.training.leases.errors import ResultRefused, WrongStep
from market.training.leases.models import Lease
from market.training.leases.schemas import (
    CommitReplay,
    CommitTraining,
    CompleteEvaluation,
    CompleteFollow,
    CompletePin,
    CompletePublish,
    CompleteReplay,
    CompleteReveal,
    CompleteTraining,
    LeaseKind,
)
from market.training.leases.service import abandon, free_after_training, lock_held, mark_first_step, require_held
from market.training.leases.transitions import transition_lease
from market.training.leases.verification_hooks import hooks
from market.training.replication import slot_state_uploads
from market.training.replication.pins import record_pin
from market.training.units import repository as units_repository
from market.training.units import slot_states
from market.training.units.models import Unit
from market.training.units.transitions import transition_unit
from market.training.uploads import service as uploads
from training_gym.exchange.deadlines import MAX_STALENESS
from zoo_protocol.messages import Domain, ReplayCommitment, UnitCommitment, recover_strictly, typed_data


def commit(
    session: Session,
    network: NetworkParameters,
    domain: Domain,
    acknowledger: Acknowledger,
    lease_id: str,
    address: str,
    commitment: CommitTraining | CommitReplay,
) -> AcknowledgementView | None:
    """Record a node's commitment to its result; return the acknowledgement of a unit commitment.

    Raises:
        LeaseLost; WrongStep: the lease takes no such commitment; InvalidSignature: it is not the holder's;
        CommitmentChanged: another result was committed before; CommitmentRepeated: an earlier unit has the same one;
        CommitmentTooEarly: no node of the tier could have computed it.
    """
    job, unit, lease = lock_held(session, lease_id, address, commitment.token)
    if isinstance(commitment, CommitReplay):
        require_kind(lease, LeaseKind.REPLAY)
        signed = _replay_commitment(lease, commitment.result_hash)
        _require_signed(domain, signed, address, commitment.commitment_signature)
        hooks().replay_committed(session, lease, commitment.result_hash, commitment.commitment_signature)
        return None
    require_kind(lease, LeaseKind.TRAIN)
    assert unit is not None  # every train lease has one
    message = UnitCommitment(
        jobId=job.id,
        round=unit.round,
        slot=unit.slot,
        provider=address,
        traceRoot=commitment.trace_root,
        payloadHash=commitment.payload_hash,
    )
    _require_signed(domain, message, address, commitment.commitment_signature)
    if unit.status == UnitStatus.LEASED:
        if lease.task.get("probe") and unit.probe is None:
            raise WrongStep("The node has not sent the job's probe.", remedy="Send its digest in a heartbeat first.")
        earliest = unit.created_at + network.min_unit_time(job.tier_id, job.unit_weight_us)
        if utc_now() < earliest:
            raise CommitmentTooEarly(f"It cannot be done before {earliest.isoformat()}.")
        unit.trace_root = commitment.trace_root
        unit.payload_hash = commitment.payload_hash
        unit.commitment_signature = commitment.commitment_signature
        unit.committed_at = utc_now()
        transition_unit(session, unit, UnitEvent.COMMIT, at=unit.committed_at)
        mark_first_step(session, job.id, unit.committed_at)
        if commitment.declared is not None and slot_states.continues_on_delivery(job):
            unit.payload_cid, unit.slot_state_cid, unit.slot_state_digest = commitment.declared
            slot_states.set_next_start_state(session, session.get_one(Slot, (unit.job_id, unit.slot)), unit)
            enqueue_after_commit(session, "jobs.dispatch", job.id)
    elif (unit.trace_root, unit.payload_hash) != (commitment.trace_root, commitment.payload_hash):
        raise CommitmentChanged(f"This unit's trace root was committed as {unit.trace_root}.", field="trace_root")
    return acknowledge(session, acknowledger, unit, message)


def complete(database: Database, storage: Storage, lease_id: str, address: str, result: Completion) -> None:
    """Check and apply a node's result; one that differs from the commitment ends the lease.

    Raises:
        LeaseLost; WrongStep; ResultRefused: the result is not accepted; StorageDown: nothing was changed.
    """
    with database.transaction() as session:
        lease = leases_repository.lease(session, lease_id)
        found = None if lease is None or lease.unit_id is None else units_repository.unit(session, lease.unit_id)
        if lease is not None:
            session.refresh(lease)  # read after the unit: the lease of a unit delivered just now is done
        if _is_done(lease, address, result.token):
            return
        lease = require_held(lease, address, result.token, utc_now())
        if (
            found is not None
            and lease.kind == LeaseKind.TRAIN
            and units_repository.has_pending_upload(session, found[1])
        ):
            detail = "An earlier unit of this slot is committed and not delivered."
            raise WrongStep(detail, remedy="Complete that one first.")
    checked = check(storage, lease, found, result)
    if not isinstance(checked, Refusal):
        _pin_files(storage, [cid for cid in _files_of(result) if cid is not None])
    with database.transaction() as session:
        locked = leases_repository.lock_lease(session, lease_id)
        assert locked is not None  # leases are deleted only long after their job has ended
        job, unit, lease = locked
        if _is_done(lease, address, result.token):
            return  # a concurrent call delivered the same result
        require_held(lease, address, result.token, utc_now())
        if not isinstance(checked, Refusal):
            _accept(session, job, unit, lease, result, checked)
        elif lease.kind != LeaseKind.REVEAL:  # a reveal may be repeated until its deadline
            abandon(session, job, unit, lease, LeaseEvent.FAIL, checked.reason, checked.detail)
    if isinstance(checked, Refusal):
        raise ResultRefused(checked.detail, field=checked.field, extra={"reason": checked.reason})


def _pin_files(storage: Storage, cids: Sequence[str]) -> None:
    """Pin accepted files that storage serves without a pin."""
    try:
        for cid in cids:
            if not storage.is_pinned(cid):
                storage.pin(cid, size=storage.stat(cid))
    except StorageError as error:
        raise StorageDown(str(error)) from error


def _is_done(lease: Lease | None, address: str, token: str) -> bool:
    return (
        lease is not None
        and lease.status == LeaseStatus.DONE
        and lease.holder == address
        and hmac.compare_digest(lease.token, token)
    )


def _accept(session: Session, job: Job, unit: Unit | None, lease: Lease, result: Completion, size: int) -> None:
    now = utc_now()
    match result:
        case CompleteTraining():
            assert unit is not None
            declared = unit.payload_cid is not None
            unit.payload_cid = result.payload_cid
            unit.payload_sha256 = result.payload_sha256
            unit.salt = result.salt
            unit.slot_state_cid, unit.slot_state_digest = result.slot_state_cid, result.slot_state_digest
            unit.leaves = list(result.leaves)
            unit.uploaded_bytes = size
            unit.train_loss, unit.evaluation = result.train_loss, result.evaluation or None
            unit.report = None if result.report is None else result.report.model_dump()
            unit.uploaded_at = now
            lease.step = result.steps
            _record_lateness(session, job, unit, declared)
            transition_unit(session, unit, UnitEvent.UPLOAD, at=now)
            free_after_training(session, job, lease.holder)
            enqueue_after_commit(session, "jobs.dispatch", job.id)
            enqueue_after_commit(session, "verification.advance")
        case CompleteReveal():
            if (cid := lease.task["slot_state_cid"]) is not None:
                assert unit is not None
                units_repository.make_state_public(session, job.id, cid, requested_digest(unit, lease.task))
            hooks().state_revealed(session, lease, result.state_cid)
        case CompleteReplay():
            hooks().replay_revealed(
                session, lease, result.end_leaf, result.salt, result.end_state_cid, result.inner_digest
            )
        case CompletePin():
            record_pin(session, lease, result.proof, size)
            enqueue_after_commit(session, "jobs.dispatch", job.id)
        case CompletePublish():
            assert unit is not None
            slot_state_uploads.published(session, lease, unit)
            enqueue_after_commit(session, "jobs.dispatch", job.id)
        case CompleteFollow():
            pass  # the lease status is the record
        case CompleteEvaluation():
            evaluations.record_result(session, job, lease, result.record)
            enqueue_after_commit(session, "jobs.dispatch", job.id)
    uploads.hand_over(session, lease, _files_of(result))
    transition_lease(session, lease, LeaseEvent.COMPLETE, at=now)


def _files_of(result: Completion) -> list[str | None]:
    match result:
        case CompleteTraining():
            return [result.payload_cid]
        case CompleteReveal():
            return [result.state_cid, result.slot_state_cid]
        case CompleteReplay():
            return [result.end_state_cid]
        case CompletePublish():
            return [result.published_cid]
        case CompletePin() | CompleteFollow() | CompleteEvaluation():
            return []


def _record_lateness(session: Session, job: Job, unit: Unit, declared: bool) -> None:
    """Record by how many rounds a unit is late; set the start state that waited for it."""
    # A late unit is verified and paid like any other. A payload that is too late to be aggregated is restored. A
    # ``declared`` state was set at the commitment, and the replica may have continued from it.
    unit.rounds_late = max(0, job.current_round - unit.round)
    is_continued = unit.rounds_late or slot_states.continues_on_delivery(job)
    if not is_continued or slot_states.is_rolled_back(unit):
        return
    if job.current_round == job.rounds:
        unit.included, unit.exclusion_reason = False, "late"
        return
    if unit.rounds_late > MAX_STALENESS:
        unit.included, unit.exclusion_reason, unit.to_restore = False, "too_late", True
    if not declared:
        slot_states.set_next_start_state(session, session.get_one(Slot, (unit.job_id, unit.slot)), unit)


def _replay_commitment(lease: Lease, result_hash: str) -> ReplayCommitment:
    task = lease.task
    place = task["job_id"], task["round"], task["slot"], task["segment"]
    verifier_class = task.get("verifier_class") or task["environment"]
    return ReplayCommitment(*place, task["start_leaf"], verifier_class, result_hash)


def _require_signed(domain: Domain, message: UnitCommitment | ReplayCommitment, address: str, signature: str) -> None:
    """Require a canonical signature of contract Disputes, without which none can be opened."""
    try:
        signer = recover_strictly(typed_data(domain, message), signature)
    except ValueError:
        signer = "no key"
    if signer != to_checksum_address(address):
        raise InvalidSignature(
            f"The commitment's signature recovers to {signer}, the lease is held by {address}.",
            field="commitment_signature",
            remedy=f"Sign the EIP-712 {type(message).__name__} of this lease with the node's wallet, in the "
            "contracts' form: 65 bytes, the lower s, v 27 or 28.",
        )
