"""Auction rounds of a jobs harness."""

from sqlalchemy import update

from kit.jobs.jobs_fixtures import ZEN, World
from market.auctions import clearing
from market.auctions.models import AuctionRound
from market.domain.network import DEVNET
from market.platform.db.base import utc_now


class Blocks:
    """A chain whose blocks the test adds; ``head`` is the newest."""

    def __init__(self) -> None:
        self.head = 100

    def head_number(self) -> int:
        return self.head

    def block_hash(self, number: int) -> str | None:
        return f"0x{number:064x}" if number <= self.head else None


def clear_when_due(world: World) -> int:
    matched = clearing.clear_due(world.database, world.settings, DEVNET)
    world.execute(update(AuctionRound).values(closes_at=utc_now()))
    return matched + clearing.clear_due(world.database, world.settings, DEVNET)


def thick(world: World) -> tuple[list[str], list[str]]:
    """Return five jobs of one node and five nodes, of which the random tie-break excludes one."""
    return [world.job(nodes=1, max_price=(8 - rank) * ZEN) for rank in range(5)], [world.node() for _ in range(5)]
