"""Moving disputes on: calls that are due, that anybody may make, and that nobody else may care to make.

The table says which disputes are open, the chain's newest block what is due in each: a call that somebody else has made
is not asked for. What is asked for goes through the sender, exactly once, within its limits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import cast

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import Disputes, DisputesDispute, DisputesUnit, JobEscrow, UnitCommitment
from market.chain.contracts.codec import Call
from market.chain.requests import request_call, should_retry
from market.chain.views import ChainViews
from market.domain.lifecycle import DISPUTE_STATUSES, DisputeStatus
from market.domain.network import NetworkParameters
from market.payments.settlement import claims
from market.payments.settlement import contested_units as settlement
from market.platform.db.base import utc_now
from market.platform.db.session import Database
from market.verification.disputes import repository as disputes_repository
from market.verification.disputes.models import Verdict

KEPT_SHARE = 4
"""In the last quarter of a committee's time, signatures that do not decide are sent too: who signed stays listed."""


_PARTYS_TURNS = (DisputeStatus.TRACE, DisputeStatus.STEP)


_HELD_TURNS = (*_PARTYS_TURNS, DisputeStatus.DRAWING, DisputeStatus.JUDGING)


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Due:
    """A call that is due. ``key`` names this occasion: a later draw is another."""

    key: str
    call: Call


