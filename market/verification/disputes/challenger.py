"""The market as challenger: disputes work that replays refute, with a bond.

open → trace reveal by the provider → selection of the refuted segment → replay by a committee. Each step follows from
the dispute's state in the contract, so a restarted market continues and repeats no call. The dispute keeper draws the
committee and sends its verdict. :mod:`market.verification.decisions.unit_outcomes` applies the outcome.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from typing import cast

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import Disputes, JobOrder, UnitCommitment, ZenToken
from market.chain.contracts.codec import Call, to_json
from market.chain.service import intents_about, queue_intent, request_call
from market.chain.views import ChainViews
from market.domain.lifecycle import (
    CHALLENGE,
    DISPUTE_OPEN,
    DISPUTE_STATUSES,
    ChallengeEvent,
    ChallengeStatus,
    DisputeStatus,
    IntentStatus,
)
from market.domain.network import DisputeTerms
from market.domain.verification.dispute_routes import Reason
from market.platform.db.session import Database
from market.platform.events.service import apply_event, emit
from market.training.units.facts import UnitSummary
from market.verification.disputes import repository
from market.verification.disputes.models import Challenge
from zoo_protocol import messages
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.job_record import dispute_id, leaf_of

ALLOWANCE = 2**256 - 1
"""Allowance of the contract Disputes, which takes only the bonds of disputes that the account opens."""

_log = structlog.get_logger(__name__)
MAX_REFUSALS = 10
"""Refused openings, half a minute apart, before the operator decides."""


@dataclass(frozen=True, slots=True)
class Challenger:
    """The account that disputes units, and its chain."""

    address: str
    chain: ChainViews
    terms: DisputeTerms


@dataclass(frozen=True, slots=True)
class Ending:
    """Final outcome of a market's dispute; ``convicted_in``: the upheld one, if any."""

    status: ChallengeStatus
    reason: str | None
    step: int
    evidence_cid: str
    convicted_in: str | None


def record_challenge(
    session: Session,
    challenger: Challenger,
    unit: UnitSummary,
    *,
    order: messages.JobOrder,
    window_root: str,
    window_proof: list[str],
    open_by: datetime,
    step: int,
    evidence_cid: str,
) -> str:
    """Record a dispute of segment ``step`` and return its id; :func:`advance` opens it."""
    commitment = unit.commitment
    key = to_hex(leaf_of(commitment))
    call = Disputes.open(
        cast(JobOrder, asdict(order)),
        cast(UnitCommitment, asdict(commitment)),
        unit.commitment_signature,
        window_root,
        window_proof,
    )
    challenge = Challenge(
        unit_id=unit.id,
        dispute_id=dispute_id(key, challenger.address),
        unit_key=key,
        job_id=commitment.jobId,
        round=commitment.round,
        slot=commitment.slot,
        provider=commitment.provider,
        challenger=challenger.address,
        step=step,
        status=ChallengeStatus.OPEN,
        evidence_cid=evidence_cid,
        open_by=open_by,
        arguments=[to_json(argument) for argument in call["arguments"]],
    )
    session.add(challenge)
    _emit(session, challenge)
    return challenge.dispute_id


def final_outcome(session: Session, unit_id: int) -> Ending | None:
    """Return the final outcome of the market's dispute of a unit; None if open or missing."""
    found = repository.lock_challenge(session, unit_id)
    if found is None:
        return None
    if found.status == ChallengeStatus.OPEN:
        _conclude(session, found)
    status = ChallengeStatus(found.status)
    if status is ChallengeStatus.OPEN:
        return None
    return Ending(status, found.reason, found.step, found.evidence_cid, found.convicted_in)


def was_disputed(session: Session, unit_id: int) -> bool:
    return session.get(Challenge, unit_id) is not None


def advance(database: Database, chain: ChainViews, terms: DisputeTerms, ours: Collection[str]) -> None:
    """Open recorded disputes and select segments, each in its own transaction.

    Calls that any account may make are left to :mod:`market.payments.settlement.dispute_keeper`.

    Args:
        ours: accounts whose keys are configured. The recorded account opens the dispute and selects its segment.
            Without that key the contract ends the dispute: unopened, the operator decides; without a segment it lapses.

    Raises:
        ChainError: the chain does not answer; the next call repeats the steps.
    """
    with database.transaction() as session:
        open_ = [(row.unit_id, row.dispute_id) for row in repository.open_challenges(session)]
    if not open_:
        return
    final, head = chain.client.finalised(), chain.client.head()
    views = [Disputes.disputes(id_) for _, id_ in open_]
    found = zip(open_, chain.many(views, head.hash), chain.many(views, final.hash), strict=True)
    may_pay = {account for account in ours if _may_pay(database, chain, terms, account)}
    for (unit_id, _), latest, settled in found:
        with database.transaction() as session:
            challenge = repository.lock_challenge(session, unit_id)
            if challenge is None or challenge.status != ChallengeStatus.OPEN:
                continue
            if _is_missed(challenge, settled["status"], final.timestamp):
                _end(session, challenge, ChallengeEvent.MISS, Reason.PERIOD_OVER)
                continue
            status = DISPUTE_STATUSES[latest["status"]]
            if challenge.challenger not in ours and status in (DisputeStatus.NONE, DisputeStatus.STEP):
                _warn_of_foreign_key(challenge.dispute_id, challenge.challenger, status)
            match status:
                case DisputeStatus.NONE if _is_refused(session, challenge):
                    _end(session, challenge, ChallengeEvent.MISS, Reason.OPEN_REFUSED)
                case DisputeStatus.NONE if challenge.challenger in may_pay:
                    opening = Call(contract="Disputes", function="open", arguments=challenge.arguments)
                    _request(session, challenge, opening, terms.bond_wei)
                case DisputeStatus.STEP if challenge.challenger in ours:
                    _request(session, challenge, Disputes.nameStep(challenge.dispute_id, challenge.step))


