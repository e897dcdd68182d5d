"""Settlement of live jobs to the last wei: pay, recipients and refund."""

from collections.abc import Collection
from dataclasses import dataclass

from kit.chain.deployed_chain import Wallet
from kit.disputes.dispute_fixtures import DisputeWorld
from kit.verification.live_fixtures import Node
from market.accounts.service import Principal
from market.domain.network import DEVNET
from market.jobs import service as jobs
from market.ledger.reconciliation import reconcile
from market.orders import amendments
from market.payments.settlement import claims
from market.payments.settlement import service as settlement
from zoo_compute.chain.settlements import ChainReader
from zoo_protocol.messages import JobOrder
from zoo_protocol.payments.receipt import net_unit_price

PRICE = 5 * 10**18 // 2
"""Clearing price of a live job, wei per GPU-hour."""


@dataclass(frozen=True)
class Payday:
    """Deposits of some jobs and their use, in wei."""

    deposited: int
    unit_pay: int
    claimed: dict[str, int]
    """By provider, what it took out of the escrow."""
    refunded: int
    fees: int
    """What is left in the escrow for the treasury."""


def deposit(live: DisputeWorld, job_id: str) -> None:
    live.open_in_escrow(_order(live, job_id))


def settle_and_claim(live: DisputeWorld, job_ids: Collection[str], providers: Collection[Node]) -> Payday:
    """End, settle and claim all jobs in escrow; check that pay, fee and refund are the deposit."""
    orders = {job_id: _order(live, job_id) for job_id in job_ids}
    views, escrow = live.deployed.views, live.deployed.deployment.address("JobEscrow")
    deposited = sum(order.budget for order in orders.values())
    assert views.balance_of(escrow) == deposited
    for job_id, order in orders.items():
        live.call(amendments.cancel, Principal(order.payer, frozenset(), 1, "session"), job_id)
    settlement.settle(live.database, live.storage, DEVNET, live.settings)
    live.step()
    live.deployed.anvil.rpc("evm_increaseTime", DEVNET.challenge_seconds + 1)
    live.step()

    reader = ChainReader(live.deployed.anvil.url, live.deployed.deployment.contracts)
    for job_id, order in orders.items():
        total = reader.settlement(job_id)
        assert total.over
        assert total.paid + total.fee + total.refund == order.budget
        assert views.balance_of(order.payer) == total.refund
    claimed = {node.address: claim_all(live, node) for node in providers}
    live.step()
    found = reconcile(live.database, live.deployed.client(), live.deployed.deployment)
    assert found.difference_wei == 0, found.as_json()
    weights = {order.unitWeight for order in orders.values()}
    refunded = sum(views.balance_of(order.payer) for order in orders.values())
    return Payday(deposited, net_unit_price(PRICE, weights.pop(), 500), claimed, refunded, views.balance_of(escrow))


def _order(live: DisputeWorld, job_id: str) -> JobOrder:
    return live.call(jobs.get, job_id).order


def claim_all(live: DisputeWorld, node: Wallet | Node) -> int:
    """Claim everything that the market lists for the provider; return the gain in wei."""
    found = live.call(claims.claims_of, node.address, claimed=False, after_batch=0, limit=200)
    items = [{"amount": claim.amount_wei, "proof": claim.proof} for _, claim in found]
    before = live.deployed.views.balance_of(node.address)
    if items:
        live.transact(Wallet(node.address, node.key), "JobEscrow", "claim", node.address, items)
    return live.deployed.views.balance_of(node.address) - before
