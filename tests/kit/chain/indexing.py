"""An indexer's records of the chain, for comparison with those of a fresh indexer."""

from typing import Any

from sqlalchemy import select

from kit.chain.deployed_chain import Chain
from market.chain.models import ChainBlock, ChainCursor, ChainLog
from market.ledger.models import LedgerJournal, LedgerPosting
from market.platform.db.session import Database


def cursor(database: Database) -> ChainCursor:
    with database.transaction() as session:
        return session.scalars(select(ChainCursor)).one()


def booked(database: Database) -> list[Any]:
    """Return all recorded effects, without ids."""
    with database.transaction() as session:
        return [
            tuple(row)
            for row in session.execute(
                select(LedgerJournal.key, LedgerJournal.block_number, LedgerPosting.account, LedgerPosting.amount)
                .join(LedgerPosting)
                .order_by(LedgerJournal.id, LedgerPosting.line)
            )
        ]


def canonical_logs(database: Database) -> list[Any]:
    """Return (block number, block hash, log index, transaction) of all canonical logs."""
    with database.transaction() as session:
        return [
            tuple(row)
            for row in session.execute(
                select(ChainBlock.number, ChainLog.block_hash, ChainLog.log_index, ChainLog.tx_hash)
                .join(ChainBlock, ChainBlock.hash == ChainLog.block_hash)
                .where(ChainBlock.canonical)
                .order_by(ChainBlock.number, ChainLog.log_index)
            )
        ]


def forget(database: Database) -> None:
    """Delete everything that an indexer has written, past the guards of the ledger."""
    with database.transaction() as session:
        for table in ("chain_logs", "chain_blocks", "chain_cursor"):
            session.connection().exec_driver_sql(f"DELETE FROM {table}")
        session.connection().exec_driver_sql("SET LOCAL session_replication_role = replica")
        session.connection().exec_driver_sql("DELETE FROM ledger_postings")
        session.connection().exec_driver_sql("DELETE FROM ledger_journals")


def fresh(database: Database, chain: Chain) -> tuple[list[Any], list[Any]]:
    """Return (recorded, canonical logs) of a new indexer."""
    forget(database)
    chain.index(database)
    return booked(database), canonical_logs(database)
