"""Auction rounds, for all to see and, once cleared, to repeat."""

from typing import Annotated

from fastapi import APIRouter, Path

from market.api.deps import ServicesDep, Uow
from market.api.errors import UnknownTier
from market.api.openapi import refusals
from market.auctions import service
from market.auctions.errors import RoundNotFound
from market.auctions.models import AuctionRound
from market.auctions.schemas import RoundView
from market.domain.network import NetworkParameters, Tier

router = APIRouter(prefix="/v1/auctions", tags=["auctions"])

TierName = Annotated[str, Path(max_length=16, examples=["bronze"])]


@router.get("/{tier}/rounds/latest", responses=refusals(UnknownTier, RoundNotFound))
def get_latest_round(tier: TierName, services: ServicesDep, session: Uow) -> RoundView:
    """The newest round of a tier's book."""
    row = _tier(services.network, tier)
    return _view(row, service.get_round(session, row, None))


@router.get("/{tier}/rounds/{number}", responses=refusals(UnknownTier, RoundNotFound))
def get_round(
    tier: TierName, number: Annotated[int, Path(ge=0, lt=2**31)], services: ServicesDep, session: Uow
) -> RoundView:
    """One round of a tier's book."""
    row = _tier(services.network, tier)
    return _view(row, service.get_round(session, row, number))


def _tier(network: NetworkParameters, name: str) -> Tier:
    try:
        return network.tier(name)
    except KeyError:
        names = ", ".join(tier.name for tier in network.tiers)
        raise UnknownTier(f"no tier {name!r}; there are {names}", field="tier") from None


def _view(tier: Tier, row: AuctionRound) -> RoundView:
    cleared = row.status == "cleared"
    return RoundView(
        tier=tier.name,
        number=row.number,
        status="cleared" if cleared else "open",
        closes_at=row.closes_at,
        cleared_at=row.cleared_at,
        seed_hash=row.seed_hash,
        seed=row.seed if cleared else None,
        rule=row.rule,
        price_wei_per_gpu_hour=row.price_wei,
        book=row.book if cleared else None,
        matches=row.matches,
    )
