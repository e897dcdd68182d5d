"""The steps of a settlement on chain."""

from typing import Any

from kit.chain.deployed_chain import OPERATOR, OTHER, PROVIDER, Chain
from market.domain.network import DEVNET, ZEN
from zoo_protocol import merkle
from zoo_protocol.hashing import sha256, to_hex
from zoo_protocol.payments.receipt import net_unit_price
from zoo_protocol.payments.settlement_batch import NO_ROOT, JobLine, claim_leaf, settlement_hash

UNIT_PRICE_WEI_PER_GPU_HOUR = 36 * ZEN // 10  # a unit of the test orders is one GPU-second: 10**15 wei
UNIT_WEIGHT_US = 1_000_000
FEE_BPS = 500


def open_job(chain: Chain, budget: int = ZEN) -> str:
    job_id, arguments = chain.order(budget)
    chain.send(OTHER, "JobEscrow", "openJob", *arguments)
    return job_id


def _line(job_id: str, units: int) -> JobLine:
    price = UNIT_PRICE_WEI_PER_GPU_HOUR if units else 0
    return JobLine(job_id, price, units, 0, min(units, 1), True, "0x" + "02" * 32)


def _units_root(job_id: str) -> bytes:
    return sha256(f"units of {job_id}".encode())  # never disputed


def _claims_sibling(job_id: str, units: int) -> bytes:
    claims, units_root = claim_leaf(PROVIDER.address, pay(units)), _units_root(job_id)
    return merkle.parent_hash(units_root, settlement_hash(claims, units_root, [_line(job_id, units)]))


def pay(units: int) -> int:
    """Return the provider's pay for ``units`` in wei."""
    return units * net_unit_price(UNIT_PRICE_WEI_PER_GPU_HOUR, UNIT_WEIGHT_US, FEE_BPS)


def settlement(job_id: str, units: int = 2) -> tuple[str, str, list[Any]]:
    """Return (contract, function, arguments) of the call that pays units and refunds the rest."""
    claims_root = to_hex(claim_leaf(PROVIDER.address, pay(units))) if units else NO_ROOT
    line = _line(job_id, units)
    return "JobEscrow", "settle", [claims_root, to_hex(_units_root(job_id)), [line.as_argument()]]


def settle_job(chain: Chain, job_id: str, units: int = 2) -> None:
    """Settle the job; the provider's claim opens a challenge period later."""
    contract, function, arguments = settlement(job_id, units)
    chain.send(OPERATOR, contract, function, *arguments)


def claim_proof(job_id: str, units: int) -> list[str]:
    return [to_hex(_claims_sibling(job_id, units))]


def batch_root(job_id: str, units: int) -> str:
    return to_hex(merkle.parent_hash(claim_leaf(PROVIDER.address, pay(units)), _claims_sibling(job_id, units)))


def pass_challenge_period(chain: Chain) -> None:
    chain.anvil.rpc("evm_increaseTime", DEVNET.challenge_seconds + 1)
    chain.anvil.mine()


def claim_pay(chain: Chain, job_id: str, units: int = 2) -> None:
    item = {"amount": pay(units), "proof": claim_proof(job_id, units)}
    chain.send(PROVIDER, "JobEscrow", "claim", PROVIDER.address, [item])


def penalty(evidence: str) -> tuple[str, str, list[Any]]:
    """Return (contract, function, arguments) of a slash for a wrong result."""
    return "ProviderStaking", "slash", [PROVIDER.address, 2, evidence]
