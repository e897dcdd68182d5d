"""First segments posed to a second verifier, and the digest of an inner state that each of them is asked for.

Revision: 0030, after 0029. A sample that was drawn before is judged as before: nobody is asked for more than its end.
"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("samples", sa.Column("inner_step", sa.Integer(), nullable=True))
    op.add_column("samples", sa.Column("inner_nonce", sa.String(length=66), nullable=True))
    op.add_column("samples", sa.Column("second_opinion", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("replays", sa.Column("inner_digest", sa.String(length=66), nullable=True))
    op.add_column("replays", sa.Column("attempt", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("replays", "attempt")
    op.drop_column("replays", "inner_digest")
    op.drop_column("samples", "second_opinion")
    op.drop_column("samples", "inner_nonce")
    op.drop_column("samples", "inner_step")
