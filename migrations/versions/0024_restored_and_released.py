"""Payloads that are added back one by one, canaries' states that need not be kept, and the accounts that dispute.

Revision: 0024, after 0022.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("units", sa.Column("to_restore", sa.Boolean(), server_default="false", nullable=False))
    op.execute("UPDATE units SET to_restore = true FROM slots WHERE slots.state_unit_id = units.id AND state_restored")
    op.create_index("ix_units_to_restore", "units", ["job_id", "slot"], postgresql_where=sa.text("to_restore"))
    op.drop_column("slots", "state_restored")
    op.alter_column("canaries", "state_cid", nullable=True)
    # What "the challenger" was to send is now its address's, which its dispute or the intent itself names.
    op.alter_column("tx_intents", "account", type_=sa.String(length=42), existing_type=sa.String(length=16))
    op.execute("UPDATE tx_intents SET account = subject WHERE account = 'challenger' AND kind = 'allow_bonds'")
    op.execute(
        "UPDATE tx_intents SET account = challenger FROM challenges "
        "WHERE account = 'challenger' AND subject = 'dispute:' || dispute_id"
    )


def downgrade() -> None:
    op.execute("UPDATE tx_intents SET account = 'challenger' WHERE account <> 'operator'")
    op.alter_column("tx_intents", "account", type_=sa.String(length=16), existing_type=sa.String(length=42))
    op.execute("UPDATE canaries SET state_cid = '' WHERE state_cid IS NULL")
    op.alter_column("canaries", "state_cid", nullable=False)
    op.add_column("slots", sa.Column("state_restored", sa.Boolean(), server_default="false", nullable=False))
    op.execute("UPDATE slots SET state_restored = true FROM units WHERE slots.state_unit_id = units.id AND to_restore")
    op.drop_index("ix_units_to_restore", table_name="units")
    op.drop_column("units", "to_restore")
