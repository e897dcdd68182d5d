"""Comparison of the ledger with the chain at one block.

It reads the whole ledger, so only the worker makes it; readers get the stored result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy.orm import Session

from market.chain.contracts.bindings import (
    Disputes,
    JobEscrow,
    JobEscrowBatch,
    JobEscrowJob,
    Omissions,
    ProviderStaking,
    Rewards,
)
from market.chain.contracts.codec import Deployment, Result, View
from market.chain.errors import ChainError
from market.chain.rpc.client import ChainClient
from market.chain.service import final_events, finalised_cursor
from market.chain.views import ChainViews, JobState
from market.ledger.errors import NotYetIndexed
from market.ledger.models import LedgerReconciliation
from market.ledger.service import balances
from market.platform.db.base import utc_now
from market.platform.db.session import Database

_log = structlog.get_logger(__name__)

_HOLDINGS = {
    "JobEscrow": ("escrow", "balance", "pay", "fee", "withheld"),
    "ProviderStaking": ("stake",),
    "Treasury": ("treasury",),
    "Rewards": ("rewards",),
    "Disputes": ("disputes", "dispute", "credit"),
    "Omissions": ("omissions", "bond", "omission"),
}
"""Accounts that divide each contract's ZEN."""

_ACCOUNTS = (*(account for accounts in _HOLDINGS.values() for account in accounts), "issuance", "burned")


@dataclass(frozen=True, slots=True)
class Check:
    """Amount of the ledger and of the chain, in wei."""

    name: str
    ledger_wei: int
    chain_wei: int

    @property
    def agrees(self) -> bool:
        return self.ledger_wei == self.chain_wei

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "ledger_wei": str(self.ledger_wei), "chain_wei": str(self.chain_wei)}


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """All checks at one final block.

    ``unattributed_*`` is ZEN in a contract without a job, payer or staker. Any account can send some, so only a
    negative amount is a difference.
    """

    block_number: int
    block_hash: str
    checks: tuple[Check, ...]
    unattributed_escrow_wei: int
    unattributed_stake_wei: int

    @property
    def differences(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.agrees)

    @property
    def difference_wei(self) -> int:
        """Return the sum of the differences of all checks and of negative unattributed amounts."""
        missing = -min(0, self.unattributed_escrow_wei) - min(0, self.unattributed_stake_wei)
        return missing + sum(abs(check.ledger_wei - check.chain_wei) for check in self.differences)

    @property
    def agrees(self) -> bool:
        return self.difference_wei == 0

    def as_json(self) -> dict[str, Any]:
        return {
            "block_number": self.block_number,
            "block_hash": self.block_hash,
            "agrees": self.agrees,
            "difference_wei": str(self.difference_wei),
            "checked": len(self.checks),
            "holdings_wei": {check.name: str(check.ledger_wei) for check in self.checks if check.name in _HOLDINGS},
            "differences": [check.as_json() for check in self.differences],
            "unattributed_escrow_wei": str(self.unattributed_escrow_wei),
            "unattributed_stake_wei": str(self.unattributed_stake_wei),
        }