def keep(database: Database, network: NetworkParameters, chain: ChainViews) -> None:
    """Ask for every call that is due in a dispute or for a withheld unit; nothing while another worker is at it.

    Raises:
        ChainError: the chain does not answer; nothing was asked for.
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
            for (dispute_id, _), state, unit in zip(open_ids, disputes, units, strict=False):
                committee = _committee(session, dispute_id, state)
                due = due_in_dispute(dispute_id, state, unit, head.number, head.timestamp, committee)
                _ask(session, dispute_id, due)
                if due is None and committee is not None:
                    verdicts = disputes_repository.verdicts(session, dispute_id, state["draw"])
                    for ballot in due_ballots(state, committee, verdicts, network, head.timestamp):
                        _ask(session, dispute_id, due_vote(dispute_id, state["draw"], ballot))
            kept = dict(held)
            contested = {key for (_, key), unit in zip(open_ids, units, strict=False) if unit["open"] or unit["unpaid"]}
            for key in sorted(contested | lost):
                _withhold(session, key, head.timestamp, kept.get(key))
            for (key, batch_id), unit in zip(held, units[len(open_ids) :], strict=True):
                claimable_at = claims.claimable_at(session, batch_id)
                _ask(session, key, due_for_unit(key, unit, claimable_at, head.timestamp))


@dataclass(frozen=True, slots=True)
class Ballot:
    """Signatures of a committee for one outcome; empty ones for those who signed none."""

    provider_correct: bool
    committee: Sequence[str]
    signatures: Sequence[str]


def ballots(committee: Sequence[str], verdicts: Sequence[Verdict], least: int) -> Iterator[Ballot]:
    """Each outcome that at least ``least`` members signed; from a quorum on, more than half of them, that is one."""
    for outcome in (True, False):
        signed = {verdict.referee: verdict.signature for verdict in verdicts if verdict.provider_correct is outcome}
        if len(signed) >= least:
            yield Ballot(outcome, committee, [signed.get(referee, "0x") for referee in committee])


def due_in_dispute(
    dispute_id: str,
    state: DisputesDispute,
    unit: DisputesUnit,
    block: int,
    time: int,
    committee: Sequence[str] | None,
) -> Due | None:
    """What is due in a dispute as of a block, if anything but the committee's votes.

    Args:
        state, unit: the contract's, as of that block.
        block, time: its number and Unix time.
        committee: the present one; None: it is not known yet, or there is none.
    """
    status, draw = DISPUTE_STATUSES[state["status"]], state["draw"]
    if unit["convicted"] and status in _HELD_TURNS:
        return Due(f"dismiss:{dispute_id}", Disputes.dismiss(dispute_id))
    if status is DisputeStatus.DRAWING and block > state["seedBlock"]:
        # Also where the seed's block is too long ago: then the same call sets a new one, which is another occasion.
        return Due(f"draw:{dispute_id}:{draw}:{state['seedBlock']}", Disputes.drawCommittee(dispute_id))
    if status in _PARTYS_TURNS and time > state["deadline"]:
        return Due(f"expire:{dispute_id}:{status}:{draw}", Disputes.expire(dispute_id))
    if status is DisputeStatus.JUDGING and time > state["deadline"]:
        if committee is None:
            return None
        return Due(f"replace:{dispute_id}:{draw}", Disputes.replaceCommittee(dispute_id, committee))
    return None


def due_ballots(
    state: DisputesDispute, committee: Sequence[str], verdicts: Sequence[Verdict], network: NetworkParameters, time: int
) -> list[Ballot]:
    """What a committee that still has time has signed, as far as it is to be sent now.

    A quorum waits a while for the others, who would not be paid, nor be seen to be wrong. What makes none is sent once
    the committee's time is nearly over: the contract keeps it.
    """
    if DISPUTE_STATUSES[state["status"]] is not DisputeStatus.JUDGING:
        return []
    period = network.disputes.verdict_seconds
    if len(verdicts) == len(committee) or time >= state["deadline"] - period + network.verdict_wait_seconds:
        decisive = list(ballots(committee, verdicts, network.disputes.quorum))
        if decisive:
            return decisive
    return list(ballots(committee, verdicts, 1)) if time > state["deadline"] - period // KEPT_SHARE else []


def due_vote(dispute_id: str, draw: int, ballot: Ballot) -> Due:
    """Sending what a committee has signed; other seats, or the other side, are another occasion."""
    call = Disputes.submitVerdict(dispute_id, ballot.provider_correct, ballot.committee, ballot.signatures)
    side, seats = "ny"[ballot.provider_correct], "".join("01"[bool(s[2:])] for s in ballot.signatures)
    return Due(f"verdict:{dispute_id}:{draw}:{side}{seats}", call)


def due_for_pay(unit_key: str, paid: settlement.Paid | None) -> Due | None:
    """Keeping back the pay of a unit that is disputed or lost, if a batch pays it that nobody can claim from yet."""
    if paid is None:
        return None
    unit = cast(UnitCommitment, asdict(paid.commitment))
    call = Disputes.withhold(unit, paid.batch_id, paid.price, paid.proof)
    return Due(_withholding(unit_key, paid.batch_id), call)


def _withholding(unit_key: str, batch_id: int) -> str:
    return f"withhold:{unit_key}:{batch_id}"


def due_for_unit(unit_key: str, unit: DisputesUnit, claimable_at: int | None, time: int) -> Due | None:
    """What is due for a unit whose pay is withheld: back to its provider, or to the payer.

    Args:
        claimable_at: from when on its batch's claims are open, Unix seconds; None: not known.
        time: of the chain's newest block.
    """
    if unit["open"] > 0:
        return None
    if not unit["unpaid"]:
        if time > unit["disputableUntil"]:
            return Due(f"restore:{unit_key}:{unit['disputableUntil']}", Disputes.restore(unit_key))
    elif claimable_at is not None and time >= claimable_at:
        return Due(f"return_struck:{unit_key}:{claimable_at}", JobEscrow.returnStruck(unit_key))
    return None


def _committee(session: Session, dispute_id: str, state: DisputesDispute) -> Sequence[str] | None:
    """Who judges, once final blocks have the draw."""
    dispute = disputes_repository.dispute(session, dispute_id)
    return None if dispute is None or dispute.draw != state["draw"] else dispute.committee


def _withhold(session: Session, unit_key: str, time: int, kept: int | None) -> None:
    """Keep a unit's pay out of the batch that pays it, unless it is of that one that it is ``kept`` back already.

    What was kept out of an earlier one that was vetoed is not. The proof is made of the whole batch, so not at every
    look until the call is final.
    """
    batch_id = settlement.paying_batch(session, unit_key, time)
    if batch_id is None or batch_id == kept:
        return
    if should_retry(session, key=_withholding(unit_key, batch_id), subject=_subject(unit_key)):
        _ask(session, unit_key, due_for_pay(unit_key, settlement.paid(session, unit_key, time)))


def _ask(session: Session, subject: str, due: Due | None) -> None:
    if due is None:
        return
    _log.info("due in a dispute", subject=subject, call=due.call["function"])
    request_call(session, key=due.key, kind="keep_dispute", subject=_subject(subject), **due.call)


def _subject(key: str) -> str:
    return f"dispute:{key}"
