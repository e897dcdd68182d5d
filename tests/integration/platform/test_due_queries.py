"""Queries that sweep and settlement repeat every two seconds, among many settled jobs."""

import re

from kit.jobs.jobs_fixtures import World
from kit.measures import statements
from sqlalchemy import text

from market.payments.settlement.plan import due_batches
from market.platform.db.base import utc_now
from market.training.evaluation.service import jobs_to_validate
from market.training.rounds.service import due_jobs

SETTLED = {  # changed columns of 5,000 copies, and the row that is copied
    "jobs": ("'id', 'settled' || n, 'status', 'settled'", "true"),
    "units": ("'id', 99 + n, 'job_id', 'settled' || n, 'status', 'verified', 'settlement_id', 1", "slot = 0"),
    "checkpoints": ("'id', 99 + n, 'job_id', 'settled' || n", "true"),
}


def test_due_queries_read_open_jobs_by_index(world: World, nodes: list[str]) -> None:
    job_id = world.running(nodes)
    world.execute(
        text("SET LOCAL session_replication_role = replica"),  # the copied units need no batch
        *(
            text(
                f"INSERT INTO {table} SELECT (jsonb_populate_record({table}, jsonb_build_object({changes}))).*"
                f" FROM {table}, generate_series(1, 5000) n WHERE {one}"
            )
            for table, (changes, one) in SETTLED.items()
        ),
        text("UPDATE checkpoints SET validation_loss = NULL WHERE job_id NOT LIKE 'settled%'"),
        text("ANALYZE jobs, units, checkpoints"),
    )
    with statements(world.database) as queries:
        assert due_jobs(world.database) == [job_id]
        assert jobs_to_validate(world.database) == [job_id]
        assert world.call(due_batches, world.settings, utc_now()) == []
    with world.database.engine.connect() as connection:
        plans = [
            "\n".join(connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).scalars())
            for statement, parameters in queries
        ]
    assert [plan for plan in plans if re.search("Seq Scan on (jobs|units|checkpoints)", plan)] == []
    assert sum("ix_jobs_open" in plan for plan in plans) >= 3
