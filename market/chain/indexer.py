"""Indexer: ingests blocks, passes final events to the handlers once and in order.

Each ingested block is the child of the one before. Otherwise a reorg happened: the blocks above the common ancestor
become orphans and the other branch is ingested. Handlers only get events of final blocks, so a reorg undoes nothing.

Far behind finality, blocks are read in ranges, with the same checks. A range shrinks when a node refuses it or drops
the connection, and grows slowly again.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import structlog
from sqlalchemy.orm import Session

from market.chain import repository
from market.chain.contracts.codec import ChainEvent, Deployment
from market.chain.errors import FinalityViolated, RateLimited, RpcError, RpcUnavailable, UnknownBlock
from market.chain.models import ChainCursor, ChainLog
from market.chain.rpc.client import Block, ChainClient, Log
from market.platform.db.session import Database

EventHandler = Callable[[Session, ChainEvent], None]
EventHandlers = Mapping[tuple[str, str], Sequence[EventHandler]]

_log = structlog.get_logger(__name__)

_LOCK = "chain.indexer"
MAX_RANGE = 256
"""Blocks per batch; nodes commonly refuse batches of more than a thousand requests."""


class Indexer:
    """Indexer of a database, under an advisory lock; a second one does nothing.

    ``handlers`` are by (contract name, event name). They run in the transaction that moves the cursor.
    """

    def __init__(
        self,
        database: Database,
        client: ChainClient,
        deployment: Deployment,
        handlers: EventHandlers,
        *,
        max_range: int = MAX_RANGE,
    ) -> None:
        self._database = database
        self._client = client
        self._deployment = deployment
        self._handlers = handlers
        self._addresses = frozenset(deployment.contracts.values())
        self._range = self._max_range = max_range

    def step(self, max_blocks: int = 1024) -> int:
        """Ingest up to ``max_blocks`` new blocks, then handle the events of final ones.

        Returns:
            Number of blocks that were ingested or became final.

        Raises:
            FinalityViolated: the chain lacks a final block. Nothing changed; an operator must act.
            ChainError: the node lags or is unreachable; a later call continues.
        """
        if self._is_current():
            return 0
        with self._database.advisory_lock(_LOCK) as held:
            if not held or not self._initialised():
                return 0
            ingested = 0
            while ingested < max_blocks and (done := self._catch_up(max_blocks - ingested)):
                ingested += done
            while ingested < max_blocks and self._advance():
                ingested += 1
            return ingested + self._finalise(max_blocks)

    def _is_current(self) -> bool:
        """Return True if the cursor is at the chain's head: the usual case, without a lock."""
        with self._database.transaction() as session:
            cursor = repository.cursor(session)
        if cursor is None or self._client.head().hash != cursor.head_hash:
            return False
        return self._client.finalised().hash == cursor.finalised_hash

    def _initialised(self) -> bool:
        """Set a missing cursor before the deployment; return False until that block is final."""
        with self._database.transaction() as session:
            if repository.cursor(session) is not None:
                return True
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

    def _catch_up(self, max_blocks: int) -> int:
        """Ingest a range of final blocks and return their number; 0 if there are fewer than two."""
        cursor = self._cursor()
        final = self._client.finalised()
        while True:
            size = min(self._range, max_blocks, final.number - cursor.head_number)
            if size < 2:
                return 0
            try:
                blocks = self._client.blocks(cursor.head_number + 1, cursor.head_number + size)
                logs = self._client.logs(blocks, self._addresses)
                break
            except (RpcUnavailable, RpcError) as error:
                self._range = max(1, size // 2)
                _log.info("block_range_refused", blocks=size, next=self._range, reason=error.code)
                if isinstance(error, RateLimited) or self._range == 1:
                    raise
        if blocks[0].parent_hash != cursor.head_hash:
            return 0  # a reorg, which _advance handles
        if blocks[-1].number == final.number and blocks[-1].hash != final.hash:
            raise UnknownBlock(f"the node has two final blocks {final.number}: {blocks[-1].hash} and {final.hash}")
        self._ingest(cursor, blocks, logs)
        return len(blocks)

    def _advance(self) -> bool:
        """Ingest the next block, or rewind to the common ancestor; return False at the head."""
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
        self._ingest(cursor, [child], self._client.logs([child], self._addresses))
        return True

    def _ingest(self, cursor: ChainCursor, blocks: Sequence[Block], logs: Sequence[Sequence[Log]]) -> None:
        """Store consecutive blocks after the cursor: the last one and those with logs."""
        rows = [
            ChainLog(
                block_hash=log.block_hash,
                log_index=log.log_index,
                tx_hash=log.tx_hash,
                contract=self._deployment.name_at(log.address),
                topics=list(log.topics),
                data=bytes.fromhex(log.data[2:]),
            )
            for block_logs in logs
            for log in block_logs
        ]
        kept = [block for block, block_logs in zip(blocks, logs, strict=True) if block_logs or block is blocks[-1]]
        with self._database.transaction() as session:
            current = self._unmoved(session, cursor)
            repository.add_blocks(session, kept, rows)
            current.head_number, current.head_hash = blocks[-1].number, blocks[-1].hash
        self._range = min(self._max_range, self._range + max(1, self._range // 8))

    def _rewind(self, cursor: ChainCursor, head: Block) -> None:
        """Orphan all blocks above the newest ingested one that the chain contains."""
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
                    f"block {cursor.finalised_number} ({ours}) was final and is recorded, but the chain now "
                    f"{'ends at block ' + str(head.number) if theirs is None else 'has ' + theirs.hash + ' there'}. "
                    "Connect a node with the chain of this database, or use a new database."
                )
            number = cursor.finalised_number
        if number == cursor.head_number:
            raise UnknownBlock(f"the node's answers on block {number} contradict each other")
        with self._database.transaction() as session:
            current = self._unmoved(session, cursor)
            repository.orphan_above(session, number)
            current.head_number, current.head_hash = number, ours

    def _finalise(self, max_blocks: int) -> int:
        """Handle the events of blocks that have become final and return the number of blocks."""
        cursor = self._cursor()
        final = self._client.finalised()
        with self._database.transaction() as session:
            blocks = repository.canonical_blocks(session, cursor.finalised_number, final.number, max_blocks)
            if not blocks:
                return 0
            limit, ours = blocks[-1]
            events = repository.canonical_events(session, cursor.finalised_number, limit)
        theirs = final if final.number == limit else self._client.block(limit)
        if theirs is None or theirs.hash != ours:
            return 0  # an orphaned branch; the next step rewinds
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
            return  # handled already
        for event in events:
            for handler in self._handlers.get((event.contract, event.name), ()):
                try:
                    handler(session, event)
                except Exception as error:
                    error.add_note(f"while handling {event.contract}.{event.name} of transaction {event.tx_hash}")
                    raise
        current.finalised_number, current.finalised_hash = number, block_hash

    def _unmoved(self, session: Session, seen: ChainCursor) -> ChainCursor:
        """Return the cursor row, locked. Raises UnknownBlock if another indexer moved it."""
        current = repository.locked_cursor(session)
        if current is None or current.head_hash != seen.head_hash:
            raise UnknownBlock("another indexer moved the cursor; this step's view is stale")
        return current
