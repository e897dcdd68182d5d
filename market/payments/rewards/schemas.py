"""Rewards as JSON; amounts are decimal strings of wei."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from market.platform.http.types import WeiOut


class RewardProof(BaseModel):
    """Give `cumulative_wei` and `proof` to `Rewards.claim` (or `claimTo`) with any wallet (your own)."""

    epoch: int = Field(description="Number of the posted epoch in the contract.")
    root: str
    cumulative_wei: WeiOut = Field(description="All that you have earned ever.")
    amount_wei: WeiOut = Field(description="What of it you have not claimed yet.")
    proof: list[str] = Field(description="From your leaf to the root, 0x hex.")
    claimable_at: datetime = Field(description="The contract pays from then on; a guardian can veto until then.")


class RewardEarned(BaseModel):
    """What you earned from the beginning of one epoch to the end of another (days since 1970)."""

    post: int
    first_epoch: int
    last_epoch: int
    base_wei: WeiOut = Field(description="For uptime, on your stake.")
    bandwidth_wei: WeiOut = Field(description="For uploads of verified units and proven copies of checkpoints.")
    verifier_wei: WeiOut = Field(description="For replays that led to a decision.")


class RewardsView(BaseModel):
    account: str
    claimed_wei: WeiOut
    claimable: RewardProof | None = Field(description="What you can claim now; null if there is nothing.")
    pending: RewardProof | None = Field(description="What you can claim soon; null if nothing waits.")
    earnings: list[RewardEarned]
    next_after: Annotated[int | None, Field(description="Pass it as `after` for older earnings; null at the end.")]
