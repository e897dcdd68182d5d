"""Metadata and column types of the baseline, copied: a migration imports no present models."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

JSONB = postgresql.JSONB()
TIME = sa.DateTime(timezone=True)
WEI = sa.Numeric(78, 0)


def created_at() -> sa.Column[object]:
    """Return a new column with the time at which the row was inserted."""
    return sa.Column("created_at", TIME, nullable=False, server_default=sa.text("clock_timestamp()"))
