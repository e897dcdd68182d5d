"""The market as challenger: it disputes work that replays refute, with a bond of an account that has no role.

open → the provider shows its trace → name the step that the replays refuted → a committee replays it. Each time
what is to be done follows from where the contract says that the dispute stands, so a market that was killed goes on,
and nothing is sent twice. The committee is drawn, and its verdict sent, by whoever keeps disputes going. What the end
means for unit, provider and verifiers is booked by :mod:`market.verification.judgement.decisions`.
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
from market.chain.requests import request_call
from market.chain.service import intents_about, queue_intent
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
from market.platform.events.service import emit, move
from market.verification.disputes import challenge_repository, repository
from market.verification.disputes.challenge_models import Challenge
from zoo_protocol import messages
from zoo_protocol.hashing import to_hex
from zoo_protocol.payments.job_record import dispute_id, leaf_of

ALLOWANCE = 2**256 - 1
"""Of the contract Disputes, which takes the bond of a dispute that the account opens and nothing else."""


_log = structlog.get_logger(__name__)


MOST_REFUSALS = 10
"""So often an opening is tried, half a minute apart, before it is left to the operator."""


@dataclass(frozen=True, slots=True)
class Challenger:
    """The account that disputes units, and the chain on which it does."""

    address: str
    chain: ChainViews
    terms: DisputeTerms


@dataclass(frozen=True, slots=True)
class Accusation:
    """A unit, and the step of it whose end is rejected."""

    unit_id: int
    order: messages.JobOrder
    commitment: messages.UnitCommitment
    signature: str
    window_root: str
    window_proof: list[str]
    open_by: datetime
    step: int
    evidence_cid: str


@dataclass(frozen=True, slots=True)
class Ending:
    """How a dispute of the market's ended; ``convicted_in`` names the dispute that convicted the unit, if one did."""

    status: ChallengeStatus
    reason: str | None
    step: int
    evidence_cid: str
    convicted_in: str | None


def accuse(session: Session, challenger: Challenger, accusation: Accusation) -> str:
    """Note that the unit is to be disputed; the dispute's id. It is opened in the background."""
    commitment = accusation.commitment
    key = to_hex(leaf_of(commitment))
    call = Disputes.open(
        cast(JobOrder, asdict(accusation.order)),
        cast(UnitCommitment, asdict(commitment)),
        accusation.signature,
        accusation.window_root,
        accusation.window_proof,
    )
    challenge = Challenge(
        unit_id=accusation.unit_id,
        dispute_id=dispute_id(key, challenger.address),
        unit_key=key,
        job_id=commitment.jobId,
        round=commitment.round,
        slot=commitment.slot,
        provider=commitment.provider,
        challenger=challenger.address,
        step=accusation.step,
        status=ChallengeStatus.OPEN,
        evidence_cid=accusation.evidence_cid,
        open_by=accusation.open_by,
        arguments=[to_json(argument) for argument in call["arguments"]],
    )
    session.add(challenge)
    _tell(session, challenge)
    return challenge.dispute_id


def ending(session: Session, unit_id: int) -> Ending | None:
    """How the market's dispute of a unit ended, as final events say; None while it has not, or if there is none."""
    found = challenge_repository.lock_challenge(session, unit_id)
    if found is None:
        return None
    if found.status == ChallengeStatus.OPEN:
        _conclude(session, found)
    status = ChallengeStatus(found.status)
    if status is ChallengeStatus.OPEN:
        return None
    return Ending(status, found.reason, found.step, found.evidence_cid, found.convicted_in)


def was_disputed(session: Session, unit_id: int) -> bool:
    """Whether the market has a dispute of the unit, whatever became of it."""
    return challenge_repository.challenge(session, unit_id) is not None


