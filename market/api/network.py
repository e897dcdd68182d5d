"""Route of the network's parameters, which clients need for signatures."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from market.chain.contracts.codec import Deployment
from market.domain.network import Tier
from market.platform.db.rows import from_row
from market.platform.http.deps import ServicesDep
from market.platform.http.types import WeiOut
from market.settings import split_list

router = APIRouter(prefix="/v1", tags=["network"])


class BenchmarkView(BaseModel):
    """Hardware benchmark of a tier: its parameters and minimum rates."""

    size: int
    pool: int
    lanes: int
    rounds: int
    steps: int
    opened: int
    min_mflops: int
    min_walk_mbps: int = Field(description="10^6 bytes per second in each lane.")
    min_upload_mbps: int = Field(description="10^6 bits per second, of the answer.")
    ready_seconds: int
    answer_seconds: int


class SpeedsView(BaseModel):
    """FLOP/s of one GPU by the precision of a job's matrix products."""

    float32: int
    bfloat16: int


class TierView(BaseModel):
    """Tier: memory in GB, network in Gbit/s, uptime in basis points, prices per GPU-hour."""

    id: Annotated[int, Field(description="The `tier` in signed orders and asks.")]
    gpu_model: str
    gpus: int
    gpu_memory_gb: int
    ram_gb: int
    network_gbps: int
    uptime_sla_bps: int
    reserve_price_wei: WeiOut
    minimum_stake_wei: WeiOut
    peak_flops_per_gpu: SpeedsView = Field(description="Published dense peak.")
    reference_share_bps: int = Field(description="Share of the peak that weights and prices count on.")
    reference_flops_per_gpu: SpeedsView = Field(description="That share in FLOP/s.")
    benchmark: BenchmarkView


class DomainView(BaseModel):
    """EIP-712 domain of orders, asks and unit commitments."""

    name: str
    version: str
    chainId: int
    verifyingContract: str


class NetworkView(BaseModel):
    name: str
    chain_id: int
    rpc_url: str
    gateway_url: str
    gateway_urls: list[str]
    contracts: dict[str, str]
    start_block: Annotated[int, Field(description="Block of the contracts' deployment.")]
    eip712_domain: DomainView
    fee_bps: int
    tiers: dict[str, TierView]
    verifier_minimum_stake_wei: WeiOut
    unbonding_seconds: int
    refund_delay_seconds: int
    cancel_delay_seconds: int
    challenge_seconds: int
    newcomer_sampling_bps: int
    sampling_floor_bps: int
    penalty_bps: dict[str, int]
    treasury_split_bps: dict[str, int]
    max_blob_bytes: int


@router.get("/network")
def get_network(services: ServicesDep) -> NetworkView:
    """Return the addresses and parameters of this network."""
    network, settings = services.network, services.settings
    gateways = split_list(settings.gateway_url)
    return from_row(
        NetworkView,
        network,
        chain_id=services.part(Deployment).chain_id,
        rpc_url=settings.public_rpc_url or split_list(settings.rpc_url)[0],
        gateway_url=gateways[0],
        gateway_urls=gateways,
        contracts=dict(services.part(Deployment).contracts),
        start_block=services.part(Deployment).start_block,
        eip712_domain=DomainView(**services.domain.as_dict()),
        tiers={tier.name: _tier_view(tier) for tier in network.tiers},
        penalty_bps=dict(network.penalty_bps),
        treasury_split_bps=dict(network.treasury_split_bps),
        max_blob_bytes=settings.max_blob_bytes,
    )


def _tier_view(tier: Tier) -> TierView:
    return from_row(
        TierView,
        tier,
        peak_flops_per_gpu=SpeedsView(**asdict(tier.peak_flops_per_gpu)),
        reference_flops_per_gpu=SpeedsView(**asdict(tier.reference_flops_per_gpu)),
        benchmark=BenchmarkView(**asdict(tier.benchmark)),
    )
