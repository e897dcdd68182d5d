"""Handlers of final events of governance: roles, pauses, the timelock, and posted payouts."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent
from market.chain.indexer import EventHandler
from market.governance import repository
from market.governance.models import GovernanceEvent, PostedPayout, TimelockOperation
from market.governance.schemas import EventKind, PayoutKind
from market.payments.rewards import posted as posted_rewards
from market.payments.settlement import posted as posted_batches
from market.platform.db.base import from_unix
from market.platform.events.service import CHAIN, record
from zoo_protocol.acts.roles import role_name
from zoo_protocol.acts.table import ADMINISTERED
from zoo_protocol.hashing import to_hex

_log = structlog.get_logger(__name__)
_NO_SALT = to_hex(bytes(32))


def on_role_granted(session: Session, event: ChainEvent) -> None:
    _record_role(session, event, "role_granted")


def on_role_revoked(session: Session, event: ChainEvent) -> None:
    _record_role(session, event, "role_revoked")


def on_admin_transfer(session: Session, event: ChainEvent) -> None:
    accepted_from = from_unix(event.args["acceptSchedule"]).isoformat()
    _record(session, event, "admin_transfer", account=event.args["newAdmin"], data={"accepted_from": accepted_from})


def on_paused(session: Session, event: ChainEvent) -> None:
    _record(session, event, "paused", account=event.args["account"])


def on_unpaused(session: Session, event: ChainEvent) -> None:
    _record(session, event, "unpaused", account=event.args["account"])


def on_delay_changed(session: Session, event: ChainEvent) -> None:
    seconds = {"seconds": event.args["newDuration"]}
    is_first = event.args["oldDuration"] == 0 and repository.is_first_of_contract(session, event)
    _record(session, event, "delay_changed", data=seconds, at_deployment=is_first)


def on_call_scheduled(session: Session, event: ChainEvent) -> None:
    """Store a scheduled operation; a batch emits one event per call, in order."""
    args = event.args
    one = {"target": args["target"], "value": str(args["value"]), "data": args["data"]}
    row = session.get(TimelockOperation, args["id"])
    if row is not None and args["index"] > 0:
        row.calls = [*row.calls, one]
        return
    if row is None:
        row = TimelockOperation(id=args["id"])
        session.add(row)
    at = from_unix(event.timestamp)
    row.calls, row.predecessor, row.salt = [one], args["predecessor"], _NO_SALT
    row.scheduled_at, row.scheduled_tx = at, event.tx_hash
    row.ready_at = at + timedelta(seconds=args["delay"])
    row.ended_at = row.ended_tx = None  # a cancelled operation can be scheduled again
    row.executed = False
    _record(session, event, "call_scheduled", operation_id=row.id)


def on_call_salt(session: Session, event: ChainEvent) -> None:
    """Store the salt, which follows the operation's calls in the same transaction."""
    row = session.get(TimelockOperation, event.args["id"])
    if row is not None:
        row.salt = event.args["salt"]


def on_call_executed(session: Session, event: ChainEvent) -> None:
    if event.args["index"] == 0:
        _end(session, event, executed=True)


def on_call_cancelled(session: Session, event: ChainEvent) -> None:
    _end(session, event, executed=False)


def on_batch_posted(session: Session, event: ChainEvent) -> None:
    """Store a posted batch; raise an alarm if the market has no record of it."""
    args = event.args
    _post(session, event, "batch", args["batchId"], args["net"], args["fee"])
    if not posted_batches.is_own_batch(session, args["root"]):
        data = {"number": args["batchId"], "amount_wei": str(args["net"])}
        _record(session, event, "foreign_batch", data=data)


def on_batch_vetoed(session: Session, event: ChainEvent) -> None:
    _veto(session, event, "batch", event.args["batchId"])


def on_epoch_posted(session: Session, event: ChainEvent) -> None:
    """Store a posted reward epoch; raise an alarm if the market has no record of it."""
    args = event.args
    total = sum(args[f"{part}Total"] for part in ("base", "bandwidth", "verifier"))
    _post(session, event, "epoch", args["number"], total, 0)
    if not posted_rewards.is_own_post(session, args["root"]):
        _record(session, event, "foreign_epoch", data={"number": args["number"], "amount_wei": str(total)})


