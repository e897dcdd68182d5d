"""Permissionless calls that advance disputes and held payouts, made by the market if due.

The database lists the open disputes, and the chain's newest block gives the state of each. Calls go through the sender,
each once and within its limits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import cast

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import Disputes, DisputesDispute, DisputesUnit, JobEscrow, UnitCommitment
from market.chain.contracts.codec import Call
from market.chain.rpc.client import Block
from market.chain.service import request_call, should_retry
from market.chain.views import ChainViews
from market.domain.lifecycle import DISPUTE_STATUSES, DisputeStatus
from market.domain.network import NetworkParameters
from market.payments.settlement import claims
from market.payments.settlement import contested_units as settlement
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.verification.disputes import repository as disputes_repository
from market.verification.disputes.models import Verdict
from market.verification.samples.service import window_of
from market.verification.windows.omissions import inclusion_proof

PARTIAL_BALLOT_DIVISOR = 4
"""In the last quarter of a committee's period, also signatures below the quorum are sent: signers stay listed."""
_PARTY_STATUSES = (DisputeStatus.TRACE, DisputeStatus.STEP)
_DISMISSIBLE = (*_PARTY_STATUSES, DisputeStatus.DRAWING, DisputeStatus.JUDGING)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DueCall:
    """A due call. ``key`` is its idempotency key; a later draw has another one."""

    key: str
    call: Call


def queue_due_calls(database: Database, network: NetworkParameters, chain: ChainViews) -> None:
    """Queue every due call of disputes and held payouts, under an advisory lock.

    Raises:
        ChainError: the chain does not answer. Nothing is queued.
    """
    with database.advisory_lock("disputes") as alone:
        if not alone:
            return
        with database.transaction() as session:
            open_ids = [(dispute.id, dispute.unit_key) for dispute in disputes_repository.open_disputes(session)]
            held = [(unit.unit_key, unit.batch_id) for unit in disputes_repository.withheld_units(session)]
            lost = settlement.lost_in_batches(session, utc_now())
        if not open_ids and not held and not lost:
            return
        head = chain.client.head()
        disputes = chain.many([Disputes.disputes(dispute_id) for dispute_id, _ in open_ids], head.hash)
        keys = [key for _, key in open_ids] + [key for key, _ in held]
        units = chain.many([Disputes.units(key) for key in keys], head.hash)
        with database.transaction() as session:
            for (dispute_id, unit_key), state, unit in zip(open_ids, disputes, units, strict=False):
                _advance(session, network, dispute_id, unit_key, state, unit, head)
            holds = dict(held)
            contested = {key for (_, key), unit in zip(open_ids, units, strict=False) if unit["open"] or unit["unpaid"]}
            for key in sorted(contested | lost):
                _withhold(session, key, head.timestamp, holds.get(key))
            for (key, batch_id), unit in zip(held, units[len(open_ids) :], strict=True):
                claimable_at = claims.claimable_at(session, batch_id)
                _request(session, key, due_for_unit(key, unit, claimable_at, head.timestamp))


def _advance(
    session: Session,
    network: NetworkParameters,
    dispute_id: str,
    unit_key: str,
    state: DisputesDispute,
    unit: DisputesUnit,
    head: Block,
) -> None:
    """Queue the due call of a dispute, or the ballots of its committee."""
    committee = _committee(session, dispute_id, state)
    due = due_in_dispute(dispute_id, state, unit, head.number, head.timestamp, committee)
    due = due or _due_if_late(session, network, dispute_id, unit_key, state)
    _request(session, dispute_id, due)
    if due is None and committee is not None:
        verdicts = disputes_repository.verdicts(session, dispute_id, state["draw"])
        for ballot in due_ballots(state, committee, verdicts, network, head.timestamp):
            _request(session, dispute_id, due_vote(dispute_id, state["draw"], ballot))


@dataclass(frozen=True, slots=True)
class Ballot:
    """Signatures of a committee for one outcome, by seat; "0x" for members without one."""

    provider_correct: bool
    committee: Sequence[str]
    signatures: Sequence[str]


def ballots(committee: Sequence[str], verdicts: Sequence[Verdict], min_signatures: int) -> Iterator[Ballot]:
    """Yield each outcome with at least ``min_signatures``; at most one has a quorum."""
    for outcome in (True, False):
        signed = {verdict.referee: verdict.signature for verdict in verdicts if verdict.provider_correct is outcome}
        if len(signed) >= min_signatures:
            yield Ballot(outcome, committee, [signed.get(referee, "0x") for referee in committee])


def due_in_dispute(
    dispute_id: str,
    state: DisputesDispute,
    unit: DisputesUnit,
    block: int,
    time: int,
    committee: Sequence[str] | None,
) -> DueCall | None:
    """Return the due call of a dispute at a block, except the committee's votes.

    Args:
        state, unit: in the contract at that block.
        block, time: number and Unix time of the block.
        committee: the current one, if it is known.
    """
    status, draw = DISPUTE_STATUSES[state["status"]], state["draw"]
    if unit["convicted"] and status in _DISMISSIBLE:
        return DueCall(f"dismiss:{dispute_id}", Disputes.dismiss(dispute_id))
    if status is DisputeStatus.DRAWING and block > state["seedBlock"]:
        # If the seed's block is too old, the same call sets a new one, which gives a new key.
        return DueCall(f"draw:{dispute_id}:{draw}:{state['seedBlock']}", Disputes.drawCommittee(dispute_id))
    if status in _PARTY_STATUSES and time > state["deadline"]:
        return DueCall(f"expire:{dispute_id}:{status}:{draw}", Disputes.expire(dispute_id))
    if status is DisputeStatus.JUDGING and time > state["deadline"]:
        if committee is None:
            return None
        return DueCall(f"replace:{dispute_id}:{draw}", Disputes.replaceCommittee(dispute_id, committee))
    return None


