"""Rewards as JSON; amounts are decimal strings of wei."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from market.platform.http.types import WeiOut


class RewardProof(BaseModel):
    """Arguments of `Rewards.claim` or `claimTo`. Call it from your own wallet."""

    epoch: int = Field(description="Number of the posted epoch in the contract.")
    root: str
    cumulative_wei: WeiOut = Field(description="Your cumulative earnings.")
    amount_wei: WeiOut = Field(description="The unclaimed part of it.")
    proof: list[str] = Field(description="From your leaf to the root, 0x hex.")
    claimable_at: datetime = Field(description="The contract pays from this time. A guardian can veto before.")


class RewardEarned(BaseModel):
    """Your earnings from one epoch's start to another's end. Epochs are days since 1970."""

    post: int
    first_epoch: int
    last_epoch: int
    base_wei: WeiOut = Field(description="For uptime, on your stake.")
    bandwidth_wei: WeiOut = Field(description="For uploads of verified units and proven copies of checkpoints.")
    verifier_wei: WeiOut = Field(description="For replays that led to a decision.")


class RewardsView(BaseModel):
    account: str
    claimed_wei: WeiOut
    claimable: RewardProof | None = Field(description="Open claim; null if there is none.")
    pending: RewardProof | None = Field(description="Claim in its challenge period; null if there is none.")
    earnings: list[RewardEarned]
    next_after: Annotated[int | None, Field(description="Pass it as `after` for older earnings; null at the end.")]
