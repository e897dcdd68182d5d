"""Sessions of the web console.

Revision: 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from migrations.baseline.parts import ADDRESS, HASH, TIME, created_at

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "console_sessions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("secret_hash", HASH, nullable=False, unique=True),
        sa.Column("address", ADDRESS, sa.ForeignKey("accounts.address"), nullable=False),
        sa.Column("user_agent", sa.String(200), nullable=False),
        sa.Column("chain_roles", postgresql.ARRAY(sa.String(16)), nullable=False),
        sa.Column("roles_read_at", TIME),
        sa.Column("seen_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("ended_at", TIME),
        created_at(),
    )
    op.create_index("ix_console_sessions_address", "console_sessions", ["address"])


def downgrade() -> None:
    op.drop_table("console_sessions")
