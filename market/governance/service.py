"""Governance from the database alone: operations, payouts under challenge, events, alarms.

No function here asks the chain, so pages never wait for it. :mod:`market.governance.acts` prepares transactions.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from market.chain.contracts.codec import Deployment
from market.chain.rpc.client import Transaction
from market.chain.service import final_events_of_kind
from market.domain.network import NetworkParameters
from market.governance import repository
from market.governance.errors import EventNotFound, OperationNotFound, PayoutNotFound, SentActDiffers
from market.governance.models import GovernanceEvent, PostedPayout, TimelockOperation
from market.governance.schemas import (
    EventView,
    OperationCall,
    OperationStatus,
    OperationView,
    Payee,
    PayoutLine,
    PayoutView,
    RoleHolder,
)
from market.payments.rewards import posted as posted_rewards
from market.payments.settlement import posted as posted_batches
from market.payments.settlement.posted import OwnBatch
from market.platform.db.base import utc_now
from market.platform.db.rows import from_row
from market.platform.events.service import record
from zoo_protocol.acts import calls
from zoo_protocol.acts.calls import Call, Contracts, Operation
from zoo_protocol.acts.parameters import duration, exact_zen
from zoo_protocol.acts.table import Stage

MAX_PAYEES = 50
_MAX_ALARMS = 500
_MAX_PAYOUTS = 200
_KINDS_OF_EFFECTS = frozenset({"role_granted", "role_revoked", "admin_transfer", "delay_changed"})
"""Changes that the timelock makes as a contracts' admin. Proposals and payouts are never among them."""


def contracts_of(session: Session, deployment: Deployment, network: NetworkParameters) -> Contracts:
    """Return the contracts' addresses with the timelock's present delay."""
    delay = repository.delay_seconds(session)
    seconds = network.timelock_seconds if delay is None else delay
    return Contracts(deployment.chain_id, deployment.contracts, seconds)


def operations(
    session: Session, contracts: Contracts, now: datetime, *, pending: bool, after: str | None = None, limit: int = 50
) -> list[OperationView]:
    """Return the timelock's operations, newest first."""
    found = repository.operations(session, pending=pending, after=after, limit=limit)
    return [operation_view(row, contracts, now) for row in found]


def operation_of(session: Session, operation_id: str) -> TimelockOperation:
    """Return the row of an operation. Raises OperationNotFound."""
    row = session.get(TimelockOperation, operation_id)
    if row is None:
        raise OperationNotFound(f"the timelock has no operation {operation_id}", field="operation_id")
    return row


def operation_view(row: TimelockOperation, contracts: Contracts, now: datetime) -> OperationView:
    """Return an operation with its words and its status at ``now``."""
    operation = as_operation(row)
    executed = calls.execute(operation, contracts)
    return from_row(
        OperationView,
        row,
        act=executed.key,
        words=list(executed.words),
        status=_status(row, now),
        calls=[OperationCall(target=one["target"], value_wei=int(one["value"]), data=one["data"]) for one in row.calls],
    )


def as_operation(row: TimelockOperation) -> Operation:
    """Return the operation that ``execute`` and ``cancel`` take."""
    made = tuple(
        Call(one["target"], int(one["value"]), bytes.fromhex(one["data"].removeprefix("0x"))) for one in row.calls
    )
    single = Operation(made[:1], row.salt, row.predecessor)
    return single if len(made) == 1 and single.id == row.id else Operation(made, row.salt, row.predecessor, True)


def batch_of(session: Session, number: int) -> PostedPayout:
    """Return a settlement batch as posted. Raises PayoutNotFound."""
    row = repository.payout(session, "batch", number)
    if row is None:
        raise PayoutNotFound(f"no final batch has the number {number}", field="number")
    return row


def payouts_under_challenge(session: Session, now: datetime) -> list[PayoutView]:
    """Return batches and epochs whose countdown runs, compared with the market's own record."""
    rows = repository.payouts_after(session, now, _MAX_PAYOUTS)
    batches = [row for row in rows if row.kind == "batch"]
    own = posted_batches.own_batches(session, {row.root for row in batches}, MAX_PAYEES)
    lines = _batch_lines(session, [row.number for row in batches])
    return [
        _batch_view(row, own.get(row.root), lines[row.number]) if row.kind == "batch" else _epoch_view(session, row)
        for row in rows
    ]


