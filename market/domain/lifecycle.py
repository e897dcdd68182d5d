"""State machines: ``{(state, event): next_state}``. Other transitions are illegal.

:mod:`market.domain.verification.lifecycle` has those of verification. Status and reason are separate columns. Every
transition writes an audit event.
"""

from enum import StrEnum
from typing import TypeVar


class IllegalTransition(Exception):
    """The event is not allowed in this state."""

    def __init__(self, machine: str, state: str, event: str) -> None:
        super().__init__(f"{machine}: event {event!r} is not allowed in state {state!r}")
        self.machine, self.state, self.event = machine, state, event


class JobStatus(StrEnum):
    SUBMITTED = "submitted"  # order accepted; its escrow is not final yet
    FUNDED = "funded"  # deposit final on chain
    MATCHING = "matching"  # its bid is in the order book
    RUNNING = "running"  # training
    VERIFYING = "verifying"  # training is complete; some units are not verified yet
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"
    DISPUTED = "disputed"
    SETTLING = "settling"  # settlement is not final yet
    SETTLED = "settled"  # paid and refunded, final on chain
    REJECTED = "rejected"  # not funded; nothing to refund


class JobEvent(StrEnum):
    DEPOSIT_FINAL = "deposit_final"
    DEPOSIT_REVERTED = "deposit_reverted"
    LISTED = "listed"
    MATCHED = "matched"
    ROUNDS_DONE = "rounds_done"
    UNITS_DECIDED = "units_decided"
    CANCEL = "cancel"
    EXPIRE = "expire"
    FAIL = "fail"
    DISPUTE = "dispute"
    SETTLE = "settle"
    SETTLEMENT_FINAL = "settlement_final"
    VETO = "veto"


_J, _JE = JobStatus, JobEvent
JOB: dict[tuple[JobStatus, JobEvent], JobStatus] = {
    (_J.SUBMITTED, _JE.DEPOSIT_FINAL): _J.FUNDED,
    (_J.SUBMITTED, _JE.DEPOSIT_REVERTED): _J.REJECTED,
    (_J.REJECTED, _JE.DEPOSIT_FINAL): _J.FUNDED,  # another account relayed the order later; the market cancels it
    (_J.FUNDED, _JE.LISTED): _J.MATCHING,
    (_J.FUNDED, _JE.CANCEL): _J.CANCELLED,
    (_J.MATCHING, _JE.MATCHED): _J.RUNNING,
    (_J.MATCHING, _JE.CANCEL): _J.CANCELLED,
    (_J.MATCHING, _JE.EXPIRE): _J.EXPIRED,
    (_J.RUNNING, _JE.ROUNDS_DONE): _J.VERIFYING,
    (_J.RUNNING, _JE.CANCEL): _J.CANCELLED,
    (_J.RUNNING, _JE.FAIL): _J.FAILED,
    (_J.VERIFYING, _JE.UNITS_DECIDED): _J.SETTLING,
    (_J.VERIFYING, _JE.DISPUTE): _J.DISPUTED,
    # Every end of a job passes through settling: verified units are paid and the rest is refunded.
    (_J.CANCELLED, _JE.SETTLE): _J.SETTLING,
    (_J.EXPIRED, _JE.SETTLE): _J.SETTLING,
    (_J.FAILED, _JE.SETTLE): _J.SETTLING,
    (_J.DISPUTED, _JE.SETTLE): _J.SETTLING,
    (_J.SETTLING, _JE.SETTLEMENT_FINAL): _J.SETTLED,
    (_J.SETTLED, _JE.VETO): _J.SETTLING,  # a guardian voided its batch, which restores the escrow
}


class UnitStatus(StrEnum):
    LEASED = "leased"  # assigned to a provider
    COMMITTED = "committed"  # signed trace root and salted payload hash received
    UPLOADED = "uploaded"  # payload revealed and matching the commitment
    CHECKING = "checking"  # its window's seed is recorded; verifiers replay the sampled segments
    DISPUTED = "disputed"  # replays refute it; no payout before a committee on chain decides
    VERIFIED = "verified"  # payable
    REJECTED = "rejected"  # not paid: wrong, withheld, or its provider was jailed before the check
    LOST = "lost"  # never delivered; no payout and no slash


class UnitEvent(StrEnum):
    COMMIT = "commit"
    UPLOAD = "upload"
    LOSE = "lose"
    DRAW = "draw"
    PASS = "pass"
    REJECT = "reject"
    DISPUTE = "dispute"
    ACQUIT = "acquit"
    STRIKE = "strike"
    REOPEN = "reopen"


