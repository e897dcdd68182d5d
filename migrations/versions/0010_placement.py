"""Failure domains and round trips of nodes; reservations of jobs that wait for a gang.

Revision: 0010, after 0009.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_PROVIDERS = {
    "site": sa.String(length=64),
    "asn": sa.BigInteger(),
    "owner": sa.String(length=64),
    "round_trip_ms": sa.Integer(),
}
_JOBS = {
    "reserved_zone": sa.String(length=32),
    "reserved_class": sa.String(length=66),
    "reserved_until": sa.DateTime(timezone=True),
}


def upgrade() -> None:
    for table, columns in (("providers", _PROVIDERS), ("jobs", _JOBS)):
        for name, kind in columns.items():
            op.add_column(table, sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    for table, columns in (("jobs", _JOBS), ("providers", _PROVIDERS)):
        for name in reversed(columns):
            op.drop_column(table, name)
