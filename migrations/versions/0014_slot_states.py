"""Slot states, which stay on their nodes: what a unit starts from and hands on, and whether storage has it.

Error feedback that was stored before stays where it is; the slots of running jobs go on from a fresh state.

Revision: 0014, after 0013.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_RENAMED = {"start_error_feedback_cid": "start_slot_state_cid", "error_feedback_cid": "slot_state_cid"}
_UNITS = {
    "start_slot_state_digest": sa.String(length=66),
    "start_restored_payload_cid": sa.String(length=128),
    "slot_state_digest": sa.String(length=66),
    "slot_state_round": sa.Integer(),
}


def upgrade() -> None:
    for before, after in _RENAMED.items():
        op.alter_column("units", before, new_column_name=after)
    for name, kind in _UNITS.items():
        op.add_column("units", sa.Column(name, kind, nullable=True))
    op.add_column("units", sa.Column("slot_state_public", sa.Boolean(), server_default="false", nullable=False))
    op.create_index("ix_units_slot_state_round", "units", ["job_id", "slot_state_round"])
    op.create_index("ix_units_slot_state_cid", "units", ["slot_state_cid"])
    op.drop_column("slots", "error_feedback_cid")
    op.add_column("slots", sa.Column("state_unit_id", sa.Integer(), nullable=True))
    op.add_column("slots", sa.Column("state_restored", sa.Boolean(), server_default="false", nullable=False))
    op.create_foreign_key(op.f("fk_slots_state_unit_id_units"), "slots", "units", ["state_unit_id"], ["id"])


def downgrade() -> None:
    op.drop_constraint(op.f("fk_slots_state_unit_id_units"), "slots", type_="foreignkey")
    op.drop_column("slots", "state_restored")
    op.drop_column("slots", "state_unit_id")
    op.add_column("slots", sa.Column("error_feedback_cid", sa.String(length=128), nullable=True))
    op.drop_index("ix_units_slot_state_cid", table_name="units")
    op.drop_index("ix_units_slot_state_round", table_name="units")
    op.drop_column("units", "slot_state_public")
    for name in reversed(_UNITS):
        op.drop_column("units", name)
    for before, after in _RENAMED.items():
        op.alter_column("units", after, new_column_name=before)
