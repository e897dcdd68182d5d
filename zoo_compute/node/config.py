"""What a node's operator decides."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Role = Literal["provider", "verifier"]


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The settings of one node.

    Attributes:
        api_url: base URL of the market.
        role: ``provider`` trains, ``verifier`` replays.
        state_dir: what the node must not lose: states that may be challenged, pins, leases at hand.
        name: shown to others.
        region: where it stands, such as ``eu-west``.
        site, asn, owner: the building that it stands in, its network's autonomous system and who owns it; the market
            spreads a job's nodes over different ones.
        tier: the tier that a provider offers.
        min_price_wei: a provider's least price in wei per GPU-hour, net of the fee.
        profile: execution profile (``training_gym.runtime.profile``); None picks CUDA where a GPU is found.
        memory_gb: bound on the training process's own memory.
        keep_hours: how long the states of finished units are kept for challenges.
        payout_address: where a provider's pay goes; None is its own wallet.
        claim_seconds: how often it looks for pay that can be claimed.
        gateways: IPFS gateways that are asked for content besides the market's, such as one in the same building.
        attest: take quotes of the trusted environment that the node runs in, and keep its attestation up.
        pccs_url: where the collateral of such quotes comes from; None is Intel.
        referee: whether a verifier lets itself be listed as a referee of disputes, and judges.
        link_mbps: limit on uploads and on downloads, 10**6 bits per second each; None is none.
    """

    api_url: str
    role: Role
    state_dir: Path
    name: str
    region: str = "local"
    tier: str = "bronze"
    min_price_wei: int = 0
    profile: str | None = None
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