@cache
def _warn_of_foreign_key(dispute_id: str, account: str, status: DisputeStatus) -> None:
    """Log once that a dispute needs a missing key; the bond may be lost."""
    _log.error(
        "challenger_key_missing",
        dispute=dispute_id,
        account=account,
        status=status,
        remedy="Set ZOO_PREVIOUS_CHALLENGER_KEYSTORE (or _KEY) to this account's key until the dispute has ended.",
    )


def _conclude(session: Session, challenge: Challenge) -> None:
    """End the challenge if its own dispute has ended, or another dispute of the unit was upheld."""
    own = repository.dispute(session, challenge.dispute_id)
    if own is not None and own.status in DISPUTE_OPEN:
        return  # also if another dispute was upheld: the bond must come back first
    of_unit = repository.disputes_of_unit(session, challenge.unit_key)
    upheld = next((found for found in of_unit if found.status == DisputeStatus.PROVIDER_LOST), None)
    if upheld is not None:
        challenge.convicted_in = upheld.id
        reason = "trace_not_shown" if upheld.step is None else "incorrect_computation"
        _end(session, challenge, ChallengeEvent.WIN, reason)
    elif own is not None and own.status == DisputeStatus.CHALLENGER_LOST:
        if own.step is None:
            _end(session, challenge, ChallengeEvent.LAPSE, "dispute_lapsed")
        else:
            _end(session, challenge, ChallengeEvent.LOSE, "step_found_correct")
    elif own is not None:
        _end(session, challenge, ChallengeEvent.LEAVE_UNDECIDED, "dispute_undecided")


def _is_missed(challenge: Challenge, final_status: int, final_time: int) -> bool:
    """Return True if the dispute is not open at a final block after its last possible opening."""
    is_opened = DISPUTE_STATUSES[final_status] is not DisputeStatus.NONE
    return not is_opened and final_time > challenge.open_by.timestamp()


def _is_refused(session: Session, challenge: Challenge) -> bool:
    made = [intent for intent in intents_about(session, f"dispute:{challenge.dispute_id}") if intent.function == "open"]
    return sum(intent.status == IntentStatus.REVERTED for intent in made) >= MAX_REFUSALS


def _may_pay(database: Database, chain: ChainViews, terms: DisputeTerms, account: str) -> bool:
    """Return True if the contract may take the bond; otherwise request the allowance."""
    spender = chain.deployment.address("Disputes")
    (allowed,) = chain.many([ZenToken.allowance(account, spender)], "latest")
    if allowed >= terms.bond_wei:
        return True
    with database.transaction() as session:
        request_call(
            session,
            key=f"allow_bonds:{account}:{allowed}",
            kind="allow_bonds",
            subject=account,
            **ZenToken.approve(spender, ALLOWANCE),
            account=account,
        )
    return False


def _request(session: Session, challenge: Challenge, call: Call, amount: int = 0) -> None:
    request_call(
        session,
        key=f"dispute:{challenge.dispute_id}:{call['function']}",
        kind="dispute",
        subject=f"dispute:{challenge.dispute_id}",
        **call,
        amount=amount,
        account=challenge.challenger,
    )


def _end(session: Session, challenge: Challenge, event: ChallengeEvent, reason: str) -> None:
    """End the challenge and withdraw the credits for its bond and cost."""
    # The contract credits all disputes of an account together, so a call without credits is refused before it is sent.
    apply_event(session, challenge, CHALLENGE, event, subject=("challenge", challenge.dispute_id), reason=reason)
    _emit(session, challenge)
    queue_intent(
        session,
        key=f"dispute:{challenge.dispute_id}:withdraw",
        kind="withdraw_credits",
        subject=f"dispute:{challenge.dispute_id}",
        **Disputes.withdraw(),
        account=challenge.challenger,
    )


def _emit(session: Session, challenge: Challenge) -> None:
    data: dict[str, object] = {
        "state": challenge.status,
        "reason": challenge.reason,
        "dispute_id": challenge.dispute_id,
        "round": challenge.round,
        "slot": challenge.slot,
        "provider": challenge.provider,
        "step": challenge.step,
        "evidence_cid": challenge.evidence_cid,
    }
    emit(session, challenge.job_id, "dispute", data)