def reconcile(
    database: Database, client: ChainClient, deployment: Deployment, block: int | None = None
) -> Reconciliation:
    """Compare every contract's balance with the ledger, at ``block`` or the newest final one.

    Raises:
        NotYetIndexed: the ledger has not reached the block.
        ChainError: the node failed or lacks the state of that block.
    """
    with database.transaction() as session:
        cursor = finalised_cursor(session)
        if cursor is None or (block is not None and block > cursor[0]):
            reached = "nothing" if cursor is None else f"block {cursor[0]}"
            raise NotYetIndexed(f"the ledger has reached {reached}; block {block} was requested")
        number = cursor[0] if block is None else block
        ledger = balances(session, *_ACCOUNTS, until_block=number)
        roots = _batch_roots(session, ledger)
    found = client.block(number)
    if found is None or (number == cursor[0] and found.hash != cursor[1]):
        raise NotYetIndexed(f"the node's block {number} is not the one that the ledger has recorded")

    chain = ChainViews(client, deployment)
    checks = [
        Check(contract, _total(ledger, *accounts), chain.balance_of(deployment.address(contract), found.hash))
        for contract, accounts in _HOLDINGS.items()
    ]
    supply = -_total(ledger, "issuance") - _total(ledger, "burned")
    checks.append(Check("supply", supply, chain.total_supply(found.hash)))
    (bond,) = chain.many([Omissions.bond()], found.hash)
    checks.append(Check("bond", ledger.get("bond", 0), bond))
    checks.append(
        Check(
            "rewards:posted",
            _total(ledger, "rewards") - ledger.get("rewards", 0),
            _unclaimed_rewards(chain, found.hash),
        )
    )

    def of_each(kind: str, view: Callable[[str], View[Result]], amount: Callable[[Result], int]) -> list[Check]:
        """Compare each account ``<kind>:<key>`` with the amount in the view of its key."""
        keys = [account.removeprefix(f"{kind}:") for account in ledger if account.startswith(f"{kind}:")]
        seen = zip(keys, chain.many([view(key) for key in keys], found.hash), strict=True)
        return [Check(f"{kind}:{key}", ledger[f"{kind}:{key}"], amount(result)) for key, result in seen]

    checks += of_each("escrow", JobEscrow.jobs, _escrowed)
    checks += of_each("stake", ProviderStaking.atRisk, int)
    checks += of_each("balance", JobEscrow.balances, lambda held: held["free"])
    checks += of_each("credit", Disputes.credits, int)
    left: dict[str, JobEscrowBatch] = dict(
        zip(roots, chain.many([JobEscrow.batches(root) for root in roots.values()], found.hash), strict=True)
    )
    for account, amount in ledger.items():
        kind, _, batch = account.partition(":")
        if kind in ("pay", "fee"):
            held_by = left.get(batch)  # None: the contract never posted the batch
            checks.append(Check(account, amount, held_by["net" if kind == "pay" else "fee"] if held_by else 0))
    return Reconciliation(
        block_number=number,
        block_hash=found.hash,
        checks=tuple(checks),
        unattributed_escrow_wei=ledger.get("escrow", 0),
        unattributed_stake_wei=ledger.get("stake", 0),
    )


def _unclaimed_rewards(chain: ChainViews, block: str) -> int:
    (current,), (pending,) = chain.many([Rewards.currentEpoch()], block), chain.many([Rewards.pendingEpoch()], block)
    (paid,) = chain.many([Rewards.paidOut()], block)
    return max(current["total"], pending["epoch"]["total"]) - paid


def _batch_roots(session: Session, ledger: dict[str, int]) -> dict[str, str]:
    """Return the root of each batch with a balance, by batch; the root is the contract's key."""
    batches = {account.partition(":")[2] for account in ledger if account.startswith(("pay:", "fee:"))}
    return {
        batch: event.args["root"]
        for batch in batches
        for event in final_events(session, f"0x{int(batch):064x}")
        if event.name == "BatchPosted"
    }


def _total(ledger: dict[str, int], *names: str) -> int:
    return sum(amount for account, amount in ledger.items() if account.partition(":")[0] in names)


def _escrowed(job: JobEscrowJob) -> int:
    return job["escrowed"] if job["state"] == JobState.OPEN else 0


def watch(database: Database, client: ChainClient, deployment: Deployment) -> None:
    """Reconcile at the newest final block; store the result and log a difference as error.

    If the node fails or the ledger is behind, the last result stays; its age is a metric.
    """
    try:
        found = reconcile(database, client, deployment)
    except (ChainError, NotYetIndexed) as error:
        _log.warning("ledger_not_compared", reason=error.code, detail=str(error))
        return
    with database.transaction() as session:
        session.merge(
            LedgerReconciliation(
                id=1,
                block_number=found.block_number,
                at=utc_now(),
                agrees=found.agrees,
                difference_wei=found.difference_wei,
                report=found.as_json(),
            )
        )
    if not found.agrees:
        _log.error("ledger_differs", code="ledger_differs", **found.as_json())


def last_reconciliation(session: Session) -> LedgerReconciliation | None:
    """Return the result of the last :func:`watch`; None before the first."""
    return session.get(LedgerReconciliation, 1)
