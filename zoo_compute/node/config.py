"""Settings of a node."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Role = Literal["provider", "verifier"]


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Settings of one node.

    Attributes:
        role: ``provider`` trains, ``verifier`` replays.
        state_dir: durable state: boundary states, pinned files, leases.
        region: location, such as ``eu-west``.
        site, asn, owner: building, autonomous system and owner; the market spreads a job's nodes over different ones.
        min_price_wei: minimum price in wei per GPU-hour, net of the fee.
        profile: execution profile (``training_gym.runtime.profile``); None selects CUDA if a GPU is present.
        processes: processes that may train a unit together; None is one for each GPU, or one on a CPU.
        memory_gb: memory limit of each training process.
        keep_hours: retention of the states of finished units.
        payout_address: recipient of a provider's pay; None is its own wallet.
        claim_seconds: interval between claims.
        gateways: IPFS gateways in addition to the market's.
        attest: take TEE quotes and renew the attestation.
        pccs_url: source of the collateral of TEE quotes; None is Intel.
        referee: a verifier enlists as a referee of disputes.
        link_mbps: limit of uploads and of downloads, 10**6 bits per second each; None is unlimited.
    """

    api_url: str
    role: Role
    state_dir: Path
    name: str
    region: str = "local"
    tier: str = "bronze"
    min_price_wei: int = 0
    profile: str | None = None
    processes: int | None = None
    memory_gb: int = 8
    keep_hours: float = 48.0
    payout_address: str | None = None
    claim_seconds: float = 600.0
    gateways: tuple[str, ...] = ()
    site: str | None = None
    asn: int | None = None
    owner: str | None = None
    link_mbps: float | None = None
    attest: bool = False
    pccs_url: str | None = None
    referee: bool = True