def on_epoch_vetoed(session: Session, event: ChainEvent) -> None:
    _veto(session, event, "epoch", event.args["number"])


def _post(session: Session, event: ChainEvent, kind: PayoutKind, number: int, net: int, fee: int) -> None:
    session.merge(  # a vetoed epoch's number is given again
        PostedPayout(
            kind=kind,
            number=number,
            root=event.args["root"],
            net_wei=net,
            fee_wei=fee,
            posted_at=from_unix(event.timestamp),
            posted_tx=event.tx_hash,
            claimable_at=from_unix(event.args["claimableAt"]),
            vetoed_tx=None,
        )
    )


def _veto(session: Session, event: ChainEvent, kind: PayoutKind, number: int) -> None:
    row = session.get(PostedPayout, (kind, number))
    if row is not None:
        row.vetoed_tx = event.tx_hash
    _record(session, event, "batch_vetoed" if kind == "batch" else "epoch_vetoed", data={"number": number})


def _end(session: Session, event: ChainEvent, *, executed: bool) -> None:
    operation_id = event.args["id"]
    row = session.get(TimelockOperation, operation_id)
    if row is not None:
        row.ended_at, row.ended_tx, row.executed = from_unix(event.timestamp), event.tx_hash, executed
    _record(session, event, "call_executed" if executed else "call_cancelled", operation_id=operation_id)


def _record_role(session: Session, event: ChainEvent, kind: EventKind) -> None:
    args = event.args
    _record(
        session,
        event,
        kind,
        role=role_name(args["role"]),
        account=args["account"],
        data={"sender": args["sender"]},
        at_deployment=kind == "role_granted" and repository.is_first_of_contract(session, event),
    )


def _record(
    session: Session,
    event: ChainEvent,
    kind: EventKind,
    *,
    role: str | None = None,
    account: str | None = None,
    operation_id: str | None = None,
    data: dict[str, Any] | None = None,
    at_deployment: bool = False,
) -> None:
    session.add(
        GovernanceEvent(
            kind=kind,
            contract=event.contract,
            role=role,
            account=account,
            operation_id=operation_id,
            data=data or {},
            tx_hash=event.tx_hash,
            log_index=event.log_index,
            block_number=event.block_number,
            at=from_unix(event.timestamp),
            at_deployment=at_deployment,
        )
    )
    session.flush()  # the next event of this transaction reads it
    if not at_deployment:
        subject = ("governance", operation_id or event.tx_hash)
        record(session, subject, kind, actor=event.args.get("sender") or event.args.get("account") or CHAIN)
        _log.warning("governance_event", kind=kind, contract=event.contract, role=role, tx=event.tx_hash)


HANDLERS: Mapping[tuple[str, str], EventHandler] = {
    **{(contract, "RoleGranted"): on_role_granted for contract in ADMINISTERED},
    **{(contract, "RoleRevoked"): on_role_revoked for contract in ADMINISTERED},
    **{
        (contract, "DefaultAdminTransferScheduled"): on_admin_transfer
        for contract in ADMINISTERED
        if contract != "Timelock"
    },
    **{(contract, "Paused"): on_paused for contract in ("JobEscrow", "ProviderStaking")},
    **{(contract, "Unpaused"): on_unpaused for contract in ("JobEscrow", "ProviderStaking")},
    ("Timelock", "MinDelayChange"): on_delay_changed,
    ("Timelock", "CallScheduled"): on_call_scheduled,
    ("Timelock", "CallSalt"): on_call_salt,
    ("Timelock", "CallExecuted"): on_call_executed,
    ("Timelock", "Cancelled"): on_call_cancelled,
    ("JobEscrow", "BatchPosted"): on_batch_posted,
    ("JobEscrow", "BatchVetoed"): on_batch_vetoed,
    ("Rewards", "EpochPosted"): on_epoch_posted,
    ("Rewards", "EpochVetoed"): on_epoch_vetoed,
}
