"""Proof that the ledger equals the chain at one block."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from market.chain.client import ChainClient
from market.chain.contracts import Deployment
from market.chain.service import final_events, finalised_cursor
from market.chain.views import ChainViews, JobState
from market.db.session import Database
from market.ledger.errors import NotYetIndexed
from market.ledger.service import balances

_HOLDINGS = {
    "JobEscrow": ("escrow", "pay", "fee", "withheld"),
    "ProviderStaking": ("stake",),
    "Treasury": ("treasury",),
    "Rewards": ("rewards",),
    "Disputes": ("disputes",),
    "Omissions": ("omissions",),
}
"""The accounts that divide what each contract holds."""

_ACCOUNTS = (*(account for accounts in _HOLDINGS.values() for account in accounts), "issuance", "burned")


@dataclass(frozen=True, slots=True)
class Check:
    """One amount by both accounts, in wei."""

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

    ``unattributed_*``: ZEN that lies in a contract without belonging to a job or staker. Anybody can send some there,
    so more than zero is no difference; less than zero is one.
    """

    block_number: int
    block_hash: str
    checks: tuple[Check, ...]
    unattributed_escrow_wei: int
    unattributed_stake_wei: int

    @property
    def differences(self) -> tuple[Check, ...]:
        """The checks that fail."""
        return tuple(check for check in self.checks if not check.agrees)

    @property
    def agrees(self) -> bool:
        """Whether ledger and chain are equal."""
        return not self.differences and self.unattributed_escrow_wei >= 0 and self.unattributed_stake_wei >= 0

    def as_json(self) -> dict[str, Any]:
        return {
            "block_number": self.block_number,
            "block_hash": self.block_hash,
            "agrees": self.agrees,
            "checked": len(self.checks),
            "differences": [check.as_json() for check in self.differences],
            "unattributed_escrow_wei": str(self.unattributed_escrow_wei),
            "unattributed_stake_wei": str(self.unattributed_stake_wei),
        }


def reconcile(
    database: Database, client: ChainClient, deployment: Deployment, block: int | None = None
) -> Reconciliation:
    """Compare every balance that the contracts hold with the ledger, at ``block`` or at the newest final one.

    Raises:
        NotYetIndexed: the ledger has not reached the block.
        ChainError: the node gave no good answer, or no longer has the state of that block.
    """
    with database.transaction() as session:
        cursor = finalised_cursor(session)
        if cursor is None or (block is not None and block > cursor[0]):
            reached = "nothing" if cursor is None else f"block {cursor[0]}"
            raise NotYetIndexed(f"the ledger has reached {reached}, block {block} was asked for")
        number = cursor[0] if block is None else block
        ledger = balances(session, *_ACCOUNTS, until_block=number)
        roots = _batch_roots(session, ledger)
    found = client.block(number)
    if found is None or (number == cursor[0] and found.hash != cursor[1]):
        raise NotYetIndexed(f"the node's block {number} is not the one that the ledger has booked")

    chain = ChainViews(client, deployment)
    checks = [
        Check(contract, _total(ledger, *accounts), chain.balance_of(deployment.address(contract), found.hash))
        for contract, accounts in _HOLDINGS.items()
    ]
    supply = -_total(ledger, "issuance") - _total(ledger, "burned")
    checks.append(Check("supply", supply, chain.total_supply(found.hash)))
    for account, amount in ledger.items():
        if account.startswith("escrow:"):
            checks.append(Check(account, amount, _escrowed(chain, account.removeprefix("escrow:"), found.hash)))
        elif account.startswith("stake:"):
            checks.append(Check(account, amount, chain.at_risk(account.removeprefix("stake:"), found.hash)))
        elif account.startswith("pay:"):
            checks.append(Check(account, amount, chain.batch(roots[account.partition(":")[2]], found.hash).net_wei))
        elif account.startswith("fee:"):
            checks.append(Check(account, amount, chain.batch(roots[account.partition(":")[2]], found.hash).fee_wei))
    return Reconciliation(
        block_number=number,
        block_hash=found.hash,
        checks=tuple(checks),
        unattributed_escrow_wei=ledger.get("escrow", 0),
        unattributed_stake_wei=ledger.get("stake", 0),
    )


def _batch_roots(session: Session, ledger: dict[str, int]) -> dict[str, str]:
    """batch -> root, of all batches that still hold something; the contract knows a batch by its root."""
    batches = {account.partition(":")[2] for account in ledger if account.startswith(("pay:", "fee:"))}
    return {
        batch: event.args["root"]
        for batch in batches
        for event in final_events(session, f"0x{int(batch):064x}")
        if event.name == "BatchPosted"
    }


def _total(ledger: dict[str, int], *names: str) -> int:
    return sum(amount for account, amount in ledger.items() if account.partition(":")[0] in names)


def _escrowed(chain: ChainViews, job_id: str, block: str) -> int:
    job = chain.job(job_id, block)
    return job.escrowed_wei if job is not None and job.state is JobState.OPEN else 0
