"""Responses of the auction."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from market.platform.http.types import WeiOut

Price = Annotated[WeiOut, Field(description="Wei of ZEN per GPU-hour, fee included.")]


class PublishedBid(BaseModel):
    """A job's bid for a gang of nodes, all or none."""

    id: Annotated[str, Field(description="Random name of the order in this round.")]
    nodes: int
    limit_price_wei: WeiOut
    arrival: Annotated[int, Field(description="Rank of arrival among the bids.")]


class PublishedAsk(BaseModel):
    """One node's offer, net of the fee."""

    id: str
    min_price_wei: WeiOut
    arrival: int


class PublishedBook(BaseModel):
    """All orders of a cleared round, with the reserve price and the fee."""

    environment_class: str
    reserve_price_wei: WeiOut
    fee_bps: int
    bids: list[PublishedBid]
    asks: list[PublishedAsk]


class PublishedMatch(BaseModel):
    """A bid and the asks that serve it."""

    bid: str
    asks: list[str]
    placed: Annotated[
        bool, Field(description="False if the job had ended, or a node might not work any more, at the clearing.")
    ]


class RoundSummary(BaseModel):
    """One round of a book, without its orders."""

    book: str
    number: int
    status: Literal["open", "closed", "cleared"]
    reason: Annotated[str | None, Field(description="For a cleared round: traded, or void if no match was placed.")]
    commitment: Annotated[str, Field(description="SHA-256 of the round's secret, public from its opening.")]
    closes_at: Annotated[datetime, Field(description="From this time the round closes as soon as a trade is possible.")]
    closed_at: Annotated[datetime | None, Field(description="When the orders were fixed.")]
    cleared_at: datetime | None
    book_hash: Annotated[
        str | None, Field(description="SHA-256 of the orders' canonical JSON (RFC 8785), public from the close.")
    ]
    seed_block: Annotated[
        int | None, Field(description="Block whose hash seeds the random tie-break; null without a tie-break.")
    ]
    rule: Annotated[str | None, Field(description="sbba or posted")]
    price_wei_per_gpu_hour: Price | None
    bid_nodes: Annotated[int | None, Field(description="Nodes wanted at the close; null before the clearing.")]
    ask_nodes: Annotated[int | None, Field(description="Nodes offered at the close; null before the clearing.")]


class RoundView(RoundSummary):
    """Round of a book. Orders are sealed until the clearing, which anyone can then recompute."""

    secret: Annotated[str | None, Field(description="Preimage of the commitment; null before the clearing.")]
    seed_block_hash: str | None
    orders: Annotated[PublishedBook | None, Field(description="Null before the clearing, and months after it.")]
    matches: list[PublishedMatch]


class RoundPage(BaseModel):
    items: list[RoundSummary]
    next_after: Annotated[int | None, Field(description="Pass it as `after` for older rounds; null on the last page.")]


class OwnOrders(BaseModel):
    """Your orders in a round, by published name: ids of your jobs and address of your node."""

    bids: dict[str, str]
    asks: dict[str, str]


class BookView(BaseModel):
    """One order book: a tier in a zone."""

    book: str
    tier: str
    zone: str
    newest_round: int
    status: Literal["open", "closed", "cleared"]
    last_price_wei_per_gpu_hour: Price | None


class HistoryPoint(BaseModel):
    """A book's trades in one interval."""

    start: datetime
    rounds: Annotated[int, Field(description="Rounds that traded.")]
    last_wei: Price
    low_wei: Price
    high_wei: Price
    mean_wei: Annotated[Price, Field(description="Weighted by volume, rounded down.")]
    volume_us: Annotated[WeiOut, Field(description="Reference GPU-microseconds of the jobs placed.")]
    bid_nodes: Annotated[int, Field(description="Nodes wanted when the last of the rounds closed.")]
    ask_nodes: Annotated[int, Field(description="Nodes offered when the last of the rounds closed.")]
    fill_p50_ms: Annotated[int, Field(description="Median milliseconds from a job's funding to its match.")]
    fill_p90_ms: Annotated[int, Field(description="90th percentile of the same time.")]


class History(BaseModel):
    """A book's trades, oldest first, without empty intervals."""

    book: str
    bucket: str
    points: list[HistoryPoint]