_U, _UE = UnitStatus, UnitEvent
UNIT: dict[tuple[UnitStatus, UnitEvent], UnitStatus] = {
    (_U.LEASED, _UE.COMMIT): _U.COMMITTED,
    (_U.LEASED, _UE.LOSE): _U.LOST,
    (_U.COMMITTED, _UE.UPLOAD): _U.UPLOADED,
    (_U.COMMITTED, _UE.LOSE): _U.LOST,
    (_U.UPLOADED, _UE.DRAW): _U.CHECKING,
    (_U.UPLOADED, _UE.REJECT): _U.REJECTED,
    (_U.CHECKING, _UE.PASS): _U.VERIFIED,
    (_U.CHECKING, _UE.REJECT): _U.REJECTED,
    (_U.CHECKING, _UE.DISPUTE): _U.DISPUTED,
    (_U.DISPUTED, _UE.ACQUIT): _U.CHECKING,  # a committee found the segment correct
    (_U.DISPUTED, _UE.REJECT): _U.REJECTED,
    (_U.VERIFIED, _UE.REOPEN): _U.UPLOADED,  # its provider did false work; all its segments are sampled now
    (_U.VERIFIED, _UE.STRIKE): _U.REJECTED,  # a dispute was upheld before the payout
}
UNIT_DECIDED = frozenset({_U.VERIFIED, _U.REJECTED, _U.LOST})


class DisputeStatus(StrEnum):
    """``IDisputes.Status`` in the contract's order. The contract makes the transitions."""

    NONE = "none"
    TRACE = "trace"  # waits for the provider's trace reveal
    STEP = "step"  # waits for the challenger's segment selection
    DRAWING = "drawing"  # waits for the committee's seed
    JUDGING = "judging"  # waits for the committee's verdicts
    PROVIDER_LOST = "provider_lost"  # upheld
    CHALLENGER_LOST = "challenger_lost"  # rejected
    UNDECIDED = "undecided"  # inconclusive: no quorum in time; the unit is not paid
    MOOT = "moot"  # another dispute of the unit was upheld


DISPUTE_STATUSES = tuple(DisputeStatus)
DISPUTE_OPEN = frozenset(DISPUTE_STATUSES[1:5])


class ChallengeStatus(StrEnum):
    """Status of a dispute that the market opens; ``DisputeStatus`` is the one on chain."""

    OPEN = "open"  # queued for the chain, or open there
    WON = "won"  # a dispute of the unit was upheld, this one or another
    LOST = "lost"  # rejected: a committee found the segment correct
    LAPSED = "lapsed"  # the market missed the deadline of the segment selection
    UNDECIDED = "undecided"  # inconclusive
    MISSED = "missed"  # not opened before the challenge period ended


class ChallengeEvent(StrEnum):
    WIN = "win"
    LOSE = "lose"
    LAPSE = "lapse"
    LEAVE_UNDECIDED = "leave_undecided"
    MISS = "miss"


_C, _CE = ChallengeStatus, ChallengeEvent
CHALLENGE: dict[tuple[ChallengeStatus, ChallengeEvent], ChallengeStatus] = {
    (_C.OPEN, _CE.WIN): _C.WON,
    (_C.OPEN, _CE.LOSE): _C.LOST,
    (_C.OPEN, _CE.LAPSE): _C.LAPSED,
    (_C.OPEN, _CE.LEAVE_UNDECIDED): _C.UNDECIDED,
    (_C.OPEN, _CE.MISS): _C.MISSED,
}


class ProviderStatus(StrEnum):
    REGISTERED = "registered"
    BENCHMARKED = "benchmarked"  # earned a tier; its stake is too small for it
    ACTIVE = "active"  # benchmarked and staked
    DEMOTED = "demoted"  # no new work until its reliability recovers or it passes a benchmark
    JAILED = "jailed"
    EXITED = "exited"


class ProviderEvent(StrEnum):
    BENCHMARK_PASSED = "benchmark_passed"
    STAKE_SUFFICIENT = "stake_sufficient"
    STAKE_INSUFFICIENT = "stake_insufficient"
    DEMOTE = "demote"
    RECOVER = "recover"
    JAIL = "jail"
    RELEASE = "release"
    EXIT = "exit"


