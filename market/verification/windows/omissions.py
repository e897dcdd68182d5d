"""Acknowledged commitments: where each stands in its window, and claims on chain that one was left out.

Who shows a claimed unit in a window that was committed in time gets the claimant's stake; who cannot pays from the
operator's bond (contract Omissions). So every open claim that can be answered is answered.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts import bindings
from market.chain.contracts.bindings import Omissions
from market.chain.contracts.codec import ChainEvent
from market.chain.requests import request_call
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
from zoo_protocol.messages import UnitCommitment
from zoo_protocol.payments.job_record import leaf_of

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Outstanding:
    """How many promises are not kept yet, how many of them should be, and how many claims are open."""

    acknowledgements: int
    late: int
    open_claims: int


def outstanding(session: Session) -> Outstanding:
    """For the metrics."""
    on_their_way = [window.id for window in repository.windows(session, WindowStatus.CLOSED)]
    acknowledgements, late = commitments.outstanding_acknowledgements(session, on_their_way)
    return Outstanding(acknowledgements, late, repository.count_open_omissions(session))


def claims_of(session: Session, provider: str, limit: int) -> Sequence[OmissionClaim]:
    """A provider's claims, the newest first."""
    return repository.omissions_of(session, provider, limit)


def answer_claims(database: Database) -> None:
    """See to it that every open claim on a unit that was included in time is being answered."""
    with database.transaction() as session:
        for claim in repository.open_omissions(session, utc_now()):
            found = commitments.acknowledged_unit(session, claim.leaf)
            if found is None or found[1].window_id is None:
                continue
            window = repository.window(session, found[1].window_id)
            if window is None or window.committed_at is None or window.committed_at > claim.include_by:
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
    """Handler of the final ClaimOpened event."""
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
    _log.error("a provider claims that its commitment was left out", leaf=claim.leaf, provider=claim.provider)
    enqueue_after_commit(session, ADVANCE)


def on_claim_answered(session: Session, event: ChainEvent) -> None:
    """Handler of the final ClaimAnswered event."""
    claim = repository.lock_omission(session, event.args["unitId"])
    if claim is not None and claim.status == OmissionStatus.OPEN:
        claim.tx = event.tx_hash
        transition_omission(session, claim, OmissionEvent.ANSWER)


def on_compensated(session: Session, event: ChainEvent) -> None:
    """Handler of the final Compensated event: the bond paid for a commitment that was left out."""
    claim = repository.lock_omission(session, event.args["unitId"])
    if claim is not None and claim.status == OmissionStatus.OPEN:
        claim.tx, claim.compensation_wei = event.tx_hash, event.args["compensation"]
        transition_omission(session, claim, OmissionEvent.COMPENSATE)
        _log.error("paid for an omitted commitment", leaf=claim.leaf, amount_wei=str(claim.compensation_wei))


def proof_of(session: Session, window: Window, commitment: UnitCommitment) -> list[str]:
    """The way from a commitment's leaf to the root of its window, 0x hex."""
    return inclusion_proof(session, window, to_hex(leaf_of(commitment)))


def inclusion_proof(session: Session, window: Window, leaf: str) -> list[str]:
    leaves = commitments.window_leaves(session, window.id)
    return [to_hex(node) for node in merkle.proof(leaves, leaves.index(from_hex(leaf)))]