def events(session: Session, contracts: Contracts, after: int | None = None, limit: int = 50) -> list[EventView]:
    """Return governance events, newest first."""
    open_ids = {row.id for row in _alarms(session)}
    return _event_views(session, repository.events(session, after, limit), contracts, open_ids)


def alarms(session: Session, contracts: Contracts) -> list[EventView]:
    """Return the newest events that were neither sent from here nor acknowledged."""
    rows = _alarms(session)
    return _event_views(session, rows, contracts, {row.id for row in rows})


def alarm_count(session: Session) -> int:
    """Return the number of alarms, for monitoring."""
    return len(_alarms(session))


def acknowledge(session: Session, event_id: int, actor: str) -> None:
    """End an alarm. The audit log records the actor. Raises EventNotFound."""
    row = repository.lock_event(session, event_id)
    if row is None:
        raise EventNotFound(f"there is no governance event {event_id}", field="event_id")
    if row.acknowledged_by is None:
        row.acknowledged_by, row.acknowledged_at = actor, utc_now()
        record(session, ("governance", str(row.id)), "acknowledge", actor=actor, data={"kind": row.kind})


def role_holders(session: Session, account: str | None = None) -> list[RoleHolder]:
    """Return who holds which role of which contract, by final events."""
    return [
        RoleHolder(contract=row.contract, role=row.role or "", account=row.account or "", since=row.at)
        for row in repository.role_changes(session, account)
        if row.kind == "role_granted"
    ]


def record_sent(
    session: Session, contracts: Contracts, account: str, act: str, stage: Stage, sent: Transaction
) -> None:
    """Store that an account sent an act, with an entry in the audit log. Idempotent.

    Callers must admit holders of a role and admins only: the events of this transaction raise no alarm.

    Raises:
        SentActDiffers: another account sent the transaction, or it does something else.
    """
    if sent.sender.lower() != account.lower():
        raise SentActDiffers(f"{sent.sender} sent {sent.tx_hash}, not {account}", field="tx_hash")
    call = Call(sent.to or "", sent.value_wei, sent.data)
    found = calls.act_of_call(call, contracts)
    key = None if found is None else _cancelled(session, contracts, call) if found[0] is Stage.CANCEL else found[1]
    if found is None or (found[0], key or "timelock") != (stage, act):
        raise SentActDiffers(f"{sent.tx_hash} is not the step {stage} of {act}", field="tx_hash")
    if repository.add_sent(session, sent.tx_hash, act, stage, account):
        record(session, ("act", act), stage, actor=account, data={"tx": sent.tx_hash})


def _cancelled(session: Session, contracts: Contracts, call: Call) -> str | None:
    """Return the act of the operation that a cancellation names; None if it is unknown."""
    row = session.get(TimelockOperation, calls.cancelled_id(call))
    return None if row is None else calls.cancel(as_operation(row), contracts).key


def _alarms(session: Session) -> Sequence[GovernanceEvent]:
    """Return open events, but for the effects of operations whose proposal is known.

    Any account can execute a due operation, and can do more in the same transaction. Only events that an operation
    itself causes are its effects.
    """
    found = repository.open_events(session, _MAX_ALARMS)
    executed = {row.operation_id: row.tx_hash for row in found if row.kind == "call_executed" and row.operation_id}
    known = repository.known_operations(session, executed.keys())
    effects = {tx for operation, tx in executed.items() if operation in known}
    return [row for row in found if not _is_effect(row, effects, known)]


def _is_effect(row: GovernanceEvent, effects: Collection[str], known: Collection[str]) -> bool:
    if row.kind == "call_executed":
        return row.operation_id in known
    return row.kind in _KINDS_OF_EFFECTS and row.tx_hash in effects


def _status(row: TimelockOperation, now: datetime) -> OperationStatus:
    if row.ended_at is not None:
        return "executed" if row.executed else "cancelled"
    return "due" if now >= row.ready_at else "waiting"


def _batch_lines(session: Session, numbers: Sequence[int]) -> defaultdict[int, list[PayoutLine]]:
    found: defaultdict[int, list[PayoutLine]] = defaultdict(list)
    topics = [f"0x{number:064x}" for number in numbers]
    for event in final_events_of_kind(session, "JobEscrow", "JobSettled", topics):
        args = event.args
        line = PayoutLine(
            job_id=args["jobId"],
            units=args["units"],
            from_round=args["fromRound"],
            to_round=args["toRound"],
            paid_wei=args["paid"],
            fee_wei=args["fee"],
            last=args["last"],
        )
        found[args["batchId"]].append(line)
    return found


