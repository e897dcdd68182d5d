"""Files that arrive in pieces; what of published slot states and revealed states is pinned, and released.

Revision: 0017, after 0016.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "uploads",
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(length=24), nullable=False),
        sa.Column("cid", sa.String(length=128), nullable=False),
        sa.Column("joined", sa.Boolean(), nullable=False),
        sa.Column("pinned_here", sa.Boolean(), nullable=False),
        sa.Column("touched_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_uploads_unit_id_units")),
        sa.PrimaryKeyConstraint("unit_id", "purpose", name=op.f("pk_uploads")),
    )
    op.create_index(op.f("ix_uploads_touched_at"), "uploads", ["touched_at"])
    op.create_table(
        "upload_pieces",
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(length=24), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("cid", sa.String(length=128), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["unit_id", "purpose"],
            ["uploads.unit_id", "uploads.purpose"],
            name=op.f("fk_upload_pieces_unit_id_uploads"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("unit_id", "purpose", "number", name=op.f("pk_upload_pieces")),
    )
    op.create_table(
        "state_pins",
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("provider", sa.String(length=42), nullable=False),
        sa.Column("nonce", sa.String(length=66), nullable=False),
        sa.Column("proof", sa.String(length=66), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.clock_timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["unit_id"], ["units.id"], name=op.f("fk_state_pins_unit_id_units")),
        sa.PrimaryKeyConstraint("unit_id", "provider", name=op.f("pk_state_pins")),
    )
    op.create_index("ix_units_slot_state_public", "units", ["id"], postgresql_where=sa.text("slot_state_public"))
    op.create_index("ix_units_start_slot_state_cid", "units", ["start_slot_state_cid"])


def downgrade() -> None:
    op.drop_index("ix_units_start_slot_state_cid", table_name="units")
    op.drop_index("ix_units_slot_state_public", table_name="units")
    op.drop_table("state_pins")
    op.drop_table("upload_pieces")
    op.drop_table("uploads")
