"""A market of three months as rows, in bulk and the same at each call.

The rows skip the services, so they are as consistent as the console's pages need, not more. One job has many rounds,
and one dispute has all its events.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from eth_utils.address import to_checksum_address
from sqlalchemy import Engine, text

from kit.console.dispute_history import add_disputes, hash32
from zoo_protocol.hashing import sha256

JOBS_OF_A_PAYER = 15


@dataclass(frozen=True)
class Seeded:
    """Ids of the rows that tests and screenshots show."""

    job_id: str  # running, with the most rounds
    waiting_job_id: str
    settled_job_id: str
    payer: str
    provider: str
    verifier: str
    dispute_id: str  # upheld
    open_dispute_id: str


def address(kind: str, number: int) -> str:
    return to_checksum_address("0x" + sha256(f"{kind} {number}".encode()).hex()[:40])


_STATEMENTS = Path(__file__).with_suffix(".sql")


def seed(engine: Engine, now: datetime, *, jobs: int, providers: int, epochs: int, rounds: int = 720) -> Seeded:
    """Fill empty tables; ``rounds`` is the number of hourly auction rounds of each book.

    100,000 jobs and 10,000 providers take about a minute. Large tables need ``VACUUM ANALYZE`` afterwards.
    """
    scale = max(1, jobs // 1_000)
    payers = max(2, jobs // JOBS_OF_A_PAYER)
    values = {
        "now": now,
        "t": scale,
        "jobs": jobs,
        "nodes": providers,
        "payers": payers,
        "epochs": epochs,
        "epoch": int(now.timestamp()) // 86_400,
        "rounds": rounds,
        "windows": max(4, jobs // 500),
    }
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))  # no checks of foreign keys
        helpers, _, rest = _STATEMENTS.read_text().partition("-- rows\n")
        connection.execute(text(helpers))
        wallets = [{"kind": "node", "n": n, "address": address("node", n)} for n in range(1, providers + 1)]
        wallets += [{"kind": "payer", "n": n, "address": address("payer", n)} for n in range(payers)]
        connection.execute(text("INSERT INTO wallet VALUES (:kind, :n, :address)"), wallets)
        for statement in rest.split(";\n"):
            if statement.strip():
                connection.execute(text(statement), values)
        seeded = Seeded(
            job_id=hash32("job", 5 * scale + 1),
            waiting_job_id=hash32("job", 1),
            settled_job_id=hash32("job", 14 * scale + 1),
            payer=address("payer", (5 * scale + 1) % payers),
            provider=address("node", 1),
            verifier=address("node", 10),
            dispute_id=hash32("dispute", 1),
            open_dispute_id=hash32("dispute", 2),
        )
        disputed = text("SELECT id, job_id, round, slot, provider FROM units WHERE job_id = :job ORDER BY id LIMIT 40")
        units = connection.execute(disputed, {"job": seeded.job_id}).all()
        referees = [address("node", n) for n in (10, 20, 30)]
        add_disputes(connection, units, address("payer", 0), referees, now)
    return seeded