def _batch_view(row: PostedPayout, own: OwnBatch | None, lines: list[PayoutLine]) -> PayoutView:
    if own is None:
        return _payout_view(row, ["The market has no record of a batch with this root."], lines, (), 0)
    differences = []
    if own.void_reason is not None and row.vetoed_tx is None:
        differences.append(f"The market's record is void: {own.void_reason}.")
    if own.pay_wei != row.net_wei:
        recorded, posted = exact_zen(own.pay_wei), exact_zen(row.net_wei)
        differences.append(f"The record pays {recorded} to providers; the chain has {posted}.")
    recorded_lines = {(one.job_id, one.units, one.from_round, one.to_round, one.last) for one in own.lines}
    if recorded_lines != {(one.job_id, one.units, one.from_round, one.to_round, one.last) for one in lines}:
        differences.append("The lines of jobs differ from the market's record.")
    return _payout_view(row, differences, lines, own.payees, own.payee_count)


def _epoch_view(session: Session, row: PostedPayout) -> PayoutView:
    own = posted_rewards.own_post(session, row.root, MAX_PAYEES)
    if own is None:
        return _payout_view(row, ["The market has no record of an epoch with this root."], [], (), 0)
    differences = []
    if own.void_reason is not None and row.vetoed_tx is None:
        differences.append(f"The market's record is void: {own.void_reason}.")
    if own.total_wei != row.net_wei:
        recorded, posted = exact_zen(own.total_wei), exact_zen(row.net_wei)
        differences.append(f"The record pays {recorded}; the chain has {posted}.")
    return _payout_view(row, differences, [], own.payees, own.payee_count)


def _payout_view(
    row: PostedPayout,
    differences: list[str],
    lines: list[PayoutLine],
    payees: Sequence[tuple[str, int]],
    payee_count: int,
) -> PayoutView:
    return from_row(
        PayoutView,
        row,
        agrees=not differences,
        differences=differences,
        lines=lines,
        payees=[Payee(account=account, amount_wei=wei) for account, wei in payees],
        payee_count=payee_count,
    )


def _event_views(
    session: Session, rows: Sequence[GovernanceEvent], contracts: Contracts, open_ids: Collection[int]
) -> list[EventView]:
    named = {row.operation_id for row in rows if row.operation_id is not None}
    made = {one.id: as_operation(one).calls for one in repository.operations_by_id(session, named)}
    found = []
    for row in rows:
        is_alarm = row.id in open_ids
        found.append(from_row(EventView, row, words=_words(row, made, contracts), is_alarm=is_alarm))
    return found


def _words(row: GovernanceEvent, made: Mapping[str, Sequence[Call]], contracts: Contracts) -> str:
    data = row.data
    match row.kind:
        case "role_granted":
            return f"{row.account} received the role {row.role} of {row.contract} from {data['sender']}."
        case "role_revoked":
            return f"{row.account} lost the role {row.role} of {row.contract}, by {data['sender']}."
        case "admin_transfer":
            return f"{row.account} can become the admin of {row.contract} from {data['accepted_from']}."
        case "paused" | "unpaused":
            return f"{row.account} {row.kind} the intake of {row.contract}."
        case "delay_changed":
            return f"The timelock's delay is now {duration(int(data['seconds']))}."
        case "foreign_batch" | "foreign_epoch":
            what = "Batch" if row.kind == "foreign_batch" else "Reward epoch"
            amount = exact_zen(int(data["amount_wei"]))
            return f"{what} {data['number']} pays {amount} and is not in the market's record. A guardian can veto it."
        case "batch_vetoed" | "epoch_vetoed":
            what = "Batch" if row.kind == "batch_vetoed" else "Reward epoch"
            return f"{what} {data['number']} was vetoed."
    step = {"call_scheduled": "proposed", "call_executed": "executed", "call_cancelled": "cancelled"}[row.kind]
    words = calls.words_of_calls(made.get(row.operation_id or "", ()), contracts)
    return " ".join((f"The timelock's operation was {step}.", *words))
