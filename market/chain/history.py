"""What the indexed chain says, up to the last final block."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from market.chain import repository
from market.chain.contracts import ChainEvent
from market.chain.models import ChainBlock, ChainCursor, ChainLog


def final_events(session: Session, topic: str) -> list[ChainEvent]:
    """Final events of our contracts that have ``topic`` (32 bytes as 0x hex) indexed, in the chain's order."""
    statement = (
        select(ChainLog, ChainBlock)
        .join(ChainBlock, ChainBlock.hash == ChainLog.block_hash)
        .where(ChainBlock.canonical, ChainLog.topics.contains([topic]))
        .where(ChainBlock.number <= select(ChainCursor.finalised_number).scalar_subquery())
        .order_by(ChainBlock.number, ChainLog.log_index)
    )
    return repository.decoded(session.execute(statement).tuples())
