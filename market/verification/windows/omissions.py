"""Omission claims, and proofs of inclusion for acknowledged commitments.

A timely window with the claimed unit earns the claimant's stake. Without one the operator's bond pays (contract
Omissions). So every open claim that can be answered is answered.
"""

from dataclasses import asdict, dataclass

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts import bindings
from market.chain.contracts.bindings import Omissions
from market.chain.contracts.codec import ChainEvent
from market.chain.service import request_call
from market.domain.verification.lifecycle import OmissionEvent, OmissionStatus, WindowStatus
from market.platform.db.base import from_unix, utc_now
from market.platform.db.session import Database, enqueue_after_commit
from market.training.commitments import service as commitments
from market.verification.windows import repository
from market.verification.windows.models import OmissionClaim, Window
from market.verification.windows.service import ADVANCE
from market.verification.windows.transitions import transition_omission
from zoo_protocol import merkle
from zoo_protocol.hashing import from_hex, to_hex

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Outstanding:
    """Unfulfilled acknowledgements, those past their deadline, and open claims."""

    acknowledgements: int
    late: int
    open_claims: int


def outstanding(session: Session) -> Outstanding:
    """Return the counts for the metrics."""
    on_their_way = [window.id for window in repository.windows(session, WindowStatus.CLOSED)]
    acknowledgements, late = commitments.outstanding_acknowledgements(session, on_their_way)
    return Outstanding(acknowledgements, late, repository.count_open_omissions(session))


def answer_claims(database: Database) -> None:
    """Request an answer to every open claim on a unit that was included in time."""
    with database.transaction() as session:
        for claim in repository.open_omissions(session, utc_now()):
            found = commitments.acknowledged_unit(session, claim.leaf)
            if found is None or found[1].window_id is None:
                continue
            window = repository.window(session, found[1].window_id)
            if window.committed_at is None or window.committed_at > claim.include_by:
                continue
            unit: bindings.UnitCommitment = asdict(found[1].commitment)  # type: ignore[assignment]
            request_call(
                session,
                key=f"answer_omission:{claim.leaf}",
                kind="answer_omission",
                subject=f"omission:{claim.leaf}",
                **Omissions.respond(unit, window.root, inclusion_proof(session, window, claim.leaf)),
            )


def on_claim_opened(session: Session, event: ChainEvent) -> None:
    args = event.args
    if repository.lock_omission(session, args["unitId"]) is not None:
        return
    claim = OmissionClaim(
        leaf=args["unitId"],
        provider=args["provider"],
        status=OmissionStatus.OPEN,
        include_by=from_unix(args["includeBy"]),
        deadline=from_unix(args["deadline"]),
    )
    session.add(claim)
    _log.error("omission_claimed", leaf=claim.leaf, provider=claim.provider)
    enqueue_after_commit(session, ADVANCE)


def on_claim_answered(session: Session, event: ChainEvent) -> None:
    claim = repository.lock_omission(session, event.args["unitId"])
    if claim is not None and claim.status == OmissionStatus.OPEN:
        claim.tx = event.tx_hash
        transition_omission(session, claim, OmissionEvent.ANSWER)


def on_compensated(session: Session, event: ChainEvent) -> None:
    claim = repository.lock_omission(session, event.args["unitId"])
    if claim is not None and claim.status == OmissionStatus.OPEN:
        claim.tx, claim.compensation_wei = event.tx_hash, event.args["compensation"]
        transition_omission(session, claim, OmissionEvent.COMPENSATE)
        _log.error("omission_compensated", leaf=claim.leaf, amount_wei=str(claim.compensation_wei))


def inclusion_proof(session: Session, window: Window, leaf: str) -> list[str]:
    """Return the Merkle proof from a commitment's leaf to its window's root, 0x hex."""
    leaves = commitments.window_leaves(session, window.id)
    return [to_hex(node) for node in merkle.proof(leaves, leaves.index(from_hex(leaf)))]