def advance(database: Database, chain: ChainViews, terms: DisputeTerms, ours: Collection[str]) -> None:
    """Open what is to be disputed, and name the steps of traces that were shown; each in its own transaction.

    What anybody may do in a dispute is left to :mod:`market.payments.settlement.dispute_keeper`.

    Args:
        ours: accounts whose keys are here. A dispute is opened, and its step named, by the account that it was noted
            with. Without that account's key it ends as the contract ends it: unopened it is left to the operator, and
            without a step it lapses.

    Raises:
        ChainError: the chain does not answer; what was due stays due.
    """
    with database.transaction() as session:
        open_ = [(row.unit_id, row.dispute_id) for row in challenge_repository.open_challenges(session)]
    if not open_:
        return
    final, head = chain.client.finalised(), chain.client.head()
    views = [Disputes.disputes(id_) for _, id_ in open_]
    found = zip(open_, chain.many(views, head.hash), chain.many(views, final.hash), strict=True)
    may_pay = {account for account in ours if _may_pay(database, chain, terms, account)}
    for (unit_id, _), latest, settled in found:
        with database.transaction() as session:
            challenge = challenge_repository.lock_challenge(session, unit_id)
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
                    _ask(session, challenge, opening, terms.bond_wei)
                case DisputeStatus.STEP if challenge.challenger in ours:
                    _ask(session, challenge, Disputes.nameStep(challenge.dispute_id, challenge.step))


@cache
def _warn_of_foreign_key(dispute_id: str, account: str, status: DisputeStatus) -> None:
    """Tell the operator, once a process, that only a key which is not here can go on with a dispute."""
    _log.error(
        "a dispute waits for an account whose key this market was not given; without it the bond may be lost",
        dispute=dispute_id,
        account=account,
        status=status,
        remedy="Set ZOO_PREVIOUS_CHALLENGER_KEYSTORE (or _KEY) to that account's until the dispute has ended.",
    )


def _conclude(session: Session, challenge: Challenge) -> None:
    """End the challenge if final events have ended it: its own dispute's, or those of one that convicted the unit."""
    own = repository.dispute(session, challenge.dispute_id)
    if own is not None and own.status in DISPUTE_OPEN:
        return  # also where another has convicted the unit: the bond comes back first
    of_unit = repository.disputes_of_unit(session, challenge.unit_key)
    convicting = next((found for found in of_unit if found.status == DisputeStatus.PROVIDER_LOST), None)
    if convicting is not None:
        challenge.convicted_in = convicting.id
        reason = "trace_not_shown" if convicting.step is None else "incorrect_computation"
        _end(session, challenge, ChallengeEvent.WIN, reason)
    elif own is not None and own.status == DisputeStatus.CHALLENGER_LOST:
        if own.step is None:
            _end(session, challenge, ChallengeEvent.LAPSE, "dispute_lapsed")
        else:
            _end(session, challenge, ChallengeEvent.LOSE, "step_found_correct")
    elif own is not None:
        _end(session, challenge, ChallengeEvent.LEAVE_UNDECIDED, "dispute_undecided")


def _is_missed(challenge: Challenge, final_status: int, final_time: int) -> bool:
    """Whether the contract will not open it any more, and has not, with finality."""
    is_opened = DISPUTE_STATUSES[final_status] is not DisputeStatus.NONE
    return not is_opened and final_time > challenge.open_by.timestamp()


def _is_refused(session: Session, challenge: Challenge) -> bool:
    """Whether the contract has refused to open it so often that it will not. No attempt can come after that."""
    made = [intent for intent in intents_about(session, f"dispute:{challenge.dispute_id}") if intent.function == "open"]
    return sum(intent.status == IntentStatus.REVERTED for intent in made) >= MOST_REFUSALS


def _may_pay(database: Database, chain: ChainViews, terms: DisputeTerms, account: str) -> bool:
    """Whether the contract may take the bond; if not, that is asked for, once and for all bonds."""
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


def _ask(session: Session, challenge: Challenge, call: Call, amount: int = 0) -> None:
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
    """End the challenge, and take what the contract gives back of the bond, with the cost if it was won.

    The contract credits all disputes of an account together: where there is nothing left to take, the call is refused
    before it is sent.
    """
    move(session, challenge, CHALLENGE, event, subject=("challenge", challenge.dispute_id), reason=reason)
    _tell(session, challenge)
    queue_intent(
        session,
        key=f"dispute:{challenge.dispute_id}:withdraw",
        kind="withdraw_credits",
        subject=f"dispute:{challenge.dispute_id}",
        **Disputes.withdraw(),
        account=challenge.challenger,
    )


def _tell(session: Session, challenge: Challenge) -> None:
    """The job's subscribers hear of it."""
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
