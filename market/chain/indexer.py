"""Follows the chain block by block and hands final events to the market, each exactly once and in order.

Blocks are ingested by hash, each must be the child of the one before. A block that is not means a reorganisation: the
blocks above the common ancestor are orphaned and the other branch is ingested. Since nothing acts on an event before
its block is final, there is nothing to take back.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from sqlalchemy.orm import Session

from market.chain import repository
from market.chain.client import Block, ChainClient
from market.chain.contracts import ChainEvent, Deployment
from market.chain.errors import FinalityViolated, UnknownBlock
from market.chain.models import ChainCursor, ChainLog
from market.db.session import Database

EventHandler = Callable[[Session, ChainEvent], None]
EventHandlers = Mapping[tuple[str, str], Sequence[EventHandler]]

_LOCK = "chain.indexer"


class Indexer:
    """One indexer per database; a second one finds the lock taken and does nothing."""

    def __init__(
        self, database: Database, client: ChainClient, deployment: Deployment, handlers: EventHandlers
    ) -> None:
        """``handlers``: by (contract name, event name); called with the session that also moves the cursor."""
        self._database = database
        self._client = client
        self._deployment = deployment
        self._handlers = handlers
        self._addresses = frozenset(deployment.contracts.values())

    def step(self, max_blocks: int = 200) -> int:
        """Ingest up to ``max_blocks`` new blocks, then act on what has become final.

        Returns:
            How many blocks were ingested or became final; 0 when there was nothing to do.

        Raises:
            FinalityViolated: a block that was final is gone. Nothing is changed; an operator has to look.
            ChainError: the node lags or is out of reach. Nothing is lost; call again later.
        """
        with self._database.exclusive(_LOCK) as held:
            if not held or not self._initialised():
                return 0
            ingested = 0
            while ingested < max_blocks and self._advance():
                ingested += 1
            return ingested + self._finalise(max_blocks)

    def _initialised(self) -> bool:
        """Whether there is a cursor; the first call sets it before the deployment, once that block is final."""
        with self._database.transaction() as session:
            if repository.cursor(session) is not None:
                return True
        self._client.check_chain()
        number = self._deployment.start_block - 1
        if self._client.finalised().number < number:
            return False
        base = self._client.block(number)
        if base is None:
            raise UnknownBlock(f"the node does not have block {number}, before the deployment")
        with self._database.transaction() as session:
            session.add(
                ChainCursor(head_number=number, head_hash=base.hash, finalised_number=number, finalised_hash=base.hash)
            )
        return True

    def _cursor(self) -> ChainCursor:
        with self._database.transaction() as session:
            cursor = repository.cursor(session)
        assert cursor is not None
        return cursor

    def _advance(self) -> bool:
        """Ingest the next block, or step back to the common ancestor; False at the head."""
        cursor = self._cursor()
        head = self._client.head()
        if head.number < cursor.head_number or (head.number == cursor.head_number and head.hash != cursor.head_hash):
            self._rewind(cursor, head)
            return True
        child = self._client.block(cursor.head_number + 1)
        if child is None:
            return False
        if child.parent_hash != cursor.head_hash:
            self._rewind(cursor, head)
            return True
        logs = [
            ChainLog(
                block_hash=child.hash,
                log_index=log.log_index,
                tx_hash=log.tx_hash,
                contract=self._deployment.name_at(log.address),
                topics=list(log.topics),
                data=bytes.fromhex(log.data[2:]),
            )
            for log in self._client.logs(child, self._addresses)
        ]
        with self._database.transaction() as session:
            current = self._unmoved(session, cursor)
            repository.add_block(session, child, logs)
            current.head_number, current.head_hash = child.number, child.hash
        return True

    def _rewind(self, cursor: ChainCursor, head: Block) -> None:
        """Orphan everything above the newest ingested block that the chain still contains."""
        number = min(head.number, cursor.head_number)
        while number > cursor.finalised_number:
            with self._database.transaction() as session:
                ours = repository.canonical_hash(session, number)
            theirs = self._client.block(number)
            if theirs is not None and theirs.hash == ours:
                break
            number -= 1
        else:
            ours = cursor.finalised_hash
            theirs = self._client.block(cursor.finalised_number)
            if theirs is None or theirs.hash != ours:
                raise FinalityViolated(
                    f"block {cursor.finalised_number} ({ours}) was final and is booked, but the chain now "
                    f"{'ends at block ' + str(head.number) if theirs is None else 'has ' + theirs.hash + ' there'}. "
                    "Connect the node that holds the chain of this database, or start with a new database."
                )
            number = cursor.finalised_number
        if number == cursor.head_number:
            raise UnknownBlock(f"the node says that block {number} is on its chain and that it is not")
        with self._database.transaction() as session:
            current = self._unmoved(session, cursor)
            repository.orphan_above(session, number)
            current.head_number, current.head_hash = number, ours

    def _finalise(self, max_blocks: int) -> int:
        """Hand over the events of blocks that have become final; the number of such blocks."""
        cursor = self._cursor()
        final = self._client.finalised()
        limit = min(final.number, cursor.head_number, cursor.finalised_number + max_blocks)
        if limit <= cursor.finalised_number:
            return 0
        theirs = final if final.number == limit else self._client.block(limit)
        with self._database.transaction() as session:
            ours = repository.canonical_hash(session, limit)
            events = repository.canonical_events(session, cursor.finalised_number, limit)
        if theirs is None or ours is None or theirs.hash != ours:
            return 0  # we are on a branch that lost; the next step rewinds
        for (number, block_hash), block_events in groupby(events, key=lambda e: (e.block_number, e.block_hash)):
            with self._database.transaction() as session:
                self._handle(session, cursor, number, block_hash, list(block_events))
        with self._database.transaction() as session:
            self._handle(session, cursor, limit, ours, [])
            repository.drop_empty_blocks(session, limit)
        return limit - cursor.finalised_number

    def _handle(
        self, session: Session, cursor: ChainCursor, number: int, block_hash: str, events: Sequence[ChainEvent]
    ) -> None:
        current = self._unmoved(session, cursor)
        if number <= current.finalised_number:
            return  # handed over already
        for event in events:
            for handler in self._handlers.get((event.contract, event.name), ()):
                try:
                    handler(session, event)
                except Exception as error:
                    error.add_note(f"while handling {event.contract}.{event.name} of transaction {event.tx_hash}")
                    raise
        current.finalised_number, current.finalised_hash = number, block_hash

    def _unmoved(self, session: Session, seen: ChainCursor) -> ChainCursor:
        """The cursor row, locked; refuses to go on if somebody else ingested in the meantime."""
        current = repository.cursor(session)
        if current is None or current.head_hash != seen.head_hash:
            raise UnknownBlock("another indexer moved the cursor; this step's view is stale")
        return current
