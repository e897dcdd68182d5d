"""What accounts put on storage within a day, which their quota bounds; indexes for what each sweep looks up.

Revision: 0027, after 0026.
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "blob_uploads",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("account", sa.String(length=42), nullable=False),
        sa.Column("cid", sa.String(length=128), nullable=True),
        sa.Column("charged", sa.BigInteger(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blob_uploads")),
        sa.UniqueConstraint("account", "cid", name=op.f("uq_blob_uploads_account_cid")),
    )
    op.create_index("ix_blob_uploads_account_created_at", "blob_uploads", ["account", "created_at"])
    op.create_index("ix_blob_uploads_created_at", "blob_uploads", ["created_at"])
    # Whether a file may be unpinned, and whether a provider is doubted, read all units or samples there ever were.
    op.create_index("ix_units_payload_cid", "units", ["payload_cid"])
    op.create_index("ix_units_provider_uploaded_at", "units", ["provider", "uploaded_at"])
    op.create_index("ix_samples_state_cid", "samples", ["state_cid"])


def downgrade() -> None:
    op.drop_index("ix_samples_state_cid", table_name="samples")
    op.drop_index("ix_units_provider_uploaded_at", table_name="units")
    op.drop_index("ix_units_payload_cid", table_name="units")
    op.drop_table("blob_uploads")
