"""How a test has jobs paid: the one place that knows the steps of a settlement on the chain."""

from typing import Any

from market.domain.network import ZEN
from support.chain import OPERATOR, OTHER, PROVIDER, Chain

UNIT_PRICE_WEI_PER_GPU_HOUR = 36 * ZEN // 10  # a unit of the test orders is one GPU-second: 10**15 wei


def open_job(chain: Chain, budget: int = ZEN) -> str:
    """Escrow a job of the payer, mined; its id."""
    job_id, arguments = chain.order(budget)
    chain.send(OTHER, "JobEscrow", "openJob", *arguments)
    return job_id


def settlement(job_id: str, units: int = 2) -> tuple[str, str, list[Any]]:
    """(contract, function, arguments) of the operator's call that pays units of the job and refunds the rest."""
    payments = [{"provider": PROVIDER.address, "units": units}] if units else []
    price = UNIT_PRICE_WEI_PER_GPU_HOUR if units else 0
    return "JobEscrow", "settle", [job_id, price, payments, "0x" + "01" * 32, "0x" + "02" * 32]


def settle_job(chain: Chain, job_id: str, units: int = 2) -> None:
    """Settle the job, mined."""
    contract, function, arguments = settlement(job_id, units)
    chain.send(OPERATOR, contract, function, *arguments)


def penalty(evidence: str) -> tuple[str, str, list[Any]]:
    """(contract, function, arguments) of the operator's call that slashes the provider for a wrong result."""
    return "ProviderStaking", "slash", [PROVIDER.address, 2, evidence]
