"""What accounts put on storage within a day, which their quota bounds.

Revision: 0027, after 0022.
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0022"
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


def downgrade() -> None:
    op.drop_table("blob_uploads")