_P, _PE = ProviderStatus, ProviderEvent
PROVIDER: dict[tuple[ProviderStatus, ProviderEvent], ProviderStatus] = {
    (_P.REGISTERED, _PE.BENCHMARK_PASSED): _P.BENCHMARKED,
    (_P.BENCHMARKED, _PE.BENCHMARK_PASSED): _P.BENCHMARKED,
    (_P.BENCHMARKED, _PE.STAKE_SUFFICIENT): _P.ACTIVE,
    (_P.ACTIVE, _PE.BENCHMARK_PASSED): _P.ACTIVE,
    (_P.ACTIVE, _PE.STAKE_INSUFFICIENT): _P.BENCHMARKED,
    (_P.BENCHMARKED, _PE.DEMOTE): _P.DEMOTED,
    (_P.ACTIVE, _PE.DEMOTE): _P.DEMOTED,
    (_P.DEMOTED, _PE.RECOVER): _P.BENCHMARKED,
    (_P.DEMOTED, _PE.BENCHMARK_PASSED): _P.BENCHMARKED,
    (_P.DEMOTED, _PE.JAIL): _P.JAILED,
    (_P.DEMOTED, _PE.EXIT): _P.EXITED,
    (_P.REGISTERED, _PE.JAIL): _P.JAILED,
    (_P.BENCHMARKED, _PE.JAIL): _P.JAILED,
    (_P.ACTIVE, _PE.JAIL): _P.JAILED,
    (_P.JAILED, _PE.RELEASE): _P.REGISTERED,
    (_P.REGISTERED, _PE.EXIT): _P.EXITED,
    (_P.BENCHMARKED, _PE.EXIT): _P.EXITED,
    (_P.ACTIVE, _PE.EXIT): _P.EXITED,
}


class AuctionStatus(StrEnum):
    OPEN = "open"  # the hash of its secret is public; orders are sealed
    CLOSED = "closed"  # the hash of the orders is public; waits for the block that seeds the random tie-break
    CLEARED = "cleared"  # all is public


class AuctionEvent(StrEnum):
    CLOSE = "close"
    CLEAR = "clear"


_A, _AE = AuctionStatus, AuctionEvent
AUCTION: dict[tuple[AuctionStatus, AuctionEvent], AuctionStatus] = {
    (_A.OPEN, _AE.CLOSE): _A.CLOSED,
    (_A.CLOSED, _AE.CLEAR): _A.CLEARED,
}


class LeaseStatus(StrEnum):
    OFFERED = "offered"  # addressed to one node, not yet pulled
    ACTIVE = "active"  # pulled; heartbeats extend it
    DONE = "done"
    FAILED = "failed"  # the node reported a failure
    EXPIRED = "expired"  # no heartbeat in time


class LeaseEvent(StrEnum):
    PULL = "pull"
    COMPLETE = "complete"
    FAIL = "fail"
    EXPIRE = "expire"


NODE_SILENT, NODE_STOPPING, REPLAY_OVERDUE = "node_silent", "node_stopping", "replay_overdue"
OUT_OF_MEMORY = "out_of_memory"
"""Reasons of a lease's end that several modules test."""

_L, _LE = LeaseStatus, LeaseEvent
LEASE: dict[tuple[LeaseStatus, LeaseEvent], LeaseStatus] = {
    (_L.OFFERED, _LE.PULL): _L.ACTIVE,
    (_L.OFFERED, _LE.EXPIRE): _L.EXPIRED,
    (_L.ACTIVE, _LE.COMPLETE): _L.DONE,
    (_L.ACTIVE, _LE.FAIL): _L.FAILED,
    (_L.ACTIVE, _LE.EXPIRE): _L.EXPIRED,
}


class IntentStatus(StrEnum):
    QUEUED = "queued"
    SIGNED = "signed"  # nonce assigned, signed bytes stored
    BROADCAST = "broadcast"
    MINED = "mined"
    FINAL = "final"
    REVERTED = "reverted"


class IntentEvent(StrEnum):
    SIGN = "sign"
    SEND = "send"
    MINE = "mine"
    REORG = "reorg"
    FINALISE = "finalise"
    REVERT = "revert"
    DISPLACE = "displace"


_I, _IE = IntentStatus, IntentEvent
INTENT: dict[tuple[IntentStatus, IntentEvent], IntentStatus] = {
    (_I.QUEUED, _IE.SIGN): _I.SIGNED,
    (_I.QUEUED, _IE.REVERT): _I.REVERTED,  # its simulation reverts; no nonce was assigned
    (_I.SIGNED, _IE.SEND): _I.BROADCAST,
    (_I.SIGNED, _IE.MINE): _I.MINED,
    (_I.BROADCAST, _IE.SEND): _I.BROADCAST,
    (_I.BROADCAST, _IE.MINE): _I.MINED,
    # A final transaction that the same key signed outside the market used the nonce.
    (_I.SIGNED, _IE.DISPLACE): _I.QUEUED,
    (_I.BROADCAST, _IE.DISPLACE): _I.QUEUED,
    (_I.MINED, _IE.REORG): _I.BROADCAST,
    (_I.MINED, _IE.FINALISE): _I.FINAL,
    (_I.MINED, _IE.REVERT): _I.REVERTED,
}

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


def next_state(machine: dict[tuple[State, Event], State], state: State, event: Event) -> State:
    """Return the state after ``event``.

    Raises:
        IllegalTransition: if the table has no such transition.
    """
    try:
        return machine[(state, event)]
    except KeyError:
        raise IllegalTransition(type(state).__name__, state, event) from None
