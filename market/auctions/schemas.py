"""Responses of the auction."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from market.api.types import WeiOut


class RoundView(BaseModel):
    """One round of a tier's book. While it is open the book is sealed; afterwards anyone can repeat the clearing."""

    tier: str
    number: int
    status: Literal["open", "cleared"]
    closes_at: Annotated[datetime, Field(description="From then on it clears as soon as somebody can trade.")]
    cleared_at: datetime | None
    seed_hash: Annotated[str, Field(description="SHA-256 of the seed of the lot, public from the opening.")]
    seed: Annotated[str | None, Field(description="The seed; null while the round is open.")]
    rule: Annotated[str | None, Field(description="sbba or posted")]
    price_wei_per_gpu_hour: WeiOut | None
    book: Annotated[dict[str, object] | None, Field(description="Orders as cleared; null while the round is open.")]
    matches: list[object]