def _due_if_late(
    session: Session, network: NetworkParameters, dispute_id: str, unit_key: str, state: DisputesDispute
) -> DueCall | None:
    """Return the call that rejects a dispute opened after the period of the unit's window."""
    terms = network.disputes
    window = window_of(session, unit_key) if DISPUTE_STATUSES[state["status"]] is DisputeStatus.TRACE else None
    if window is None or window.committed_at is None:
        return None
    end = int(window.committed_at.timestamp()) + terms.period_seconds
    if state["deadline"] - terms.turn_seconds <= end:
        return None
    proof = inclusion_proof(session, window, unit_key)
    return DueCall(f"late:{dispute_id}", Disputes.rejectLate(dispute_id, window.root, proof))


def due_ballots(
    state: DisputesDispute, committee: Sequence[str], verdicts: Sequence[Verdict], network: NetworkParameters, time: int
) -> list[Ballot]:
    """Return the ballots of a committee within its period that are to be sent now.

    A quorum waits some time for the other members, which otherwise would be neither paid nor found wrong. A ballot
    below the quorum is sent near the end of the period, and the contract stores it.
    """
    if DISPUTE_STATUSES[state["status"]] is not DisputeStatus.JUDGING:
        return []
    period = network.disputes.verdict_seconds
    if len(verdicts) == len(committee) or time >= state["deadline"] - period + network.verdict_wait_seconds:
        decisive = list(ballots(committee, verdicts, network.disputes.quorum))
        if decisive:
            return decisive
    return list(ballots(committee, verdicts, 1)) if time > state["deadline"] - period // PARTIAL_BALLOT_DIVISOR else []


def due_vote(dispute_id: str, draw: int, ballot: Ballot) -> DueCall:
    """Return the call that submits a ballot. Its key includes the outcome and the signed seats."""
    call = Disputes.submitVerdict(dispute_id, ballot.provider_correct, ballot.committee, ballot.signatures)
    side, seats = "ny"[ballot.provider_correct], "".join("01"[bool(s[2:])] for s in ballot.signatures)
    return DueCall(f"verdict:{dispute_id}:{draw}:{side}{seats}", call)


def due_hold(unit_key: str, paid: settlement.Paid | None) -> DueCall | None:
    """Return the call that holds the payout of a disputed or lost unit."""
    if paid is None:
        return None
    unit = cast(UnitCommitment, asdict(paid.commitment))
    call = Disputes.withhold(unit, paid.batch_id, paid.price, paid.proof)
    return DueCall(_hold_key(unit_key, paid.batch_id), call)


def _hold_key(unit_key: str, batch_id: int) -> str:
    return f"withhold:{unit_key}:{batch_id}"


def due_for_unit(unit_key: str, unit: DisputesUnit, claimable_at: int | None, time: int) -> DueCall | None:
    """Return the call that restores a held payout, or refunds a forfeited one.

    Args:
        claimable_at: Unix time from which its batch's claims are open, if known.
        time: Unix time of the chain's newest block.
    """
    if unit["open"] > 0:
        return None
    if not unit["unpaid"]:
        if time > unit["disputableUntil"]:
            return DueCall(f"restore:{unit_key}:{unit['disputableUntil']}", Disputes.restore(unit_key))
    elif claimable_at is not None and time >= claimable_at:
        return DueCall(f"return_struck:{unit_key}:{claimable_at}", JobEscrow.returnStruck(unit_key))
    return None


def _committee(session: Session, dispute_id: str, state: DisputesDispute) -> Sequence[str] | None:
    dispute = disputes_repository.dispute(session, dispute_id)
    return None if dispute is None or dispute.draw != state["draw"] else dispute.committee


def _withhold(session: Session, unit_key: str, time: int, kept: int | None) -> None:
    """Hold a unit's payout in its batch, unless batch ``kept`` holds it already."""
    # A hold in an earlier, vetoed batch does not count. The proof needs the whole batch, so it is built only for a
    # retry.
    batch_id = settlement.paying_batch(session, unit_key, time)
    if batch_id is None or batch_id == kept:
        return
    if should_retry(session, key=_hold_key(unit_key, batch_id), subject=_subject(unit_key)):
        _request(session, unit_key, due_hold(unit_key, settlement.paid(session, unit_key, time)))


def _request(session: Session, subject: str, due: DueCall | None) -> None:
    if due is None:
        return
    _log.info("dispute_call_due", subject=subject, call=due.call["function"])
    request_call(session, key=due.key, kind="keep_dispute", subject=_subject(subject), **due.call)


def _subject(key: str) -> str:
    return f"dispute:{key}"
