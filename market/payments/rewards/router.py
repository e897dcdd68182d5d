"""Rewards over REST."""

from typing import Annotated

from fastapi import APIRouter, Query

from market.accounts.deps import CurrentAccount
from market.payments.rewards import repository, service
from market.payments.rewards.schemas import RewardEarned, RewardsView
from market.platform.db.base import utc_now
from market.platform.db.rows import from_row
from market.platform.http.deps import Reads

router = APIRouter(prefix="/v1", tags=["rewards"])


@router.get("/rewards")
def get_rewards(
    account: CurrentAccount,
    session: Reads,
    after: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Post of the last earning seen.")] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number.")] = 50,
) -> RewardsView:
    """Your earnings for uptime, bandwidth and verification, with the proof for your claim."""
    in_force, waiting, claimed = service.claimable(session, account.address, utc_now())
    found = repository.earnings_of(session, account.address, after, limit)
    return RewardsView(
        account=account.address,
        claimed_wei=claimed,
        claimable=in_force,
        pending=waiting,
        earnings=[from_row(RewardEarned, earning) for earning in found],
        next_after=found[-1].post if len(found) == limit else None,
    )
