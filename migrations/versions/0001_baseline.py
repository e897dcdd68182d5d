"""All tables, indexes and triggers.

Revision: 0001, after nothing. The tables are described by feature in `migrations/baseline/`.
"""

from alembic import op

from migrations.baseline import accounts, chain, governance, jobs, payments, providers, training, verification
from migrations.baseline.parts import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Each of these modules adds its tables to `metadata`.
FEATURES = (accounts, chain, governance, jobs, payments, providers, training, verification)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
    for statement in (*payments.CREATE_TRIGGERS, *training.CREATE_TRIGGERS):
        op.execute(statement)


def downgrade() -> None:
    for statement in (*training.DROP_TRIGGERS, *payments.DROP_TRIGGERS):
        op.execute(statement)
    metadata.drop_all(op.get_bind(), checkfirst=False)
